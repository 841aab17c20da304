"""Judging a study from its traces: tune on dev, then look at both sets in every way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import Final, final

import numpy as np

from uncurse.arrays import Ints
from uncurse.forced import Forced
from uncurse.judging import judge_all
from uncurse.rescoring import SCORES, Rescorer, needs
from uncurse.stopping import RULES, Exhaustive, Optimal, PredictedHorizon
from uncurse.study.findings import GROUPS, AtWidth, Ends, Findings, GridCell, LengthError, LimitCell
from uncurse.study.judged import TIE, Meter, judge_set
from uncurse.study.material import Material, sample
from uncurse.study.measures import Measures, measures_of
from uncurse.study.methods import HORIZON, METHODS, Method, Way, scores_of
from uncurse.study.opened import SETS, Study
from uncurse.study.probes import EXACT_SCORES
from uncurse.study.tuning import Curve, Tuner, Tuning
from uncurse.text.lines import read_lines
from uncurse.trace import Trace

ENDS_FROM: Final = 3  # narrower beams seldom finish three hypotheses


def evaluate(study: Study, report: Callable[[str], None]) -> Findings:
    """Everything that is shown; `report` is told what is being done."""
    study.check_complete()
    bench = _Bench(study, report)
    at = {name: {width: bench.at(name, width) for width in study.plan.all_widths} for name in SETS}
    return Findings(
        study,
        bench.tuning,
        bench.hindsight(),
        at,
        {name: _ends(found) for name, found in at.items()},
        bench.grid(),
        bench.limits(),
        {name: _length_error(study, study.materials[name]) for name in SETS},
        {name: bench.true_lengths(name) for name in SETS},
        bench.systems(),
    )


@final
class _Bench:
    """What the parts of a judgement share."""

    def __init__(self, study: Study, report: Callable[[str], None]) -> None:
        self._study = study
        self._report = report
        text, lowercase = study.translator.text, study.plan.lowercase
        self._meters = {name: Meter(study.materials[name], text, lowercase) for name in SETS}
        self._forced: dict[str, list[list[Forced]]] = {
            name: study.probes.references(study.materials[name]) for name in SETS
        }

    @cached_property
    def tuning(self) -> dict[str, Tuning]:
        """What dev says about the numbers of the scores, for each group of widths."""
        found = {}
        for group in GROUPS:
            self._report(f"tuning for {group} beams")
            found[group] = self._tuner("dev", group).tune(self._study.plan.tuning, self._study.ratio)
        return found

    def hindsight(self) -> dict[str, dict[str, Curve]]:
        """What the same numbers give on test; nothing is chosen from it."""
        found = {}
        for group in GROUPS:
            self._report(f"looking back at the numbers of {group} beams")
            found[group] = self._tuner("test", group).curves(self._study.plan.tuning, self._study.ratio)
        return found

    def at(self, name: str, width: int) -> AtWidth:
        """A test set at one width."""
        self._report(f"judging {name} at width {width}")
        material = self._study.materials[name]
        traces = self._study.store.load(self._study.recording(name, width))
        scores = self._scores(width)
        chosen = self._methods(width)
        ways = [Way(scores[method.name], method.stop) for method in chosen]
        found = judge_set(material, traces, ways, self._meters[name], self._forced[name])
        judged = {method.name: each for method, each in zip(chosen, found, strict=True)}
        exhaustive = _steps(traces, material)
        return AtWidth(
            judged,
            {method: measures_of(each, exhaustive) for method, each in judged.items()},
            fmean(
                1 + int(trace.live_counts[: steps - 1].sum())
                for trace, steps in zip(traces, exhaustive.tolist(), strict=True)
            ),
            np.stack(
                [
                    _first_ends(trace, limit)
                    for trace, limit in zip(traces, material.limits_in(traces), strict=True)
                ]
            ),
            {score: self._missed(score, traces, material) for score in EXACT_SCORES},
        )

    def grid(self) -> tuple[GridCell, ...]:
        """Every score with every stopping rule, on test at the width of focus."""
        self._report("comparing stopping rules")
        plan, material = self._study.plan, self._study.materials["test"]
        traces = self._study.store.load(self._study.recording("test", plan.focus))
        scores = {
            method.name: score
            for method in METHODS
            if method in self._methods(plan.focus)
            and method.name != "length-norm-optimal"
            and SCORES.name(score := self._scores(plan.focus)[method.name]) in plan.scores
        }
        rules = [RULES[name].method() for name in plan.stops]
        pairs = [
            (name, rule)
            for name in scores
            for rule in rules
            if self._study.opened.predictor is not None or not rule.needs_prediction
        ]
        ways = [Way(scores[name], rule) for name, rule in pairs]
        best = [Way(score, Exhaustive()) for score in scores.values()]
        found = judge_set(material, traces, [*ways, *best], self._meters["test"], self._forced["test"])
        optimum = {name: each.scores for name, each in zip(scores, found[len(ways) :], strict=True)}
        exhaustive = _steps(traces, material)
        return tuple(
            GridCell(
                name,
                RULES.name(rule),
                measures_of(each, exhaustive),
                float((each.scores < optimum[name]).mean()),
            )
            for (name, rule), each in zip(pairs, found, strict=False)
        )

    def limits(self) -> tuple[LimitCell, ...]:
        """Every limit, with the derived bound and with the paper's shortcut, on dev."""
        if not self._study.compares_limits:
            return ()
        self._report("comparing limits")
        study, material = self._study, self._study.materials["dev"]
        traces = study.store.load(study.limits_recording)
        scores = self._scores(study.limits_width)
        methods = [method for method in self._methods(study.limits_width) if method.stop == Optimal()]
        cells = []
        for limit in study.plan.limits:
            most = material.limits[limit]
            pairs = [(method, method.stop) for method in methods]
            pairs += [(method, PredictedHorizon()) for method in methods if method.predicts]
            ways = [Way(scores[method.name], rule) for method, rule in pairs]
            found = judge_set(material, traces, ways, self._meters["dev"], self._forced["dev"], most)
            exhaustive = _steps(traces, material, most)
            mean = fmean(material.limits_in(traces, most))
            cells += [
                LimitCell(limit, method.name, RULES.name(rule), mean, measures_of(each, exhaustive))
                for (method, rule), each in zip(pairs, found, strict=True)
            ]
        return tuple(cells)

    def true_lengths(self, name: str) -> dict[str, Measures]:
        """What the predicted length does where it is read, with the mean length of the references in its place."""
        self._report(f"judging {name} as if lengths were known")
        width, material = self._study.plan.focus, self._study.materials[name]
        traces = self._study.store.load(self._study.recording(name, width))
        scores = self._scores(width)
        methods = [method for method in METHODS if method.predicts and method in self._methods(width)]
        ways = [Way(scores[method.name], method.stop) for method in methods]
        found = judge_set(
            material, traces, ways, self._meters[name], self._forced[name],
            lengths=material.reference_lengths.mean(axis=1).tolist(),
        )  # fmt: skip
        exhaustive = _steps(traces, material)
        return {method.name: measures_of(each, exhaustive) for method, each in zip(methods, found, strict=True)}

    def systems(self) -> dict[str, dict[str, Ints]]:
        """The translations that something else has made."""
        found: dict[str, dict[str, Ints]] = {}
        for name, files in self._study.systems().items():
            found[name] = {}
            for each in SETS:
                lines = read_lines(files[each])
                wanted = self._study.set_plan(each)
                total = len(read_lines(self._study.data / wanted.source))
                if len(lines) != total:
                    raise ValueError(f"{files[each]} has {len(lines)} lines and {wanted.source} has {total}")
                found[name][each] = self._meters[each].statistics(sample(lines, wanted.lines))
        return found

    def _scores(self, width: int) -> Mapping[str, Rescorer]:
        return scores_of(self.tuning[self._study.plan.group(width)].tuned, self._study.ratio)

    def _tuner(self, name: str, group: str) -> Tuner:
        widths = self._study.plan.small if group == "small" else self._study.plan.large
        recorded = [self._study.store.load(self._study.recording(name, width)) for width in widths]
        return Tuner(self._study.materials[name], recorded, self._meters[name])

    def _methods(self, width: int) -> list[Method]:
        """The methods that the plan names and the model can be judged by."""
        plan = self._study.plan
        grouped = width in (*plan.small, *plan.large)
        scores = self._scores(width)
        return [
            method
            for method in (*METHODS, *(HORIZON if grouped else ()))
            if SCORES.name(scores[method.name]) in plan.scores
            and (self._study.opened.predictor is not None or not needs(scores[method.name]).prediction)
            and (self._study.opened.predictor is not None or not method.stop.needs_prediction)
        ]

    def _missed(self, score: str, traces: Sequence[Trace], material: Material) -> tuple[int, int]:
        """For how many sentences whose true optimum is known the recorded search did not find it."""
        rescorer = SCORES.parse(score)
        limits = material.limits_in(traces)
        missed = known = 0
        for index, optima in self._study.probes.optima(material).items():
            best, gap = optima.get(score, (0.0, 1.0))
            sentence = material.sentences[index]
            if gap > 0 or (needs(rescorer).prediction and sentence.predicted is None):
                continue
            if limits[index] != sentence.limit:  # it is searched for again, and that has another optimum
                continue
            known += 1
            way = [(rescorer, Exhaustive())]
            found = judge_all(traces[index], way, length=sentence.predicted, limit=sentence.limit)[0]
            missed += not found.finished or found.hypotheses[0].score < best - TIE
        return missed, known


