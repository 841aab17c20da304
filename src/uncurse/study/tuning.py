"""Tuning on dev: the parameters of a score that give the best BLEU, over a grid or by the perceptron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import final

import numpy as np

from uncurse.evaluation.bleu import bleu_of
from uncurse.scoring.rescorer import Paths, Rescorer, Rewards, Source
from uncurse.scoring.stopping import RULES
from uncurse.search.scored_trace import ScoredTrace
from uncurse.search.trace import Trace
from uncurse.study.methods import OPTIMAL, REWARD, StudyMethod
from uncurse.study.outputs import BleuCache
from uncurse.study.plan import PerceptronPlan
from uncurse.study.test_set import TestSet


@final
@dataclass(frozen=True)
class TuningCurve:
    """BLEU of every combination of values that was tried, and where it is highest."""

    parameters: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    bleu: tuple[float, ...]  # mean over the beam sizes of the group

    def at(self, values: tuple[float, ...]) -> float:
        """BLEU of one combination."""
        return self.bleu[self.values.index(values)]

    @property
    def best(self) -> tuple[float, ...]:
        """The combination with the highest BLEU; the first of equals."""
        return self.values[int(np.argmax(self.bleu))]

    @property
    def varied(self) -> TuningCurve:
        """The same without parameters of which only one value was tried."""
        places = [place for place in range(len(self.parameters)) if len({each[place] for each in self.values}) > 1]
        values = tuple(tuple(each[place] for place in places) for each in self.values)
        return TuningCurve(tuple(self.parameters[place] for place in places), values, self.bleu)


@final
@dataclass(frozen=True)
class Tuning:
    """What was found for one group of beam sizes, by method."""

    curves: Mapping[str, TuningCurve]
    perceptron: Mapping[str, float]  # the reward that makes outputs as long as the references
    scores: Mapping[str, Rescorer]  # with the best values of the grid


@final
class Tuner:
    """The recorded searches of a set at the beam sizes of one group."""

    def __init__(self, test_set: TestSet, recorded: Sequence[Sequence[Trace]], cache: BleuCache) -> None:
        self._test_set = test_set
        self._recorded = [
            list(zip(traces, test_set.judged_max_lengths(traces), strict=True)) for traces in recorded
        ]
        self._cache = cache

    def tune(self, methods: Sequence[StudyMethod], perceptron: PerceptronPlan) -> Tuning:
        """Try every combination of values of every method."""
        curves = self.curves(methods)
        rewards = {
            method.name: self._perceptron(method, perceptron) for method in methods if method.tuned == (REWARD,)
        }
        scores = {
            method.name: method.rescorer(curves[method.name].best if method.tuned else ()) for method in methods
        }
        return Tuning(curves, rewards, scores)

    def curves(self, methods: Sequence[StudyMethod]) -> dict[str, TuningCurve]:
        """What every combination gives, by method."""
        return {
            method.name: TuningCurve(method.tuned, method.values, self._bleu(method))
            for method in methods
            if method.tuned
        }

    def _bleu(self, method: StudyMethod) -> tuple[float, ...]:
        """Mean BLEU over the beam sizes, for each combination."""
        scores = [method.rescorer(values) for values in method.values]
        sums = np.zeros((len(self._recorded), len(scores), 10), dtype=np.int64)
        for place, traces in enumerate(self._recorded):
            for index, (trace, max_length) in enumerate(traces):
                chosen = self._chosen(index, trace, max_length, scores, method.stop)
                for number, (step, rank) in enumerate(chosen):
                    text = self._cache.text(trace.hypothesis(step, rank, 0.0).tokens)
                    sums[place, number] += self._cache.row(index, text)
        return tuple(
            fmean(bleu_of(sums[place, number]) for place in range(len(sums))) for number in range(len(scores))
        )

    def _chosen(
        self, index: int, trace: Trace, max_length: int, scores: Sequence[Rescorer], stop: str
    ) -> list[tuple[int, int]]:
        """Step index and rank of what each score chooses for a sentence."""
        steps, ranks = trace.finished
        lengths = steps + 1
        expected = self._test_set.expected_lengths[index]
        source = Source.repeated(1, trace.source_length, max_length, len(trace.prefix), expected)
        sums = np.broadcast_to(trace.reward_sums, (len(lengths), len(trace.reward_sums)))
        paths = Paths(trace.finished_sums, lengths, Rewards(sums, lengths), trace.finished_coverage)
        chosen = []
        for score in scores:
            last = min(max_length, trace.steps)
            # What `optimal` returns is the best of all that finish, so it need not be asked where it stops.
            if stop != OPTIMAL:
                last = ScoredTrace(trace, score, 1, expected, max_length).stop_step(RULES.parse(stop))
            seen = int(trace.finished_counts[last - 1])
            if seen:
                best = int(score.score(source, paths)[:seen].argmax())
                chosen.append((int(steps[best]), int(ranks[best])))
            else:
                chosen.append(_truncated(trace, last))
        return chosen

    def _perceptron(self, method: StudyMethod, plan: PerceptronPlan) -> float:
        """`r ← r + η (|y*| − |y|)`, averaged over the sentences of a round (Murray and Chiang 2018)."""
        reward = 0.0
        wanted = self._test_set.reference_lengths.mean(axis=1)
        for _ in range(plan.rounds):
            score = method.rescorer((reward,))
            given = [
                self._chosen(index, trace, max_length, [score], method.stop)[0][0] + 1
                for traces in self._recorded
                for index, (trace, max_length) in enumerate(traces)
            ]
            shortfall = float(np.mean(np.tile(wanted, len(self._recorded)) - np.array(given)))
            reward = float(np.clip(reward + plan.rate * shortfall, -10.0, 10.0))
        return reward


def _truncated(trace: Trace, last: int) -> tuple[int, int]:
    """Where nothing has finished: the best prefix of the last step that left any."""
    step = int(np.flatnonzero(trace.live_counts[:last])[-1])
    return step, int(np.flatnonzero(trace.is_live[step])[0])
