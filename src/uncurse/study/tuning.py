"""Tuning on dev: the number of a score that gives the best BLEU, over a grid or by the perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, final

import numpy as np

from uncurse.evaluation.bootstrap import bleu_of
from uncurse.rescoring import GNMT, BoundedWordReward, Paths, Rescorer, Source, WordReward
from uncurse.stopping import BeamFull
from uncurse.study.judged import Meter
from uncurse.study.material import Material
from uncurse.study.methods import Tuned
from uncurse.study.plan import TuningPlan
from uncurse.trace import Trace

REWARDS: Final = ("word-reward", "bounded-ratio", "bounded")


@final
@dataclass(frozen=True)
class Curve:
    """BLEU of every value that was tried, and where it is highest."""

    name: str
    values: tuple[tuple[float, ...], ...]  # r, or α and β
    bleu: tuple[float, ...]  # mean over the widths of the group

    def at(self, value: tuple[float, ...]) -> float:
        """BLEU of one value."""
        return self.bleu[self.values.index(value)]

    @property
    def best(self) -> tuple[float, ...]:
        """The value with the highest BLEU; the first of equals."""
        return self.values[int(np.argmax(self.bleu))]


@final
@dataclass(frozen=True)
class Tuning:
    """What was found for one group of widths."""

    curves: tuple[Curve, ...]
    perceptron: dict[str, float]  # r by the second way
    tuned: Tuned


@final
class Tuner:
    """The recorded searches of a set at the widths of one group.

    A proof of optimality means that nothing else of the recorded search scores higher, so what `optimal` returns
    is the best of all that finished within the limit; and `beam-full` counts what has finished and reads no score.
    Neither needs a judgement for each value of a grid.
    """

    def __init__(self, material: Material, recorded: Sequence[Sequence[Trace]], meter: Meter) -> None:
        self._material = material
        self._recorded = [list(zip(traces, material.limits_in(traces), strict=True)) for traces in recorded]
        self._meter = meter

    def tune(self, plan: TuningPlan, ratio: float) -> Tuning:
        """Try every value of the plan."""
        curves = self.curves(plan, ratio)
        alpha, beta = curves["gnmt"].best
        word, ratio_bound, bound = (curves[name].best[0] if name in curves else 0.0 for name in REWARDS)
        tuned = Tuned(word, ratio_bound, bound, alpha, beta)
        perceptron = {name: self._perceptron(make, plan) for name, make in self._makers(ratio).items()}
        return Tuning(tuple(curves.values()), perceptron, tuned)

    def curves(self, plan: TuningPlan, ratio: float) -> dict[str, Curve]:
        """What every value of the plan gives, by the name of its score."""
        rewards = tuple((value,) for value in plan.rewards)
        attends = all(trace.coverage is not None for traces in self._recorded for trace, _ in traces)
        betas = plan.betas if attends else (0.0,)
        pairs = tuple((alpha, beta) for alpha in plan.alphas for beta in betas)
        curves = {
            name: Curve(name, rewards, self._bleu([make(value) for (value,) in rewards], first_full=False))
            for name, make in self._makers(ratio).items()
        }
        curves["gnmt"] = Curve("gnmt", pairs, self._bleu([GNMT(*pair) for pair in pairs], first_full=True))
        return curves

    def _makers(self, ratio: float) -> dict[str, Callable[[float], Rescorer]]:
        """The scores that have a reward to be chosen."""
        makers: dict[str, Callable[[float], Rescorer]] = {
            "word-reward": WordReward,
            "bounded-ratio": lambda value: BoundedWordReward(value, ratio),
        }
        if all(predicted is not None for predicted in self._material.predicted):
            makers["bounded"] = BoundedWordReward
        return makers

    def _bleu(self, scores: Sequence[Rescorer], first_full: bool) -> tuple[float, ...]:
        """Mean BLEU over the widths, for each score."""
        sums = np.zeros((len(self._recorded), len(scores), 10), dtype=np.int64)
        for place, traces in enumerate(self._recorded):
            for index, (trace, limit) in enumerate(traces):
                for number, (step, rank) in enumerate(self._chosen(index, trace, limit, scores, first_full)):
                    text = self._meter.text(trace.hypothesis(step, rank, 0.0).tokens)
                    sums[place, number] += self._meter.row(index, text)
        return tuple(
            fmean(bleu_of(sums[place, number]) for place in range(len(sums))) for number in range(len(scores))
        )

    def _chosen(
        self, index: int, trace: Trace, limit: int, scores: Sequence[Rescorer], first_full: bool
    ) -> list[tuple[int, int]]:
        """Step index and rank of what each score chooses for a sentence."""
        steps, ranks = trace.finished
        count = int((steps < limit).sum())
        if first_full:
            full = np.flatnonzero(trace.finished_counts[:limit] >= round(BeamFull().patience * trace.width))
            count = int(trace.finished_counts[full[0]]) if len(full) else count
        if not count:
            return [_cut_off(trace, limit)] * len(scores)
        predicted = self._material.predicted[index]
        source = Source.repeated(1, trace.source_length, limit, len(trace.prefix), predicted)
        coverage = None if trace.finished_coverage is None else trace.finished_coverage[:count]
        paths = Paths(trace.finished_sums[:count], steps[:count] + 1, None, coverage)
        best = [int(score.score(source, paths).argmax()) for score in scores]
        return [(int(steps[each]), int(ranks[each])) for each in best]

    def _perceptron(self, make: Callable[[float], Rescorer], plan: TuningPlan) -> float:
        """`r ← r + η (|y*| − |y|)`, averaged over the sentences of a round (Murray and Chiang 2018)."""
        reward = 0.0
        wanted = self._material.reference_lengths.mean(axis=1)
        for _ in range(plan.perceptron_rounds):
            given = [
                self._chosen(index, trace, limit, [make(reward)], first_full=False)[0][0] + 1
                for traces in self._recorded
                for index, (trace, limit) in enumerate(traces)
            ]
            shortfall = float(np.mean(np.tile(wanted, len(self._recorded)) - np.array(given)))
            reward = float(np.clip(reward + plan.perceptron_rate * shortfall, -10.0, 10.0))
        return reward


def _cut_off(trace: Trace, limit: int) -> tuple[int, int]:
    """Where nothing has finished: the best prefix at the limit."""
    step = int(np.flatnonzero(trace.live_counts[:limit])[-1])
    return step, int(np.flatnonzero(trace.is_live[step])[0])
