"""Judging a recorded search: what a live search with any score and stopping rule would have returned."""

from __future__ import annotations

from typing import final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.decoding import check_count, result_signature
from uncurse.rescoring import Paths, Rescorer, Rewards, Source, needs
from uncurse.result import Hypothesis, Optimality, Result
from uncurse.stopping import Evidence, StoppingRule
from uncurse.trace import Trace


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
    check_count("n_best", n_best)
    limit = trace.limit if limit is None else limit
    if not 1 <= limit <= trace.limit:
        raise ValueError(f"limit = {limit} is not allowed: this trace answers for 1 to {trace.limit}")
    case = Case(trace, rescorer, stopping, n_best, length, limit)
    stop = case.stop_step()
    return case.result(stop, case.rows_until(stop))


@final
class Case:
    """One recorded search and one way to judge it; it looks at nothing after the step it is asked about."""

    def __init__(
        self,
        trace: Trace,
        rescorer: Rescorer,
        stopping: StoppingRule,
        n_best: int,
        length: float | None,
        limit: int,
    ) -> None:
        self.trace = trace
        self.rescorer = rescorer
        self.stopping = stopping
        self.n_best = n_best
        self.length = length
        self.limit = limit
        self._reads_rewards = needs(rescorer).rewards
        self._source = Source.repeated(1, trace.source_length, limit, len(trace.prefix), length)
        steps, _ = trace.finished
        self.scores: Floats = np.empty(0)  # [finished]
        if len(steps):
            lengths = steps + 1
            paths = Paths(trace.finished_sums, lengths, self._rewards(lengths), trace.finished_coverage)
            self.scores = rescorer.score(self._source, paths)

    def stop_step(self) -> int:
        """The step after which the rule stops."""
        steps = np.arange(1, min(self.trace.steps, self.limit) + 1)
        stops = np.flatnonzero(self.stopping.decide(self._evidence(steps)))
        if not len(stops):
            raise ValueError("this trace ends before the rule would stop; record an exhaustive search")
        return int(stops[0]) + 1

    def rows_until(self, stop: int) -> int:
        """How many prefixes a live search that stops at a step would have run the model on."""
        alive = self.trace.live_counts[: stop - 1].copy()  # after steps 1 … stop - 1
        if self.stopping.drops_hopeless:
            asked = np.flatnonzero(self.trace.finished_counts[: stop - 1] >= self.n_best)
            if len(asked):
                live, first = self.trace.live_sums.ravel(), asked * self.trace.width
                alive[asked] = hopeful(self._evidence(asked + 1), live, first, alive[asked])
        return len(self.trace.prefix) + 1 + int(alive.sum())

    def result(self, stop: int, rows: int) -> Result:
        """The n best of what had finished by a step, and what is proved about them."""
        trace = self.trace
        finished = int(trace.finished_counts[stop - 1]) if stop else 0
        if finished:
            hypotheses = self._n_best(finished)
            optimality, gap = self._certificate(stop, hypotheses)
        else:
            hypotheses, optimality, gap = self._truncated(stop), Optimality.TRUNCATED, np.inf
        beam = trace.signature_with(self.limit)
        signature = result_signature(beam, self.rescorer, self.stopping, self.n_best, self.length)
        return Result(hypotheses, optimality, gap, stop, rows, signature)

    def _n_best(self, finished: int) -> tuple[Hypothesis, ...]:
        scores = self.scores[:finished]
        if self.n_best == 1:
            best = [int(scores.argmax())]
        else:
            best = np.argsort(-scores, kind="stable")[: self.n_best].tolist()
        steps, ranks = self.trace.finished
        return tuple(
            self.trace.hypothesis(int(steps[each]), int(ranks[each]), float(scores[each])) for each in best
        )

    def _certificate(self, stop: int, hypotheses: tuple[Hypothesis, ...]) -> tuple[Optimality, float]:
        trace = self.trace
        nth_best = hypotheses[-1].score if len(hypotheses) == self.n_best else -np.inf
        now = np.array([stop])
        live = Paths(trace.best_live(stop - 1), now, self._rewards(now))
        if self.rescorer.can_beat(self._source, live, np.array([nth_best]))[0]:
            return Optimality.NONE, self.rescorer.bound(self._source, live).item() - nth_best
        # A pruned continuation may itself have been </s>, so its lengths start one earlier than a live prefix's.
        pruned = Paths(trace.pruned[:stop], np.arange(stop), self._rewards(np.full(stop, stop)))
        beaten = self.rescorer.can_beat(self._sources(stop), pruned, np.full(stop, nth_best)).any()
        return (Optimality.BEAM if beaten else Optimality.GLOBAL), 0.0

    def _truncated(self, stop: int) -> tuple[Hypothesis, ...]:
        alive = np.flatnonzero(self.trace.live_counts[:stop])
        if not len(alive):
            return ()
        step = int(alive[-1])
        ranks = np.flatnonzero(self.trace.is_live[step])[: self.n_best]
        lengths = np.full(len(ranks), step + 1)
        paths = Paths(self.trace.sums[step, ranks], lengths, self._rewards(lengths), np.zeros(len(ranks)))
        scores = self.rescorer.score(self._source, paths)
        return tuple(
            self.trace.hypothesis(step, int(rank), float(score)) for rank, score in zip(ranks, scores, strict=True)
        )

    def _evidence(self, steps: Ints) -> Evidence:
        trace, index = self.trace, steps - 1
        depth = self.stopping.depth(trace.width, self.n_best)
        return Evidence(
            self.rescorer,
            trace.width,
            self.n_best,
            self._sources(len(steps)),
            self._rewards(steps),
            steps,
            trace.finished_counts[index],
            running_best(self.scores, depth)[trace.finished_counts[index]],
            trace.first_was_end[index],
            trace.live_sums[index, 0],
        )

    def _sources(self, rows: int) -> Source:
        return self._source.take(np.zeros(rows, dtype=np.int64))

    def _rewards(self, seen: Ints) -> Rewards | None:
        if not self._reads_rewards:
            return None
        sums = self.trace.reward_sums
        return Rewards(np.broadcast_to(sums, (len(seen), len(sums))), seen)


