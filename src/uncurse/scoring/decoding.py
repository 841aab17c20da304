"""Every choice that changes a translation, as frozen values, and the signature that names them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from numbers import Integral
from typing import Final, final

from uncurse.constraints.constraint import Constraint
from uncurse.errors import UncurseError
from uncurse.scoring.coverage import COVERAGE_FLOOR
from uncurse.scoring.needs import Needs, needs
from uncurse.scoring.registry import Parameter, source_digest
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.scores import SCORES, F1Norm, LengthNorm
from uncurse.scoring.stopping import RULES, StoppingRule

MAX_COUNT: Final = 100_000  # tokens, hypotheses or sentences: more is a mistake, and would fill the memory
DEFAULT_BEAM_SIZE: Final = 20


class Slots(Enum):
    """Whether a continuation that ends takes a slot of the beam."""

    OCCUPY = "occupy"  # a slot of the step at which it ends, none later (OpenNMT-py 2018; Yang et al. 2018)
    REFILL = "refill"  # nothing: b others live on (fairseq, Hugging Face, CTranslate2)

    @staticmethod
    def parse(name: str) -> Slots:
        """The member with this name."""
        if name not in {each.value for each in Slots}:
            raise UncurseError(f"slots = {name!r} is not allowed: it must be 'occupy' or 'refill'")
        return Slots(name)

    def ranks(self, beam_size: int) -> int:
        """How many of a step's best continuations are looked at."""
        return beam_size if self is Slots.OCCUPY else 2 * beam_size


@final
@dataclass(frozen=True)
class Sentence:
    """One source sentence, with its maximum length, its expected length and a target prefix."""

    source: tuple[int, ...]  # pieces without </s>, tags and padding
    max_length: int  # R, the most tokens the search may choose, </s> included
    prefix: tuple[int, ...] = ()  # target tokens that are forced first and count nowhere
    expected_length: float | None = None  # of the whole output, prefix included
    min_length: int = 0  # the fewest tokens the search may choose, </s> included
    constraint: Constraint | None = field(default=None, repr=False)  # which outputs are allowed

    def __post_init__(self) -> None:
        if not isinstance(self.constraint, Constraint | None):
            raise UncurseError(f"constraint = {self.constraint!r} is not allowed: give a Constraint")
        for name, tokens in (("source", self.source), ("prefix", self.prefix)):
            if not isinstance(tokens, tuple) or not all(isinstance(token, Integral) for token in tokens):
                raise UncurseError(f"{name} = {tokens!r} is not allowed: {name} must be a tuple of token ids")
        object.__setattr__(self, "max_length", checked_count("max_length", self.max_length))
        object.__setattr__(self, "min_length", checked_count("min_length", self.min_length, low=0))
        if self.min_length > self.max_length:
            raise UncurseError(f"min_length = {self.min_length} is not allowed: max_length is {self.max_length}")
        if self.expected_length is not None:
            object.__setattr__(self, "expected_length", checked_length("expected_length", self.expected_length))


