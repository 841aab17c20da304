"""Judging a study from its traces: tune on dev, then judge both sets by every method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import final

import numpy as np

from uncurse.arrays import Ints
from uncurse.scoring.rescorer import Rescorer
from uncurse.search.forced_decoding import ScoredTarget
from uncurse.search.judge import judge
from uncurse.search.trace import Trace
from uncurse.study.describe import (
    candidates_of,
    eos_positions,
    first_eos_steps,
    length_errors,
    system_statistics,
)
from uncurse.study.findings import AtBeamSize, Findings, MaxLengthCell, MissedOptima, StopCell
from uncurse.study.gains import GainBin, gains_over_norm
from uncurse.study.measures import Measures, measures_of
from uncurse.study.methods import EXHAUSTIVE, HORIZON, OPTIMAL, StudyMethod
from uncurse.study.outputs import TIE, BleuCache, judge_set
from uncurse.study.plan import GROUPS
from uncurse.study.study import Study
from uncurse.study.test_set import SETS, TestSet
from uncurse.study.tuning import Tuner, Tuning, TuningCurve


def evaluate(study: Study, report: Callable[[str], None]) -> Findings:
    """Everything that is shown; `report` is told what is being done."""
    study.check_complete()
    judging = _Evaluation(study, report)
    at = {name: {size: judging.at(name, size) for size in study.plan.all_beam_sizes} for name in SETS}
    shown = study.traces.load(study.recording("test", study.plan.display_beam_size))
    return Findings(
        study=study,
        tuning=judging.tuning,
        oracle_tuning=judging.oracle_tuning(),
        at=at,
        eos_positions={
            name: eos_positions({size: each.eos_steps for size, each in found.items()})
            for name, found in at.items()
        },
        stop_cells=judging.stop_cells(),
        max_length_cells=judging.max_length_cells(),
        length_errors={name: length_errors(study, study.test_sets[name]) for name in SETS},
        true_lengths={name: judging.true_lengths(name) for name in SETS},
        systems=system_statistics(study, judging.caches),
        sentences=candidates_of(study.test_sets["test"], shown, study.translator.decode),
        gains={name: _gains(study, name, at[name]) for name in SETS} if study.knows_length else {},
    )


@final
class _Evaluation:
    """What the parts of an evaluation share."""

    def __init__(self, study: Study, report: Callable[[str], None]) -> None:
        self._study = study
        self._report = report
        decode, lowercase = study.translator.decode, study.plan.lowercase
        self.caches = {name: BleuCache(study.test_sets[name], decode, lowercase) for name in SETS}
        self._references: dict[str, list[list[ScoredTarget]]] = {
            name: study.reference_scores.references(study.test_sets[name]) for name in SETS
        }

    @cached_property
    def tuning(self) -> dict[str, Tuning]:
        """What dev says about the parameters of the scores, for each group of beam sizes."""
        found = {}
        for group in GROUPS:
            self._report(f"tuning for {group} beams")
            found[group] = self._tuner("dev", group).tune(self._study.methods, self._study.plan.perceptron)
        return found

    def oracle_tuning(self) -> dict[str, dict[str, TuningCurve]]:
        """What the same values give on test; nothing is chosen from it."""
        found = {}
        for group in GROUPS:
            self._report(f"trying the parameters of {group} beams on test")
            found[group] = self._tuner("test", group).curves(self._study.methods)
        return found

    def at(self, name: str, beam_size: int) -> AtBeamSize:
        """A test set at one beam size."""
        self._report(f"judging {name} at beam size {beam_size}")
        study, test_set = self._study, self._study.test_sets[name]
        traces = study.traces.load(study.recording(name, beam_size))
        grouped = beam_size in (*study.plan.small, *study.plan.large)
        methods = (*study.methods, *(study.horizon_methods if grouped else ()))
        decodings = [study.decoding(beam_size, self._score(each, beam_size), each.stop) for each in methods]
        found = judge_set(test_set, traces, decodings, self.caches[name], self._references[name])
        outputs = {method.name: each for method, each in zip(methods, found, strict=True)}
        exhaustive = _exhaustive_steps(traces, test_set.judged_max_lengths(traces))
        rows = (
            int(trace.rows_before[steps - 1]) for trace, steps in zip(traces, exhaustive.tolist(), strict=True)
        )
        return AtBeamSize(
            outputs=outputs,
            measures={method: measures_of(each, exhaustive) for method, each in outputs.items()},
            recorded_rows=fmean(rows),
            eos_steps=first_eos_steps(traces, test_set.judged_max_lengths(traces)),
            paper_statistics=self._paper_statistics(name, beam_size, traces),
            missed={
                spec: self._missed(spec, score, traces, test_set)
                for spec, score in study.reference_scores.exact_scores.items()
            },
        )

    def _paper_statistics(self, name: str, beam_size: int, traces: Sequence[Trace]) -> dict[str, Ints]:
        """BLEU's statistics of every method with R = ⌈L⌉."""
        study, plan = self._study, self._study.plan
        if not study.knows_length or beam_size not in (*plan.small, *plan.large, plan.baseline_beam_size):
            return {}
        test_set = study.test_sets[name]
        decodings = [study.decoding(beam_size, self._score(each, beam_size), each.stop) for each in study.methods]
        found = judge_set(
            test_set, traces, decodings, self.caches[name], self._references[name],
            test_set.paper_max_lengths(traces),
        )  # fmt: skip
        return {method.name: each.statistics for method, each in zip(study.methods, found, strict=True)}

    def stop_cells(self) -> tuple[StopCell, ...]:
        """Every score with every stopping rule, on test at the beam size of display."""
        self._report("comparing stopping rules")
        study, test_set = self._study, self._study.test_sets["test"]
        size = study.plan.display_beam_size
        traces = study.traces.load(study.recording("test", size))
        scores = {method.name: self._score(method, size) for method in study.methods if method.usual}
        pairs = [(name, spec) for name in scores for spec in study.rules]
        decodings = [study.decoding(size, scores[name], study.rules[spec]) for name, spec in pairs]
        decodings += [study.decoding(size, score, EXHAUSTIVE) for score in scores.values()]
        found = judge_set(test_set, traces, decodings, self.caches["test"], self._references["test"])
        optimum = {name: each.scores for name, each in zip(scores, found[len(pairs) :], strict=True)}
        exhaustive = _exhaustive_steps(traces, test_set.judged_max_lengths(traces))
        return tuple(
            StopCell(name, spec, measures_of(each, exhaustive), float((each.scores < optimum[name]).mean()))
            for (name, spec), each in zip(pairs, found, strict=False)
        )

    def max_length_cells(self) -> tuple[MaxLengthCell, ...]:
        """Every maximum length, with the derived bound and with the paper's shortcut, on dev."""
        if not self._study.compares_max_lengths:
            return ()
        self._report("comparing maximum lengths")
        study, test_set = self._study, self._study.test_sets["dev"]
        size, traces = study.comparison_beam_size, study.traces.load(study.long_recording)
        methods = [method for method in study.methods if method.stop == OPTIMAL]
        pairs = [(method, OPTIMAL) for method in methods]
        pairs += [(method, HORIZON) for method in methods if method.reads_length]
        decodings = [study.decoding(size, self._score(method, size), stop) for method, stop in pairs]
        cells = []
        for name in study.plan.max_lengths:
            most = test_set.judged_max_lengths(traces, test_set.max_lengths[name])
            found = judge_set(test_set, traces, decodings, self.caches["dev"], self._references["dev"], most)
            exhaustive = _exhaustive_steps(traces, most)
            cells += [
                MaxLengthCell(
                    max_length=name,
                    mean_max_length=fmean(most),
                    method=method.name,
                    stop=stop,
                    measures=measures_of(each, exhaustive),
                )
                for (method, stop), each in zip(pairs, found, strict=True)
            ]
        return tuple(cells)

    def true_lengths(self, name: str) -> dict[str, Measures]:
        """What methods do that read an expected length, with the mean length of the references in its place."""
        self._report(f"judging {name} as if lengths were known")
        study, test_set = self._study, self._study.test_sets[name]
        size = study.plan.display_beam_size
        traces = study.traces.load(study.recording(name, size))
        methods = [method for method in study.methods if method.reads_length]
        decodings = [study.decoding(size, self._score(method, size), method.stop) for method in methods]
        found = judge_set(
            test_set, traces, decodings, self.caches[name], self._references[name],
            expected_lengths=test_set.reference_lengths.mean(axis=1).tolist(),
        )  # fmt: skip
        exhaustive = _exhaustive_steps(traces, test_set.judged_max_lengths(traces))
        return {method.name: measures_of(each, exhaustive) for method, each in zip(methods, found, strict=True)}

    def _score(self, method: StudyMethod, beam_size: int) -> Rescorer:
        """The score of a method with the values that dev has chosen for beams of this size."""
        return self.tuning[self._study.plan.group_of(beam_size)].scores[method.tuned_as]

    def _tuner(self, name: str, group: str) -> Tuner:
        study = self._study
        sizes = study.plan.beam_sizes_of(group)
        recorded = [study.traces.load(study.recording(name, size)) for size in sizes]
        return Tuner(study.test_sets[name], recorded, self.caches[name])

    def _missed(self, spec: str, score: Rescorer, traces: Sequence[Trace], test_set: TestSet) -> MissedOptima:
        """For how many sentences whose true optimum is known the recorded search did not find it."""
        judged = test_set.judged_max_lengths(traces)
        missed = known = 0
        for index, optima in self._study.reference_scores.optima(test_set).items():
            sentence, trace = test_set.sentences[index], traces[index]
            # A sentence that is searched again has another optimum.
            if spec not in optima or optima[spec].gap > 0 or judged[index] != sentence.max_length:
                continue
            known += 1
            (found,) = judge(
                trace,
                [self._study.decoding(trace.beam_size, score, EXHAUSTIVE)],
                expected_length=sentence.expected_length,
                max_length=sentence.max_length,
            )
            missed += not found.finished or found.hypotheses[0].score < optima[spec].score - TIE
        return MissedOptima(missed, known)


def _gains(study: Study, name: str, at: Mapping[int, AtBeamSize]) -> tuple[GainBin, ...]:
    """What every method gains over length norm, by how short its outputs are."""
    outputs = at[study.plan.display_beam_size].outputs
    chosen = {method.name: outputs[method.name] for method in study.methods}
    return gains_over_norm(chosen, study.test_sets[name].expected_lengths)


def _exhaustive_steps(traces: Sequence[Trace], max_lengths: Sequence[int]) -> Ints:
    """How far an exhaustive search of each sentence goes, [sentences]."""
    return np.minimum([trace.steps for trace in traces], max_lengths)
