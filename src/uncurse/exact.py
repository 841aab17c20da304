"""Exact search: the best of all sequences within the limit, by branch and bound with the bound of the score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.coverage import attended, coverage_sums
from uncurse.decoding import Sentence, check_attends, check_predicted, checked_count
from uncurse.model import ModelError, S, StepModel, checked
from uncurse.rescoring import Paths, Rescorer, Rewards, Source, needs
from uncurse.result import Hypothesis
from uncurse.search import record
from uncurse.trace import Trace


@final
@dataclass(frozen=True)
class ExactResult:
    """The best hypothesis found, and by how much another sequence could beat it: 0 if it is the optimum."""

    hypothesis: Hypothesis | None  # None: nothing finished within the limit or the budget
    gap: float
    calls: int  # of the model, without those of the beam search that came first
    rewards_width: int | None  # the width of the search whose rewards the score was read with


def exact_search(
    model: StepModel[S],
    sentence: Sentence,
    rescorer: Rescorer,
    *,
    width: int = 10,
    budget: int = 10_000,
    rewards: Trace | None = None,
) -> ExactResult:
    """The best-scoring sequence of all, over the whole vocabulary, within a budget of model calls.

    A beam search of the given width comes first: its best is what the rest must beat. Adaptive rewards belong to a
    search; a score that reads them has no optimum unless that search is given, and its width is in the result.
    """
    checked_count("budget", budget)
    if budget <= len(sentence.prefix):
        raise ValueError(f"budget = {budget} is not allowed: the prefix alone takes {len(sentence.prefix)} calls")
    if needs(rescorer).rewards and rewards is None:
        raise ValueError("this score depends on the rewards of a search: give rewards=trace, recorded at a width")
    if rewards is not None and not needs(rescorer).rewards:
        raise ValueError("this score does not depend on rewards: do not give any")
    if rewards is not None and (rewards.model, rewards.source_length, rewards.prefix) != (
        model.signature,
        len(sentence.source),
        sentence.prefix,
    ):
        raise ValueError("the rewards are those of another model or sentence")
    if needs(rescorer).prediction:
        check_predicted(sentence.predicted)
    if needs(rescorer).coverage:
        check_attends(model.attends)
    tree = _Tree(model, sentence, rescorer, rewards)
    tree.challenge(record(model, [sentence], width)[0])
    return tree.search(budget)


@final
@dataclass(eq=False)
class _Branch(Generic[S]):
    """The live continuations of a prefix, best first, of which the first `tried` are done with."""

    state: S  # after the prefix
    coverage: Floats  # [1, positions] received by the prefix
    prefix: tuple[int, ...]
    log_probs: tuple[float, ...]  # of the prefix's tokens
    tokens: Ints  # [live]
    token_log_probs: Floats  # [live]
    sums: Floats  # [live] S
    bounds: Floats  # [live] falling
    tried: int = 0


@final
class _Tree(Generic[S]):
    """The prefixes of one sentence's outputs, searched depth first, the likeliest continuation first."""

    def __init__(self, model: StepModel[S], sentence: Sentence, rescorer: Rescorer, rewards: Trace | None) -> None:
        self._model = model
        self._sentence = sentence
        self._rescorer = rescorer
        self._attention = needs(rescorer).coverage
        self._searched = rewards
        self._best: Hypothesis | None = None
        self._calls = 0
        lengths = np.arange(1, sentence.limit + 1)
        if np.isposinf(self._scores(np.zeros(len(lengths)), lengths, np.zeros(len(lengths)))).any():
            steps, width = (0, 0) if rewards is None else (rewards.steps, rewards.width)
            raise ValueError(
                f"the search of width {width} has rewards for {steps} steps, too few for outputs of up to"
                f" {sentence.limit} tokens: record a wider one, or lower the limit"
            )

    def challenge(self, trace: Trace) -> None:
        """Let what a beam search finished stand for the best so far."""
        steps, ranks = trace.finished
        coverage = trace.finished_coverage
        scores = self._scores(
            trace.finished_sums, steps + 1, np.zeros(len(steps)) if coverage is None else coverage
        )
        if len(scores):
            best = int(scores.argmax())
            self._best = trace.hypothesis(int(steps[best]), int(ranks[best]), float(scores[best]))

    def search(self, budget: int) -> ExactResult:
        """Look at every prefix whose bound beats the best finished hypothesis, until the budget is spent."""
        stack = [self._root()]
        gap = 0.0
        while stack:
            branch = stack[-1]
            if branch.tried == len(branch.tokens) or branch.bounds[branch.tried] <= self._target():
                stack.pop()  # the bounds fall, so the rest cannot win either
                continue
            if self._calls >= budget:
                left = [each.bounds[each.tried] for each in stack if each.tried < len(each.tokens)]
                gap = float(max(left)) - self._target()
                break
            branch.tried += 1
            stack.append(self._grown(branch, branch.tried - 1))
        width = None if self._searched is None else self._searched.width
        return ExactResult(self._best, gap, self._calls, width)

    def _target(self) -> float:
        return -np.inf if self._best is None else self._best.score

    def _root(self) -> _Branch[S]:
        state = self._model.start([self._sentence.source])
        coverage = np.zeros((1, len(self._sentence.source)))
        forced = (self._model.begin, *self._sentence.prefix)
        for token in forced[:-1]:
            given, state = self._model.step(state, np.array([token]), 1, self._attention)
            self._calls += 1
            if given.attention is not None:
                coverage = attended(coverage, given.attention)
        return self._branch(state, forced[-1], coverage, (), (), 0.0)

    def _grown(self, branch: _Branch[S], index: int) -> _Branch[S]:
        token = int(branch.tokens[index])
        return self._branch(
            branch.state.select(np.array([0])),
            token,
            branch.coverage,
            (*branch.prefix, token),
            (*branch.log_probs, float(branch.token_log_probs[index])),
            float(branch.sums[index]),
        )

    def _branch(
        self,
        state: S,
        token: int,
        coverage: Floats,
        prefix: tuple[int, ...],
        log_probs: tuple[float, ...],
        log_prob: float,
    ) -> _Branch[S]:
        """Ask the model what follows a prefix: its end may be the best yet, the rest are branches."""
        given, state = self._model.step(state, np.array([token]), self._model.vocabulary, self._attention)
        self._calls += 1
        if given.attention is not None:
            coverage = attended(coverage, given.attention)
        where = f"step {len(prefix) + 1}, after {prefix}"
        if given.tokens.shape != (1, self._model.vocabulary):
            raise ModelError(
                f"{where}: the model gave {given.tokens.shape} continuations, not its whole vocabulary"
            )
        values = checked(given.log_probs, lambda _: where)[0]
        order = np.lexsort((given.tokens[0], -values))
        tokens, values = given.tokens[0][order], values[order]
        sums = log_prob + values
        ends = tokens == self._model.end
        self._finish(prefix, log_probs, float(values[ends][0]), float(sums[ends][0]), coverage)
        live = ~ends & (sums > -np.inf)
        tokens, values, sums = tokens[live], values[live], sums[live]
        paths = Paths(sums, np.full(len(tokens), len(prefix) + 1), self._rewards(len(tokens)))
        bounds = self._rescorer.bound(self._source(len(tokens)), paths)
        return _Branch(state, coverage, prefix, log_probs, tokens, values, sums, bounds)

    def _finish(
        self,
        prefix: tuple[int, ...],
        log_probs: tuple[float, ...],
        log_prob: float,
        total: float,
        coverage: Floats,
    ) -> None:
        """A prefix may end here, and be the best so far."""
        length = len(prefix) + 1
        if total == -np.inf or not self._sentence.min_length <= length <= self._sentence.limit:
            return
        covered = coverage_sums(coverage, np.array([len(self._sentence.source)]))
        score = float(self._scores(np.array([total]), np.array([length]), covered)[0])
        if score > self._target():
            self._best = Hypothesis((*prefix, self._model.end), total, score, (*log_probs, log_prob))

    def _scores(self, sums: Floats, lengths: Ints, coverage: Floats) -> Floats:
        paths = Paths(sums, lengths, self._rewards(len(sums)), coverage)
        return self._rescorer.score(self._source(len(sums)), paths)

    def _source(self, rows: int) -> Source:
        sentence = self._sentence
        return Source.repeated(
            rows, len(sentence.source), sentence.limit, len(sentence.prefix), sentence.predicted
        )

    def _rewards(self, rows: int) -> Rewards | None:
        if self._searched is None:
            return None
        sums = self._searched.reward_sums
        return Rewards(np.broadcast_to(sums, (rows, len(sums))), np.full(rows, len(sums) - 1))