@final
@dataclass(frozen=True, init=False)
class Decoding:
    """The settings of a search for all its sentences; scores and rules are given by name or as values."""

    beam_size: int
    score: Rescorer | None  # None: F1-Norm where every sentence has an expected length, else length norm
    stop: StoppingRule
    n_best: int
    slots: Slots

    def __init__(
        self,
        beam_size: int = DEFAULT_BEAM_SIZE,
        score: Rescorer | str | None = None,
        stop: StoppingRule | str = "optimal",
        n_best: int = 1,
        slots: Slots | str = "occupy",
    ) -> None:
        """Take scores and rules by name or as values.

        Args:
            beam_size: The number of hypotheses kept at each step.
            score: What finished hypotheses are ranked by: a name such as "gnmt:alpha=0.2,beta=0.2" (`uncurse
                methods` lists them) or a `Rescorer`. By default F1-Norm where every sentence has an expected
                length, else length norm.
            stop: When a search ends: a name such as "beam-full", or a `StoppingRule`.
            n_best: How many hypotheses are returned for each sentence.
            slots: "occupy": a hypothesis that ends takes a place in the beam; "refill": it takes none.
        """
        score = SCORES.parse(score) if isinstance(score, str) else score
        stop = RULES.parse(stop) if isinstance(stop, str) else stop
        slots = Slots.parse(slots) if isinstance(slots, str) else slots
        for name, value, kind in (
            ("score", score, Rescorer | None),
            ("stop", stop, StoppingRule),
            ("slots", slots, Slots),
        ):
            if not isinstance(value, kind):
                raise UncurseError(f"{name} = {value!r} is not allowed: give a name or a {name} of this library")
        object.__setattr__(self, "beam_size", checked_count("beam_size", beam_size))
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "n_best", checked_count("n_best", n_best))
        object.__setattr__(self, "slots", slots)
        if score is not None:
            _method_signature(score, stop)  # what is not registered has no name

    def replace(
        self,
        *,
        beam_size: int | None = None,
        score: Rescorer | str | None = None,
        stop: StoppingRule | str | None = None,
        n_best: int | None = None,
        slots: Slots | str | None = None,
    ) -> Decoding:
        """The same with some choices changed."""
        return Decoding(
            beam_size=self.beam_size if beam_size is None else beam_size,
            score=self.score if score is None else score,
            stop=self.stop if stop is None else stop,
            n_best=self.n_best if n_best is None else n_best,
            slots=self.slots if slots is None else slots,
        )

    def with_score(self, knows_length: bool) -> Decoding:
        """The same with the default score filled in, which depends on whether expected lengths are known."""
        return self if self.score is not None else self.replace(score=default_score(knows_length))

    @property
    def rescorer(self) -> Rescorer:
        """The score, which must have been chosen."""
        if self.score is None:
            raise UncurseError("a score is needed: the default depends on whether expected lengths are known")
        return self.score

    @property
    def needs(self) -> Needs:
        """What the score and the stopping rule read."""
        return Needs(*(one or other for one, other in zip(needs(self.rescorer), needs(self.stop), strict=True)))


def default_score(knows_length: bool) -> Rescorer:
    """F1-Norm where an expected length is known, else length norm."""
    return F1Norm() if knows_length else LengthNorm()


def checked_count(name: str, value: object, low: int = 1) -> int:
    """The value as a plain int; an error unless it is a whole number from `low` to what makes sense."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= MAX_COUNT:
        raise UncurseError(
            f"{name} = {value!r} is not allowed: {name} must be a whole number in {low} … {MAX_COUNT}"
        )
    return int(value)


def checked_length(name: str, value: object) -> float:
    """The value as a plain float; an error unless it can be a length."""
    return Parameter("a length", 0.0, float(MAX_COUNT), low_open=True).checked(name, value)


def check_expected_length(expected_length: float | None) -> None:
    """Raise an error if an expected length is needed and there is none."""
    if expected_length is None:
        raise UncurseError("an expected length is needed for each sentence, or a score with a fixed ratio")


def check_attends(attends: bool) -> None:
    """Raise an error if coverage is needed and there is no attention to make it of."""
    if not attends:
        raise UncurseError("this score needs coverage, and this model gives no attention")


def beam_signature(
    version: str,
    model: str,
    beam_size: int,
    slots: Slots,
    max_length: int,
    min_length: int,
    prefix: tuple[int, ...],
    constraint: str | None = None,
) -> str:
    """What decides the contents of a beam; score, stopping rule and predictor do not."""
    forced = "-".join(map(str, prefix)) or "none"
    forced += "" if constraint is None else f"|constraint:{constraint}"
    return (
        f"model:{model}|beam_size:{beam_size}|slots:{slots.value}|max_length:{max_length}|min_length:{min_length}"
        f"|prefix:{forced}|coverage:{COVERAGE_FLOOR}|uncurse:{version}"
    )


def result_signature(beam: str, decoding: Decoding, expected_length: float | None) -> str:
    """What decides the result of a search: its beam's signature and the way the beam was judged."""
    expected = "none" if expected_length is None else repr(float(expected_length))
    method = _method_signature(decoding.rescorer, decoding.stop)
    return f"{beam}|{method}|n_best:{decoding.n_best}|expected_length:{expected}"


@lru_cache(maxsize=256)
def _method_signature(score: Rescorer, stop: StoppingRule) -> str:
    return f"score:{_named(SCORES.spec(score), score)}|stop:{_named(RULES.spec(stop), stop)}"


def _named(spec: str, method: Rescorer | StoppingRule) -> str:
    digest = source_digest(method)  # two plug-ins may use one name
    return spec if digest is None else f"{spec}@{digest}"