def running_best(scores: Floats, depth: int) -> Floats:
    """The `depth` best of the first 0, 1, 2, … scores, falling, -inf beyond, [scores + 1, depth]."""
    best = np.full((len(scores) + 1, depth), -np.inf)
    rest = scores
    for place in range(min(depth, len(scores))):
        np.maximum.accumulate(rest, out=best[1:, place])
        # What the leader so far pushes down, or the newcomer that does not beat it, competes for the next place.
        rest = np.minimum(rest, best[:-1, place])
    return best


def hopeful(evidence: Evidence, live: Floats, first: Ints, counts: Ints) -> Ints:
    """How many of each row's live prefixes could still enter its n-best list, [rows].

    `live` holds their `S`; those of a row begin at `first` and fall, and there is at least one. A bound never
    falls when `S` rises, so the hopeless are the last ones, and halving finds the first of them.
    """
    low, high = np.zeros_like(counts), counts.copy()  # hopeful below low, hopeless from high on
    middle = counts - 1  # most often even the worst is hopeful
    unsure = np.arange(len(counts))
    while len(unsure):
        now = evidence.take(unsure)
        prefixes = Paths(live[first[unsure] + middle], now.step, now.rewards)
        alive = now.rescorer.can_beat(now.source, prefixes, now.nth_best)
        low[unsure] = np.where(alive, middle + 1, low[unsure])
        high[unsure] = np.where(alive, high[unsure], middle)
        unsure = np.flatnonzero(low < high)
        middle = (low[unsure] + high[unsure]) // 2
    return low
