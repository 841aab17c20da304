"""Names for methods: a registered class is a spec string, a table row and a command-line value."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, Generic, TypeVar, final

T = TypeVar("T")
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@final
@dataclass(frozen=True)
class Parameter:
    """One number a method takes: what it means and which values make sense."""

    meaning: str
    low: float
    high: float
    low_open: bool

    def checked(self, name: str, value: object) -> float:
        """The value as a plain float; a `ValueError` names it and the allowed range unless it lies in it.

        Numbers of other kinds are equal to floats and hash alike, but compute with a precision of their own.
        """
        if isinstance(value, bool) or not isinstance(value, Real) or not self._contains(value):
            raise ValueError(f"{name} = {value!r} is not allowed: {name} must be {self.range}")
        return float(value)

    def _contains(self, value: Real) -> bool:
        try:
            number = float(value)
        except OverflowError:
            return False
        above = self.low < number if self.low_open else self.low <= number
        return math.isfinite(number) and above and number <= self.high

    @property
    def range(self) -> str:
        """The allowed values in words."""
        if math.isinf(self.low) and math.isinf(self.high):
            return "a finite number"
        if math.isinf(self.high):
            return f"a finite number {'>' if self.low_open else '>='} {self.low:g}"
        return f"a number in {'(' if self.low_open else '['}{self.low:g}, {self.high:g}]"


def parameter(
    meaning: str,
    *,
    default: Any = dataclasses.MISSING,  # noqa: ANN401
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
) -> Any:  # noqa: ANN401  (a dataclass field stands for a value of the annotated type)
    """Declare a field of a method as a parameter with a meaning and a range."""
    return dataclasses.field(default=default, metadata={"parameter": Parameter(meaning, low, high, low_open)})


def check_parameters(method: object) -> None:
    """Check every declared parameter of a method and make it a float; `None` may be where it is the default."""
    for field, declared in parameters_of(type(method)):
        value = getattr(method, field.name)
        if not (value is None and field.default is None):
            object.__setattr__(method, field.name, declared.checked(field.name, value))


def parameters_of(method: type) -> Iterator[tuple[dataclasses.Field[Any], Parameter]]:
    """The fields of a method class that were declared with `parameter`."""
    fields = dataclasses.fields(method) if dataclasses.is_dataclass(method) else ()
    return ((field, field.metadata["parameter"]) for field in fields if "parameter" in field.metadata)


@final
@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered method with what its users read about it."""

    name: str
    method: type[T]
    formula: str
    source: str


@final
class Registry(Generic[T]):
    """The methods of one kind by name; spec strings such as `word-reward:reward=1.3` make and name them."""

    def __init__(self, kind: str) -> None:
        self.kind: Final = kind
        self._entries: dict[str, Entry[T]] = {}

    def register(self, name: str, *, formula: str, source: str) -> Callable[[type[T]], type[T]]:
        """Give a frozen dataclass its name, its formula and the paper or program it comes from."""

        def add(method: type[T]) -> type[T]:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered already")
            if not _NAME.fullmatch(name):
                raise ValueError(f"{self.kind} name {name!r} is not allowed: use a-z, 0-9 and hyphens")
            if not dataclasses.is_dataclass(method) or not method.__dataclass_params__.frozen:  # type: ignore[attr-defined]
                raise TypeError(f"{self.kind} {name!r} must be a frozen dataclass")
            undeclared = {field.name for field in dataclasses.fields(method)} - {
                field.name for field, _ in parameters_of(method)
            }
            if undeclared:
                raise TypeError(f"{self.kind} {name!r}: declare {sorted(undeclared)} with parameter(...)")
            self._entries[name] = Entry(name, method, formula, source)
            return method

        return add

    def unregister(self, name: str) -> None:
        """Forget a method, for tests and notebooks that register one for a while."""
        del self._entries[self._known(name)]

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(tuple(self._entries.values()))

    def __getitem__(self, name: str) -> Entry[T]:
        return self._entries[self._known(name)]

    def parse(self, spec: str) -> T:
        """The method a spec string names, for example `gnmt:alpha=0.2,beta=0.2`."""
        name, colon, rest = spec.partition(":")
        method = self[name.strip()].method
        allowed = [field.name for field, _ in parameters_of(method)]
        values: dict[str, float | None] = {}
        for part in rest.split(",") if colon else ():
            key, equals, text = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise ValueError(f"{self.kind} {spec!r}: write name=value after the colon, not {part!r}")
            if key not in allowed:
                raise ValueError(f"{self.kind} {name!r} has no parameter {key!r}{nearest(key, allowed)}")
            if key in values:
                raise ValueError(f"{self.kind} {spec!r} gives {key!r} twice")
            values[key] = _number(f"{self.kind} {spec!r}: {key}", text)
        missing = [
            field.name
            for field, _ in parameters_of(method)
            if field.default is dataclasses.MISSING and field.name not in values
        ]
        if missing:
            raise ValueError(f"{self.kind} {name!r} needs a value: {name}:{missing[0]}=…")
        return method(**values)

    def spec(self, method: T) -> str:
        """The spec string that makes this method; parameters at their default are left out."""
        values = ",".join(
            f"{field.name}={float(getattr(method, field.name)) + 0.0!r}"  # -0.0 does what 0.0 does
            for field, _ in parameters_of(type(method))
            if getattr(method, field.name) != field.default
        )
        return self.name(method) + (f":{values}" if values else "")

    def name(self, method: T) -> str:
        """The registered name of a method."""
        for entry in self._entries.values():
            if entry.method is type(method):
                return entry.name
        raise ValueError(f"{type(method).__name__} is not a registered {self.kind}")

    def _known(self, name: str) -> str:
        if name not in self._entries:
            raise ValueError(f"unknown {self.kind} {name!r}{nearest(name, list(self._entries))}")
        return name


def nearest(name: str, allowed: list[str]) -> str:
    """The end of an error message: the valid name most like a wrong one, or all of them."""
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; valid: {', '.join(allowed)}" if allowed else "; it takes none"


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{what} = {text!r} is not a number") from None
