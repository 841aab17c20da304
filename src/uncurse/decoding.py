"""Every choice that changes a translation, as frozen values, and the signature that names them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from numbers import Integral
from typing import Final, final

from uncurse.coverage import COVERAGE_FLOOR
from uncurse.registry import Parameter
from uncurse.rescoring import SCORES, BPNorm, Rescorer
from uncurse.stopping import RULES, Optimal, StoppingRule

MOST: Final = 100_000  # tokens, hypotheses or sentences: more is a mistake, and would fill the memory


class Slots(Enum):
    """What a continuation that ends costs the beam."""

    OCCUPY = "occupy"  # a slot of the step at which it ends, none later (OpenNMT-py 2018; Yang et al. 2018)
    REFILL = "refill"  # nothing: b others live on (fairseq, Hugging Face, CTranslate2)

    @staticmethod
    def named(name: str) -> Slots:
        """The one of this name; a `ValueError` that says all names if there is none."""
        if name not in {each.value for each in Slots}:
            raise ValueError(f"slots = {name!r} is not allowed: it must be 'occupy' or 'refill'")
        return Slots(name)

    def ranks(self, width: int) -> int:
        """How many of a step's best continuations are looked at."""
        return width if self is Slots.OCCUPY else 2 * width


@final
@dataclass(frozen=True)
class Sentence:
    """One source sentence with what the search is told of it."""

    source: tuple[int, ...]  # pieces without </s>, tags and padding
    limit: int  # R, the most tokens the search may choose, </s> included
    prefix: tuple[int, ...] = ()  # target tokens that are forced first and count nowhere
    predicted: float | None = None  # the expected |y|, prefix included
    min_length: int = 0  # the fewest tokens the search may choose, </s> included

    def __post_init__(self) -> None:
        for name, tokens in (("source", self.source), ("prefix", self.prefix)):
            if not isinstance(tokens, tuple) or not all(isinstance(token, Integral) for token in tokens):
                raise ValueError(f"{name} = {tokens!r} is not allowed: {name} must be a tuple of token numbers")
        object.__setattr__(self, "limit", checked_count("limit", self.limit))
        object.__setattr__(self, "min_length", checked_count("min_length", self.min_length, low=0))
        if self.min_length > self.limit:
            raise ValueError(f"min_length = {self.min_length} is not allowed: the limit is {self.limit}")
        if self.predicted is not None:
            object.__setattr__(self, "predicted", checked_length("predicted", self.predicted))


@final
@dataclass(frozen=True)
class Decoding:
    """How a search decodes: the same for all its sentences."""

    width: int = 10
    score: Rescorer = field(default_factory=BPNorm)
    stop: StoppingRule = field(default_factory=Optimal)
    n_best: int = 1
    slots: Slots = Slots.OCCUPY

    def __post_init__(self) -> None:
        for name in ("width", "n_best"):
            object.__setattr__(self, name, checked_count(name, getattr(self, name)))
        for name, kind in (("score", Rescorer), ("stop", StoppingRule), ("slots", Slots)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} = {getattr(self, name)!r} is not allowed: use Decoding.of for names")
        _method_signature(self.score, self.stop)  # what is not registered has no name

    @staticmethod
    def of(
        width: int = 10, score: str = "bp-norm", stop: str = "optimal", n_best: int = 1, slots: str = "occupy"
    ) -> Decoding:
        """The same from names, for example `score="gnmt:alpha=0.2,beta=0.2"`."""
        for name, spec in (("score", score), ("stop", stop)):
            if not isinstance(spec, str):
                raise ValueError(f"{name} = {spec!r} is not allowed: give a name such as 'bp-norm' or 'optimal'")
        return Decoding(width, SCORES.parse(score), RULES.parse(stop), n_best, Slots.named(slots))


def checked_count(name: str, value: object, low: int = 1) -> int:
    """The value as a plain int; a `ValueError` unless it is a whole number from `low` to what makes sense."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= MOST:
        raise ValueError(f"{name} = {value!r} is not allowed: {name} must be a whole number in {low} … {MOST}")
    return int(value)


def checked_length(name: str, value: object) -> float:
    """The value as a plain float; a `ValueError` unless it can be a length."""
    return Parameter("a length", 0.0, float(MOST), low_open=True).checked(name, value)


def check_predicted(length: float | None) -> None:
    """Raise a `ValueError` if a length is needed and there is none."""
    if length is None:
        raise ValueError("a predicted length is needed for each sentence, or a score with a fixed ratio")


def check_attends(attends: bool) -> None:
    """Raise a `ValueError` if coverage is needed and there is no attention to make it of."""
    if not attends:
        raise ValueError("this score needs coverage, and this model gives no attention")


def beam_signature(
    version: str, model: str, width: int, slots: Slots, limit: int, min_length: int, prefix: tuple[int, ...]
) -> str:
    """What decides the contents of a beam; score, stopping rule and predictor do not."""
    forced = "-".join(map(str, prefix)) or "none"
    return (
        f"model:{model}|beam:{width}|slots:{slots.value}|limit:{limit}|min:{min_length}|prefix:{forced}"
        f"|coverage:{COVERAGE_FLOOR}|uncurse:{version}"
    )


def result_signature(beam: str, score: Rescorer, stop: StoppingRule, n_best: int, predicted: float | None) -> str:
    """What decides the result of a search: its beam's signature and the way the beam was judged."""
    length = "none" if predicted is None else repr(float(predicted))
    return f"{beam}|{_method_signature(score, stop)}|n-best:{n_best}|length:{length}"


@lru_cache(maxsize=256)
def _method_signature(score: Rescorer, stop: StoppingRule) -> str:
    return f"score:{SCORES.spec(score)}|stop:{RULES.spec(stop)}"