def _steps(traces: Sequence[Trace], material: Material, limits: Sequence[int] | None = None) -> Ints:
    """How far an exhaustive search of each sentence goes, [sentences]."""
    return np.minimum([trace.steps for trace in traces], material.limits_in(traces, limits))


def _first_ends(trace: Trace, limit: int) -> Ints:
    """The steps of the first three `</s>` within a limit, 0 where there are fewer, [3]."""
    steps: Ints = np.zeros(3, dtype=np.int64)
    found = trace.finished[0][:3] + 1
    found = found[found <= limit]
    steps[: len(found)] = found
    return steps


def _ends(at: Mapping[int, AtWidth]) -> Ends:
    widths = [width for width in at if width >= ENDS_FROM]
    if not widths:
        return Ends(0, (), ())
    steps = np.stack([at[width].ends for width in widths])  # [widths, sentences, 3]
    everywhere = (steps > 0).all(axis=(0, 2))
    means = steps[:, everywhere].mean(axis=1) if everywhere.any() else np.zeros((len(widths), 3))
    positions = tuple((float(first), float(second), float(third)) for first, second, third in means)
    return Ends(int(everywhere.sum()), tuple(widths), positions)


def _length_error(study: Study, material: Material) -> LengthError:
    """The mean over all references."""
    dev = study.materials["dev"]
    slope, offset = np.polyfit(dev.source_lengths, dev.reference_lengths.mean(axis=1), 1)
    lengths, sources = material.reference_lengths, material.source_lengths

    def error(expected: Ints | list[float] | np.ndarray) -> float:
        return float(np.abs(np.asarray(expected)[:, None] - lengths).mean())

    predicted = [each for each in material.predicted if each is not None]
    others = tuple(combinations(lengths.T, 2))
    return LengthError(
        float(lengths.mean()),
        error(predicted) if predicted else None,
        error(study.ratio * sources),
        error(slope * sources + offset),
        float(fmean(np.abs(one - other).mean() for one, other in others)) if others else None,
        {name: float((lengths <= np.array(limits)[:, None]).mean()) for name, limits in material.limits.items()},
    )
