"""One recorded search under one score: what was known at each step, and what stopping there returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappushpop
from typing import final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.certificate import certify
from uncurse.scoring.decoding import Decoding, result_signature
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.needs import needs
from uncurse.scoring.rescorer import Paths, Rescorer, Rewards, Source
from uncurse.scoring.result import Certificate, Hypothesis, Result
from uncurse.scoring.stopping import StoppingRule, count_hopeful
from uncurse.search.trace import Trace


@final
@dataclass(frozen=True, eq=False)
class BoundCurve:
    """How a search went under a score: it is proved at the first step at which the best reaches the bound."""

    best: Floats  # [steps] the n-th best finished score, -inf while fewer have finished
    bound: Floats  # [steps] what the best live prefix could still reach, -inf where none can go on
    hopeful: Ints  # [steps] how many live prefixes could still enter the n-best list


@final
class ScoredTrace:
    """One recorded search under one score; it looks at nothing after the step that it is asked about."""

    def __init__(
        self, trace: Trace, rescorer: Rescorer, n_best: int, expected_length: float | None, max_length: int
    ) -> None:
        self._trace = trace
        self._rescorer = rescorer
        self._n_best = n_best
        self._expected_length = expected_length
        self._max_length = max_length
        self._signature = trace.signature_with(max_length)
        self._source = Source.repeated(1, trace.source_length, max_length, len(trace.prefix), expected_length)
        self._reads_rewards = needs(rescorer).rewards
        self._chosen: dict[int, tuple[Hypothesis, ...]] = {}  # by how many had finished: rules often agree

    def stop_step(self, rule: StoppingRule) -> int:
        """The step after which a rule stops."""
        stops = rule.decide(self._evidence_for(rule)).nonzero()[0]
        if not len(stops):
            raise UncurseError("this trace ends before the rule would stop; record an exhaustive search")
        return int(stops[0]) + 1

    def rows_until(self, stop: int, rule: StoppingRule) -> int:
        """How many prefixes a live search that stops at a step would have run the model on."""
        trace = self._trace
        rows = len(trace.prefix) + trace.rows_before.item(stop - 1)
        if rule.drops_hopeless:
            asked = slice(int(trace.finished_counts.searchsorted(self._n_best)), stop - 1)
            if asked.start < asked.stop:
                hopeful = rule.hopeful(
                    self._evidence_for(rule).take(asked), trace.sums[asked], trace.is_live[asked]
                )
                rows -= int((trace.live_counts[asked] - hopeful).sum())
        return rows

    def bound_curve(self) -> BoundCurve:
        """What was known after each step."""
        now, trace = self._evidence, self._trace
        bound = self._rescorer.bound(now.source, Paths(now.best_live, now.step, now.rewards))
        count = len(now.step)
        hopeful = count_hopeful(now, trace.sums[:count], trace.is_live[:count])
        return BoundCurve(now.nth_best, bound, np.where(now.step < now.source.max_length, hopeful, 0))

    def certificates(self, stops: Sequence[int]) -> list[tuple[Certificate, float]]:
        """What is proved when the search stops at each of some steps."""
        distinct = sorted({*stops})
        pruned = np.broadcast_to(self._trace.pruned, (len(distinct), self._trace.steps))
        found = dict(zip(distinct, certify(self._evidence.take(np.array(distinct) - 1), pruned), strict=True))
        return [found[stop] for stop in stops]

    def result(
        self, decoding: Decoding, stop: int, model_rows: int, certificate: tuple[Certificate, float]
    ) -> Result:
        """The n best of what had finished when the search stopped."""
        finished = self._trace.finished_counts.item(stop - 1) if stop else 0
        if finished not in self._chosen:
            self._chosen[finished] = self._best_of(finished)
        proved, gap = certificate
        return Result(
            hypotheses=self._chosen[finished] or self._truncated(stop),
            finished=finished,
            certificate=proved,
            gap=gap,
            steps=stop,
            model_rows=model_rows,
            decoding=decoding,
            signature=result_signature(self._signature, decoding, self._expected_length),
        )

    @cached_property
    def _scores(self) -> Floats:
        """The score of everything that finished, [finished]."""
        trace = self._trace
        lengths = trace.finished[0] + 1
        paths = Paths(trace.finished_sums, lengths, self._rewards(lengths), trace.finished_coverage)
        return self._rescorer.checked_score(self._source, paths) if len(lengths) else np.empty(0)

    @cached_property
    def _evidence(self) -> Evidence:
        """What was known after each step, [steps]."""
        trace, steps = self._trace, np.arange(1, min(self._trace.steps, self._max_length) + 1)
        count = len(steps)
        finished = trace.finished_counts[:count]
        return Evidence(
            rescorer=self._rescorer,
            beam_size=trace.beam_size,
            n_best=self._n_best,
            source=self._source.take(np.zeros(count, dtype=np.int64)),
            rewards=self._rewards(steps),
            step=steps,
            finished=finished,
            nth_best=running_kth_best(self._scores, self._n_best)[finished],
            bth_best_or_none=None,
            top_was_eos=trace.top_was_eos[:count],
            best_live=trace.best_live[:count],
        )

    @cached_property
    def _evidence_with_bth_best(self) -> Evidence:
        kth_best = running_kth_best(self._scores, self._trace.beam_size)
        return replace(self._evidence, bth_best_or_none=kth_best[self._evidence.finished])

    def _evidence_for(self, rule: StoppingRule) -> Evidence:
        return self._evidence_with_bth_best if needs(rule).bth_best else self._evidence

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
        scores = self._rescorer.score(self._source, paths)
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
