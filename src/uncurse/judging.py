"""Judging a recorded search: what a live search with any score and stopping rule would have returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappushpop
from typing import Final, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.certificate import certify
from uncurse.decoding import check_attends, check_predicted, checked_count, checked_length, result_signature
from uncurse.rescoring import Paths, Rescorer, Rewards, Source, needs
from uncurse.result import Hypothesis, Optimality, Result
from uncurse.stopping import Evidence, Optimal, StoppingRule
from uncurse.trace import Trace

CELLS: Final = 1 << 18  # lengths of prefixes that are looked at together, so that memory does not grow with both


def judge(
    trace: Trace,
    rescorer: Rescorer,
    stopping: StoppingRule,
    n_best: int = 1,
    length: float | None = None,
    limit: int | None = None,
) -> Result:
    """What a live search with this score and rule would have returned, to the bit.

    `length` is the predicted length, `limit` any limit up to that of the recorded search.
    """
    return judge_all(trace, [(rescorer, stopping)], n_best, length, limit)[0]


def judge_all(
    trace: Trace,
    ways: Sequence[tuple[Rescorer, StoppingRule]],
    n_best: int = 1,
    length: float | None = None,
    limit: int | None = None,
) -> list[Result]:
    """The same for many scores and rules at once; what rules of one score have in common is done once."""
    n_best = checked_count("n_best", n_best)
    limit = checked_count("limit", trace.limit if limit is None else limit)
    least = max(trace.min_length, 1)
    if not least <= limit <= trace.limit:
        raise ValueError(f"limit = {limit} is not allowed: this trace answers for {least} to {trace.limit}")
    if length is not None:
        length = checked_length("length", length)
    rules_of: dict[Rescorer, dict[int, StoppingRule]] = {}
    for index, (rescorer, rule) in enumerate(ways):
        rules_of.setdefault(rescorer, {})[index] = rule
    for rescorer, rules in rules_of.items():
        if needs(rescorer).prediction or any(rule.needs_prediction for rule in rules.values()):
            check_predicted(length)
        if needs(rescorer).coverage:
            check_attends(trace.coverage is not None)
    terms = Terms(trace, n_best, length, limit)
    results: dict[int, Result] = {}
    for rescorer, rules in rules_of.items():
        case = Case(terms, rescorer)
        stops = [case.stop_step(rule) for rule in rules.values()]
        certificates = case.certificates(stops)
        for (index, rule), stop, certificate in zip(rules.items(), stops, certificates, strict=True):
            results[index] = case.result(rule, stop, case.rows_until(stop, rule), certificate)
    return [results[index] for index in range(len(ways))]


@final
@dataclass(frozen=True, eq=False)
class Terms:
    """What a recorded search is judged on, whatever the score."""

    trace: Trace
    n_best: int
    length: float | None
    limit: int

    @cached_property
    def signature(self) -> str:
        """What decides the contents of the beam."""
        return self.trace.signature_with(self.limit)

    @cached_property
    def steps(self) -> Ints:
        """The steps that are within the limit, from 1."""
        return np.arange(1, min(self.trace.steps, self.limit) + 1)

    @cached_property
    def source(self) -> Source:
        """The sentence, in one row."""
        return Source.repeated(1, self.trace.source_length, self.limit, len(self.trace.prefix), self.length)

    @cached_property
    def sources(self) -> Source:
        """The sentence, in a row for each step."""
        return self.source.take(np.zeros(len(self.steps), dtype=np.int64))


@final
@dataclass(frozen=True, eq=False)
class Course:
    """How a search went under a score: it is proved at the first step at which the best reaches the bound."""

    best: Floats  # [steps] the n-th best finished score, -inf while fewer have finished
    bound: Floats  # [steps] what the best live prefix could still reach, -inf where none can go on
    hopeful: Ints  # [steps] how many live prefixes could still enter the n-best list


@final
class Case:
    """One recorded search under one score; it looks at nothing after the step that it is asked about."""

    def __init__(self, terms: Terms, rescorer: Rescorer) -> None:
        self._terms = terms
        self._trace = terms.trace
        self._n_best = terms.n_best
        self._rescorer = rescorer
        self._reads_rewards = needs(rescorer).rewards
        self._chosen: dict[int, tuple[Hypothesis, ...]] = {}  # by how many had finished: rules often agree

    def stop_step(self, rule: StoppingRule) -> int:
        """The step after which a rule stops."""
        evidence = self._evidence_for_width if rule.reads_width_best else self._evidence
        stops = rule.decide(evidence).nonzero()[0]
        if not len(stops):
            raise ValueError("this trace ends before the rule would stop; record an exhaustive search")
        return int(stops[0]) + 1

    def rows_until(self, stop: int, rule: StoppingRule) -> int:
        """How many prefixes a live search that stops at a step would have run the model on."""
        trace = self._trace
        rows = len(trace.prefix) + trace.rows_before.item(stop - 1)
        if isinstance(rule, Optimal):
            asked = slice(int(trace.finished_counts.searchsorted(self._n_best)), stop - 1)
            if asked.start < asked.stop:
                going_on = hopeful(self._evidence.take(asked), trace.sums[asked], trace.is_live[asked])
                rows -= int((trace.live_counts[asked] - going_on).sum())
        return rows

    def course(self) -> Course:
        """What was known after each step."""
        now, trace = self._evidence, self._trace
        bound = self._rescorer.bound(now.source, Paths(now.best_live, now.step, now.rewards))
        count = len(now.step)
        left = hopeful(now, trace.sums[:count], trace.is_live[:count])
        return Course(now.nth_best, bound, np.where(now.step < now.source.limit, left, 0))

    def certificates(self, stops: Sequence[int]) -> list[tuple[Optimality, float]]:
        """What is proved when the search stops at each of some steps."""
        distinct = sorted({*stops})
        pruned = np.broadcast_to(self._trace.pruned, (len(distinct), self._trace.steps))
        found = dict(zip(distinct, certify(self._evidence.take(np.array(distinct) - 1), pruned), strict=True))
        return [found[stop] for stop in stops]

    def result(self, rule: StoppingRule, stop: int, rows: int, certificate: tuple[Optimality, float]) -> Result:
        """The n best of what had finished when the search stopped."""
        signature = result_signature(self._terms.signature, self._rescorer, rule, self._n_best, self._terms.length)
        finished = self._trace.finished_counts.item(stop - 1) if stop else 0
        if finished not in self._chosen:
            self._chosen[finished] = self._best_of(finished)
        hypotheses = self._chosen[finished] or self._truncated(stop)
        return Result(hypotheses, finished, *certificate, stop, rows, signature)

    @cached_property
    def _scores(self) -> Floats:
        """The score of everything that finished, [finished]."""
        trace = self._trace
        lengths = trace.finished[0] + 1
        paths = Paths(trace.finished_sums, lengths, self._rewards(lengths), trace.finished_coverage)
        return self._rescorer.score(self._terms.source, paths) if len(lengths) else np.empty(0)

    @cached_property
    def _evidence(self) -> Evidence:
        """What was known after each step, [steps]."""
        trace, steps = self._trace, self._terms.steps
        count = len(steps)
        finished = trace.finished_counts[:count]
        nth_best = running_kth_best(self._scores, self._n_best)[finished]
        return Evidence(
            self._rescorer,
            trace.width,
            self._n_best,
            self._terms.sources,
            self._rewards(steps),
            steps,
            finished,
            nth_best,
            None,
            trace.first_was_end[:count],
            trace.best_live[:count],
        )

    @cached_property
    def _evidence_for_width(self) -> Evidence:
        kth_best = running_kth_best(self._scores, self._trace.width)
        return replace(self._evidence, width_scores=kth_best[self._evidence.finished])

    def _best_of(self, finished: int) -> tuple[Hypothesis, ...]:
        scores = self._scores[:finished]
        if self._n_best == 1:
            best = [int(scores.argmax())] if finished else []
        else:
            best = np.argsort(-scores, kind="stable")[: self._n_best].tolist()
        steps, ranks = self._trace.finished
        return tuple(
            self._trace.hypothesis(steps.item(each), ranks.item(each), scores.item(each)) for each in best
        )

    def _truncated(self, stop: int) -> tuple[Hypothesis, ...]:
        """The best prefixes of the last step that left any, as if they had ended there with all covered."""
        alive = np.flatnonzero(self._trace.live_counts[:stop])
        if not len(alive):
            return ()
        step = int(alive[-1])
        ranks = np.flatnonzero(self._trace.is_live[step])[: self._n_best]
        lengths = np.full(len(ranks), step + 1)
        paths = Paths(self._trace.sums[step, ranks], lengths, self._rewards(lengths), np.zeros(len(ranks)))
        scores = self._rescorer.score(self._terms.source, paths)
        return tuple(
            self._trace.hypothesis(step, int(rank), float(score))
            for rank, score in zip(ranks, scores, strict=True)
        )

    def _rewards(self, seen: Ints) -> Rewards | None:
        if not self._reads_rewards:
            return None
        sums = self._trace.reward_sums
        return Rewards(np.broadcast_to(sums, (len(seen), len(sums))), seen)


def running_kth_best(scores: Floats, k: int) -> Floats:
    """The k-th best of the first 0, 1, 2, … scores, -inf where there are fewer, [scores + 1]."""
    if k == 1:
        return np.concatenate(([-np.inf], np.maximum.accumulate(scores)))
    best = [-np.inf] * k  # a heap of the k best so far, the lowest first
    running = [-np.inf]
    for score in scores.tolist():
        heappushpop(best, score)
        running.append(best[0])
    return np.array(running)


def hopeful(evidence: Evidence, sums: Floats, live: Bools) -> Ints:
    """How many of each row's live prefixes could still enter its n-best list, [rows]; none is at its limit.

    `sums` holds `S` where `live`, [rows, ranks]. A bound never falls when `S` rises, so the hopeful are the best.
    """
    # The best case at one length, the longest, most often shows that there is hope.
    longest = Paths(np.where(live, sums, 0.0), evidence.source.limit[:, None], evidence.rewards, np.zeros((1, 1)))
    scores = evidence.rescorer.score(evidence.source.column(), longest)
    sure = live & (scores > evidence.nth_best[:, None])
    counts: Ints = sure.sum(axis=1)
    doubtful = live & ~sure
    best_doubtful = np.where(doubtful, sums, -np.inf).max(axis=1)
    rows = np.flatnonzero(best_doubtful > -np.inf)
    if len(rows):
        now = evidence.take(rows)
        prefixes = Paths(best_doubtful[rows], now.step, now.rewards)
        rows = rows[now.rescorer.bound(now.source, prefixes) > now.nth_best]
    if len(rows):  # another length than the longest is better
        index, rank = np.nonzero(doubtful[rows])
        row = rows[index]
        at_once = max(1, CELLS // int(evidence.source.limit.max()))
        for first in range(0, len(row), at_once):
            some, ranks = row[first : first + at_once], rank[first : first + at_once]
            now = evidence.take(some)
            bound = now.rescorer.bound(now.source, Paths(sums[some, ranks], now.step, now.rewards))
            counts += np.bincount(some[bound > now.nth_best], minlength=len(counts))
    return counts
