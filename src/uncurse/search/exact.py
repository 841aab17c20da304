"""Exact search: the best of all sequences up to the maximum length, by branch and bound with the derived bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.coverage import attended, coverage_sums
from uncurse.scoring.decoding import Sentence, check_attends, check_expected_length, checked_count
from uncurse.scoring.needs import needs
from uncurse.scoring.rescorer import Paths, Rescorer, Rewards, Source
from uncurse.scoring.result import Hypothesis
from uncurse.scoring.scores import SCORES
from uncurse.search.allowed_tokens import AllowedTokens
from uncurse.search.record import record
from uncurse.search.step_model import ModelError, S, StepModel, checked
from uncurse.search.trace import Trace


@final
@dataclass(frozen=True)
class ExactResult:
    """The best hypothesis found, and by how much another sequence could beat it: 0 if it is the optimum."""

    hypothesis: Hypothesis | None  # None: nothing finished within the maximum length or the budget
    gap: float
    calls: int  # of the model, without those of the beam search that came first
    rewards_beam_size: int | None  # the beam size of the search whose rewards the score was read with


def exact_search(
    model: StepModel[S],
    sentence: Sentence,
    score: Rescorer | str,
    *,
    beam_size: int = 10,
    budget: int = 10_000,
    rewards: Trace | None = None,
) -> ExactResult:
    """The best-scoring sequence of all, over the whole vocabulary, within a budget of model calls.

    A beam search comes first: its best is what the rest must beat.

    Args:
        model: Gives the best next tokens of prefixes; see `StepModel`.
        sentence: What is translated, with its maximum length and, for scores that need one, its expected length.
        score: A name such as "length-norm", or a `Rescorer`.
        beam_size: The beam size of the first search.
        budget: How many calls of the model the rest may take.
        rewards: A recorded search, for adaptive rewards, which belong to a search: a score that reads them has no
            optimum without it. Its beam size is in the result.
    """
    rescorer = SCORES.parse(score) if isinstance(score, str) else score
    wanted = needs(rescorer)
    checked_count("budget", budget)
    if budget <= len(sentence.prefix):
        raise UncurseError(
            f"budget = {budget} is not allowed: the prefix alone takes {len(sentence.prefix)} calls"
        )
    if wanted.rewards and rewards is None:
        raise UncurseError("this score depends on the rewards of a search: give rewards=trace, a recorded search")
    if rewards is not None and not wanted.rewards:
        raise UncurseError("this score does not depend on rewards: do not give any")
    if rewards is not None and (rewards.model, rewards.source_length, rewards.prefix) != (
        model.signature,
        len(sentence.source),
        sentence.prefix,
    ):
        raise UncurseError("the rewards are those of another model or sentence")
    if wanted.expected_length:
        check_expected_length(sentence.expected_length)
    if wanted.coverage:
        check_attends(model.attends)
    tree = _SearchTree(model, sentence, rescorer, rewards)
    tree.challenge(record(model, [sentence], beam_size)[0])
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
class _SearchTree(Generic[S]):
    """The prefixes of one sentence's outputs, searched depth first, the likeliest continuation first."""

    def __init__(self, model: StepModel[S], sentence: Sentence, rescorer: Rescorer, rewards: Trace | None) -> None:
        self._model = model
        self._sentence = sentence
        self._rescorer = rescorer
        self._attention = needs(rescorer).coverage
        self._searched = rewards
        self._best: Hypothesis | None = None
        self._calls = 0
        lengths = np.arange(1, sentence.max_length + 1)
        if np.isposinf(self._scores(np.zeros(len(lengths)), lengths, np.zeros(len(lengths)))).any():
            steps, beam_size = (0, 0) if rewards is None else (rewards.steps, rewards.beam_size)
            raise UncurseError(
                f"the search of beam size {beam_size} has rewards for {steps} steps, too few for outputs of up to"
                f" {sentence.max_length} tokens: record a wider one, or lower max_length"
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
        beam_size = None if self._searched is None else self._searched.beam_size
        return ExactResult(self._best, gap, self._calls, beam_size)

    def _target(self) -> float:
        return -np.inf if self._best is None else self._best.score

    def _root(self) -> _Branch[S]:
        state = self._model.start([self._sentence.source])
        coverage = np.zeros((1, len(self._sentence.source)))
        forced = (self._model.bos, *self._sentence.prefix)
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
        given, state = self._model.step(state, np.array([token]), self._model.vocab_size, self._attention)
        self._calls += 1
        if given.attention is not None:
            coverage = attended(coverage, given.attention)
        where = f"step {len(prefix) + 1}, after {prefix}"
        if given.tokens.shape != (1, self._model.vocab_size):
            raise ModelError(
                f"{where}: the model gave {given.tokens.shape} continuations, not its whole vocabulary"
            )
        values = self._allowed(prefix, given.tokens[0], checked(given.log_probs, lambda _: where)[0])
        order = np.lexsort((given.tokens[0], -values))
        tokens, values = given.tokens[0][order], values[order]
        sums = log_prob + values
        ends = tokens == self._model.eos
        self._finish(prefix, log_probs, float(values[ends][0]), float(sums[ends][0]), coverage)
        live = ~ends & (sums > -np.inf)
        tokens, values, sums = tokens[live], values[live], sums[live]
        paths = Paths(sums, np.full(len(tokens), len(prefix) + 1), self._rewards(len(tokens)))
        bounds = self._rescorer.bound(self._source(len(tokens)), paths)
        return _Branch(
            state=state,
            coverage=coverage,
            prefix=prefix,
            log_probs=log_probs,
            tokens=tokens,
            token_log_probs=values,
            sums=sums,
            bounds=bounds,
        )

    def _allowed(self, prefix: tuple[int, ...], tokens: Ints, values: Floats) -> Floats:
        """The log-probabilities of tokens, -inf for those that the constraint does not allow after a prefix."""
        if (constraint := self._sentence.constraint) is None:
            return values
        after = constraint.after(np.array([(*self._sentence.prefix, *prefix)], dtype=np.int64))
        allowed = AllowedTokens.of([(np.zeros(1, dtype=np.int64), after)], 1).masked(np.zeros((1, len(values))))
        return np.where(allowed[0, tokens] == 0.0, values, -np.inf)

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
        if total == -np.inf or not self._sentence.min_length <= length <= self._sentence.max_length:
            return
        covered = coverage_sums(coverage, np.array([len(self._sentence.source)]))
        score = float(self._scores(np.array([total]), np.array([length]), covered)[0])
        if score > self._target():
            self._best = Hypothesis((*prefix, self._model.eos), total, score, (*log_probs, log_prob))

    def _scores(self, sums: Floats, lengths: Ints, coverage: Floats) -> Floats:
        paths = Paths(sums, lengths, self._rewards(len(sums)), coverage)
        return self._rescorer.score(self._source(len(sums)), paths)

    def _source(self, rows: int) -> Source:
        sentence = self._sentence
        return Source.repeated(
            rows, len(sentence.source), sentence.max_length, len(sentence.prefix), sentence.expected_length
        )

    def _rewards(self, rows: int) -> Rewards | None:
        if self._searched is None:
            return None
        sums = self._searched.reward_sums
        return Rewards(np.broadcast_to(sums, (rows, len(sums))), np.full(rows, len(sums) - 1))
