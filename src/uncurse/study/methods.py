"""The methods that a study compares: a row of its tables for every registered score and usual stopping rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from itertools import product
from typing import Final, final

from uncurse.errors import UncurseError, nearest
from uncurse.scoring.needs import needs
from uncurse.scoring.registry import Entry, parameters_of
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.scores import SCORES

RAW: Final = "log-prob"  # the score with the curse
NORM: Final = "length-norm"  # what toolkits do about it: the score that the others are compared with
OPTIMAL: Final = "optimal"
EXHAUSTIVE: Final = "exhaustive"
HORIZON: Final = "predicted-horizon"  # the rule of the paper's own runs
RATIO: Final = (
    "ratio"  # a score with such a parameter can take a fixed length ratio in place of an expected length
)
REWARD: Final = "reward"  # a parameter of this name can be found by the perceptron, too

Grids = Mapping[str, Mapping[str, tuple[float, ...]]]  # by score and parameter: the values to try


@final
@dataclass(frozen=True)
class StudyMethod:
    """A score with a stopping rule, and the values of its parameters among which the dev set chooses."""

    name: str
    label: str
    score: str  # its registered name
    stop: str  # a spec
    given: tuple[tuple[str, float], ...]  # parameters that are fixed
    tuned: tuple[str, ...]  # parameters that are chosen on dev
    values: tuple[tuple[float, ...], ...]  # of those, every combination that is tried
    tuned_as: str  # the method that they are chosen for: this one, or the same with another stopping rule
    usual: bool  # whether this is the score's usual stopping rule
    place: int  # in the list of all methods; it decides colour and mark

    def rescorer(self, values: Sequence[float]) -> Rescorer:
        """The score with these values of its tuned parameters."""
        return SCORES[self.score].method(**dict(self.given), **dict(zip(self.tuned, values, strict=True)))

    @property
    def reads_length(self) -> bool:
        """Whether the score reads an expected length."""
        return needs(self.rescorer(self.values[0])).expected_length

    @property
    def aims_at_length(self) -> bool:
        """Whether the score knows how long an output should be, if only by a fixed ratio."""
        return self.reads_length or RATIO in dict(self.given)

    def with_stop(self, stop: str) -> StudyMethod:
        """The same score, tuned as it was, with another stopping rule."""
        return replace(self, name=f"{self.name}-{stop}", stop=stop)


def study_methods(
    scores: Sequence[str], grids: Grids, *, length_ratio: float, knows_length: bool, attends: bool
) -> tuple[StudyMethod, ...]:
    """A method for each usual stopping rule of each score; without `scores`, of every registered score.

    Scores are names or specs; what a spec gives is not tuned. The raw score and length norm are always there: the
    others are compared with them. A score that needs an expected length or attention which the model does not have
    is left out, unless it is asked for: then it is an error.
    """
    _check_grids(scores, grids)
    every = [each.name for entry in SCORES.values() for each in _rows(entry, {}, {}, length_ratio)]
    found: dict[str, StudyMethod] = {}
    for spec in dict.fromkeys((RAW, NORM, *(scores or SCORES))):
        entry, given = SCORES.read_spec(spec)
        rows = list(_rows(entry, given, grids.get(entry.name, {}), length_ratio))
        able = [row for each in rows if (row := _computable(each, knows_length, attends)).values]
        if not able and (spec in scores or entry.name in grids):
            if not rows:
                SCORES.parse(spec)  # raises an error: a parameter has no value
            raise UncurseError(f"score {spec!r} cannot be judged: the model {_lacks(rows[0], knows_length)}")
        for row in able:
            place = every.index(row.name) if row.name in every else len(every) + len(found)
            found[row.name] = replace(row, place=place)
    return tuple(found.values())


def _rows(
    entry: Entry[Rescorer], given: Mapping[str, float], grids: Mapping[str, tuple[float, ...]], length_ratio: float
) -> Iterator[StudyMethod]:
    """The rows of a score: with a fixed ratio and without where it can take one, and with each of its rules."""
    declared = {field.name: (field, parameter.grid) for field, parameter in parameters_of(entry.method)}
    grid = {name: grids.get(name, own) for name, (_, own) in declared.items() if name not in given}
    tuned = tuple(name for name, values in grid.items() if values)
    if any(field.default is MISSING and name not in {*given, *tuned} for name, (field, _) in declared.items()):
        return  # nobody has said which value it takes
    label = "".join((entry.label, *(f", {name} = {value:g}" for name, value in given.items())))
    name = entry.name + (":" if given else "") + ",".join(f"{key}={value:g}" for key, value in given.items())
    variants: list[tuple[str, str, dict[str, float]]] = [(name, label, {})]
    if RATIO in declared and RATIO not in {*given, *tuned}:
        fixed = f"{name}-fixed-ratio", f"{label}, fixed ratio", {RATIO: length_ratio}
        variants = [fixed, (name, f"{label}, expected length", {})]
    for variant, text, more in variants:
        for turn, stop in enumerate(entry.stops or (OPTIMAL,)):
            unique = f"{variant}-{stop}" if turn else variant
            yield StudyMethod(
                name=unique,
                label=f"{text}, {stop} stopping" if turn else text,
                score=entry.name,
                stop=stop,
                given=tuple({**given, **more}.items()),
                tuned=tuned,
                values=tuple(product(*(grid[each] for each in tuned))),
                tuned_as=unique,
                usual=not turn,
                place=0,
            )


def _computable(row: StudyMethod, knows_length: bool, attends: bool) -> StudyMethod:
    """The same row with the values for which the model has everything that the score reads."""
    wanted = {values: needs(row.rescorer(values)) for values in row.values}
    return replace(
        row,
        values=tuple(
            values
            for values, need in wanted.items()
            if (knows_length or not need.expected_length) and (attends or not need.coverage)
        ),
    )


def _lacks(row: StudyMethod, knows_length: bool) -> str:
    return "has no length predictor" if row.reads_length and not knows_length else "gives no attention"


def _check_grids(scores: Sequence[str], grids: Grids) -> None:
    """Raise an error for a grid that cannot act, or has a value that its parameter does not allow."""
    named = [SCORES.read_spec(spec) for spec in (*scores, RAW, NORM)] if scores else []
    for name, grid in grids.items():
        declared = {field.name: parameter for field, parameter in parameters_of(SCORES[name].method)}
        for parameter, values in grid.items():
            where = f"tuning.{name}.{parameter}"
            if parameter not in declared:
                raise UncurseError(f"{where} is not allowed: no such parameter{nearest(parameter, declared)}")
            for value in values:
                declared[parameter].checked(where, value)
            if named and not any(entry.name == name and parameter not in given for entry, given in named):
                raise UncurseError(f"{where} is not allowed: none of the scores of the plan leaves it open")
