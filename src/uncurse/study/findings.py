"""What a study has found: everything that its tables, figures and page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from uncurse.arrays import Ints
from uncurse.evaluation.bootstrap import Difference, paired_bootstrap
from uncurse.scoring.rescorer import Rescorer
from uncurse.study.gains import GainBin
from uncurse.study.measures import Decile, Measures, deciles_of
from uncurse.study.methods import StudyMethod
from uncurse.study.outputs import Outputs
from uncurse.study.study import Study
from uncurse.study.tuning import Tuning, TuningCurve


@final
@dataclass(frozen=True)
class StopCell:
    """One score with one stopping rule."""

    method: str
    stop: str
    measures: Measures
    lost: float  # share of sentences for which something better finished in the recorded search


@final
@dataclass(frozen=True)
class MaxLengthCell:
    """One score with one stopping rule under one maximum length."""

    max_length: str
    mean_max_length: float
    method: str
    stop: str
    measures: Measures


@final
@dataclass(frozen=True)
class EosPositions:
    """Mean steps of the first, second and third `</s>`, over sentences that have three at every beam size."""

    sentences: int
    beam_sizes: tuple[int, ...]
    positions: tuple[tuple[float, float, float], ...]  # at each beam size


@final
@dataclass(frozen=True)
class LengthErrors:
    """How far expected lengths are from those of the references, in tokens."""

    mean_length: float
    predictor: float | None
    fixed_ratio: float
    line: float  # a straight line fitted to dev
    reference: float | None  # from one reference to another
    within: Mapping[str, float]  # share of references that do not exceed each maximum length


@final
@dataclass(frozen=True)
class MissedOptima:
    """How many true optima did not finish in a recorded search, of so many that are known."""

    missed: int
    known: int


@final
@dataclass(frozen=True)
class FinishedText:
    """A finished candidate of a sentence with its text."""

    text: str
    length: int
    log_prob: float


@final
@dataclass(frozen=True)
class SentenceCandidates:
    """What finished for a sentence in the recorded search, the likeliest first."""

    max_length: int
    points: tuple[tuple[int, float], ...]  # length and log-probability
    texts: tuple[FinishedText, ...]  # of fewer


@final
@dataclass(frozen=True, eq=False)
class AtBeamSize:
    """A test set at one beam size."""

    outputs: Mapping[str, Outputs]  # by method
    measures: Mapping[str, Measures]  # by method
    recorded_rows: float  # of the recorded search, for a sentence
    eos_steps: Ints  # [sentences, 3] steps of the first </s>; 0 where there are fewer
    missed: Mapping[str, MissedOptima]  # by the spec of a score
    paper_statistics: Mapping[str, Ints]  # by method: BLEU's with R = ⌈L⌉; only where the main tables look


@final
@dataclass(frozen=True, eq=False)
class Findings:
    """What was found."""

    study: Study
    tuning: Mapping[str, Tuning]  # by group
    oracle_tuning: Mapping[str, Mapping[str, TuningCurve]]  # by group and method: the same values on test
    at: Mapping[str, Mapping[int, AtBeamSize]]  # by set and beam size
    eos_positions: Mapping[str, EosPositions]  # by set
    stop_cells: tuple[StopCell, ...]  # on test, at the beam size of display
    max_length_cells: tuple[MaxLengthCell, ...]  # on dev
    length_errors: Mapping[str, LengthErrors]  # by set
    true_lengths: Mapping[str, Mapping[str, Measures]]  # by set and method, as if lengths were known; as displayed
    systems: Mapping[str, Mapping[str, Ints]]  # BLEU's statistics of other systems, by name and set
    sentences: tuple[SentenceCandidates, ...]  # of test, at the beam size of display
    gains: Mapping[str, tuple[GainBin, ...]]  # by set, at the beam size of display

    @property
    def methods(self) -> tuple[StudyMethod, ...]:
        """The methods, in the order of the tables."""
        return self.study.methods

    def label(self, method: str) -> str:
        """What a method is called."""
        return next(each.label for each in self.methods if each.name == method)

    def score(self, method: StudyMethod, group: str) -> Rescorer:
        """The score of a method with the values that dev has chosen for a group of beam sizes."""
        return self.tuning[group].scores[method.tuned_as]

    def displayed(self, method: StudyMethod, name: str = "test") -> Outputs:
        """The outputs of a method at the beam size at which sentences are shown."""
        return self.at[name][self.study.plan.display_beam_size].outputs[method.name]

    def deciles(self, method: StudyMethod) -> list[Decile]:
        """A method from the shortest to the longest tenth of test."""
        return deciles_of(self.displayed(method).statistics, self.study.test_sets["test"].source_lengths)

    def statistics(self, name: str, method: str, beam_sizes: Sequence[int]) -> list[Ints]:
        """BLEU's statistics of a method at some beam sizes."""
        return [self.at[name][beam_size].outputs[method].statistics for beam_size in beam_sizes]

    def paper_statistics(self, name: str, method: str, beam_sizes: Sequence[int]) -> list[Ints]:
        """The same in the paper's own setting, R = ⌈L⌉."""
        return [self.at[name][beam_size].paper_statistics[method] for beam_size in beam_sizes]

    @property
    def widening(self) -> tuple[int, int] | None:
        """A usual and the largest beam size, or the smallest and the largest; None if there is only one."""
        plan = self.study.plan
        first, last = plan.baseline_beam_size, plan.all_beam_sizes[-1]
        first = first if first < last else plan.all_beam_sizes[0]
        return (first, last) if first < last else None

    def difference(
        self, name: str, first: tuple[str, Sequence[int]], second: tuple[str, Sequence[int]]
    ) -> Difference:
        """The second method and beam sizes against the first, on one set."""
        return paired_bootstrap(self.statistics(name, *first), self.statistics(name, *second))

    @cached_property
    def rows_recorded(self) -> float:
        """How many prefixes the model was run on for the recorded searches of both sets."""
        return sum(
            at.recorded_rows * len(self.study.test_sets[name].lines)
            for name, beam_sizes in self.at.items()
            for at in beam_sizes.values()
        )

    @cached_property
    def rows_one_by_one(self) -> float:
        """How many it would have taken to decode every method at every beam size in a search of its own."""
        return sum(
            at.measures[method.name].model_rows * len(self.study.test_sets[name].lines)
            for name, beam_sizes in self.at.items()
            for at in beam_sizes.values()
            for method in self.methods
        )
