"""What a study has found: everything that its tables, figures and page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from uncurse.arrays import Ints
from uncurse.evaluation.bootstrap import Difference, paired_bootstrap
from uncurse.rescoring import Rescorer
from uncurse.study.judged import Judged
from uncurse.study.measures import Measures
from uncurse.study.methods import scores_of
from uncurse.study.opened import Study
from uncurse.study.tuning import Curve, Tuning

GROUPS: Final = ("small", "large")


@final
@dataclass(frozen=True)
class GridCell:
    """One score with one stopping rule."""

    score: str
    stop: str
    measures: Measures
    lost: float  # share of sentences for which something better finished in the recorded search


@final
@dataclass(frozen=True)
class LimitCell:
    """One way under one limit."""

    limit: str
    method: str
    stop: str
    mean_limit: float
    measures: Measures


@final
@dataclass(frozen=True)
class Ends:
    """Where the first, second and third `</s>` come, on average, over sentences that have three at every width."""

    sentences: int
    widths: tuple[int, ...]
    positions: tuple[tuple[float, float, float], ...]  # at each width


@final
@dataclass(frozen=True)
class LengthError:
    """How far expected lengths are from those of the references, in tokens."""

    mean_length: float
    predictor: float | None
    ratio: float
    line: float  # a straight line fitted to dev
    reference: float | None  # from one reference to another
    within: Mapping[str, float]  # share of references that do not exceed each limit


@final
@dataclass(frozen=True, eq=False)
class AtWidth:
    """A test set at one width."""

    judged: Mapping[str, Judged]  # by method
    measures: Mapping[str, Measures]  # by method
    exhaustive_rows: float  # of the recorded search, for a sentence
    ends: Ints  # [sentences, 3] steps of the first </s>; 0 where there are fewer
    missed: Mapping[str, tuple[int, int]]  # by score: optima that did not finish here, of so many known


@final
@dataclass(frozen=True, eq=False)
class Findings:
    """What was found."""

    study: Study
    tuning: Mapping[str, Tuning]  # by group
    hindsight: Mapping[str, Mapping[str, Curve]]  # by group and score: the same numbers on test
    at: Mapping[str, Mapping[int, AtWidth]]  # by set and width
    ends: Mapping[str, Ends]  # by set
    grid: tuple[GridCell, ...]  # on test, at the width of focus
    limits: tuple[LimitCell, ...]  # on dev
    lengths: Mapping[str, LengthError]  # by set
    true_lengths: Mapping[str, Mapping[str, Measures]]  # by set and method, as if lengths were known; at the focus
    systems: Mapping[str, Mapping[str, Ints]]  # BLEU's statistics of outside systems, by name and set

    def widths(self, group: str) -> tuple[int, ...]:
        """The widths of a group."""
        return self.study.plan.small if group == "small" else self.study.plan.large

    def scores(self, group: str) -> Mapping[str, Rescorer]:
        """The score of each method for a group of widths."""
        return scores_of(self.tuning[group].tuned, self.study.ratio)

    def statistics(self, name: str, method: str, widths: Sequence[int]) -> list[Ints]:
        """BLEU's statistics of a method at some widths."""
        return [self.at[name][width].judged[method].statistics for width in widths]

    def missed(self, name: str, widths: Sequence[int]) -> dict[str, dict[int, tuple[int, int]]]:
        """By score and width: true optima that did not finish, of so many known."""
        scores = self.at[name][widths[0]].missed
        return {score: {width: self.at[name][width].missed[score] for width in widths} for score in scores}

    @cached_property
    def rows_recorded(self) -> float:
        """How many prefixes the model was run on for the recorded searches of both sets."""
        return sum(
            at.exhaustive_rows * len(self.study.materials[name].lines)
            for name, widths in self.at.items()
            for at in widths.values()
        )

    @cached_property
    def rows_one_by_one(self) -> float:
        """How many it would have taken to decode every method at every width in a search of its own."""
        return sum(
            found.rows * len(self.study.materials[name].lines)
            for name, widths in self.at.items()
            for at in widths.values()
            for found in at.measures.values()
        )

    def difference(
        self, name: str, first: tuple[str, Sequence[int]], second: tuple[str, Sequence[int]]
    ) -> Difference:
        """The second method and widths against the first, on one set."""
        return paired_bootstrap(self.statistics(name, *first), self.statistics(name, *second))
