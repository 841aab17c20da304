"""Names for methods: a registered class is a spec string, a table row and a command-line value."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from numbers import Real
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, final

from uncurse.errors import UncurseError, nearest

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
    grid: tuple[float, ...] = ()  # the values that a study tries on its dev set; none: it is not tuned

    def checked(self, name: str, value: object) -> float:
        """The value as a plain float; an `UncurseError` names it and the allowed range unless it lies in it.

        Numbers of other kinds are equal to floats and hash alike, but compute with a precision of their own.
        """
        if isinstance(value, bool) or not isinstance(value, Real) or not self._contains(value):
            raise UncurseError(f"{name} = {value!r} is not allowed: {name} must be {self.range}")
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
    grid: tuple[float, ...] = (),
) -> Any:  # noqa: ANN401  (a dataclass field stands for a value of the annotated type)
    """Declare a field of a method as a parameter.

    `uncurse methods` shows its `meaning`. A value must be from `low` to `high`, and above `low` if `low_open`;
    without a `default` it must be given. A study tries the values of `grid` on its dev set.
    """
    declared = Parameter(meaning=meaning, low=low, high=high, low_open=low_open, grid=grid)
    return dataclasses.field(default=default, metadata={"parameter": declared})


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
    label: str  # what it is called in tables and figures
    stops: tuple[str, ...] = ()  # of a score: the stopping rules of its rows in a study, the usual one first


@final
class Registry(Mapping[str, Entry[T]]):
    """The methods of one kind by name; spec strings such as `word-reward:reward=1.3` make and name them."""

    def __init__(self, kind: str, base: type[T]) -> None:
        self.kind: Final = kind
        self._base = base
        self._entries: dict[str, Entry[T]] = {}

    def register(
        self, name: str, *, formula: str, source: str, label: str | None = None, stops: tuple[str, ...] = ()
    ) -> Callable[[type[T]], type[T]]:
        """Give a frozen dataclass its name, its formula and the paper or program it comes from.

        A study has a row for a score with each of its `stops`; without any it is stopped by `optimal`.
        """

        def add(method: type[T]) -> type[T]:
            if name in self._entries:
                raise UncurseError(f"{self.kind} {name!r} is registered already")
            if not _NAME.fullmatch(name):
                raise UncurseError(f"{self.kind} name {name!r} is not allowed: use a-z, 0-9 and hyphens")
            if not issubclass(method, self._base):
                raise UncurseError(f"{self.kind} {name!r} must be derived from {self._base.__name__}")
            if missing := sorted(getattr(method, "__abstractmethods__", ())):
                raise UncurseError(f"{self.kind} {name!r} must define {missing[0]}")
            if not dataclasses.is_dataclass(method) or not method.__dataclass_params__.frozen:  # type: ignore[attr-defined]
                raise UncurseError(f"{self.kind} {name!r} must be a frozen dataclass")
            undeclared = {field.name for field in dataclasses.fields(method)} - {
                field.name for field, _ in parameters_of(method)
            }
            if undeclared:
                raise UncurseError(f"{self.kind} {name!r}: declare {sorted(undeclared)} with parameter(...)")
            for field, declared in parameters_of(method):
                for value in declared.grid:
                    declared.checked(f"{self.kind} {name!r}: the grid of {field.name}", value)
                if field.default not in (None, dataclasses.MISSING):
                    declared.checked(f"{self.kind} {name!r}: the default of {field.name}", field.default)
            self._entries[name] = Entry(
                name, method, formula, source, label=label or name.replace("-", " "), stops=stops
            )
            return method

        return add

    def unregister(self, name: str) -> None:
        """Forget a method, for tests and notebooks that register one for a while."""
        del self._entries[self._known(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Entry[T]:
        return self._entries[self._known(name)]

    def parse(self, spec: str) -> T:
        """The method a spec string names, for example `gnmt:alpha=0.2,beta=0.2`."""
        entry, values = self.read_spec(spec)
        missing = [
            field.name
            for field, _ in parameters_of(entry.method)
            if field.default is dataclasses.MISSING and field.name not in values
        ]
        if missing:
            raise UncurseError(f"{self.kind} {entry.name!r} needs a value: {entry.name}:{missing[0]}=…")
        return entry.method(**values)

    def read_spec(self, spec: str) -> tuple[Entry[T], dict[str, float]]:
        """The entry that a spec string names, and the values that it gives."""
        name, colon, rest = spec.partition(":")
        entry = self[name.strip()]
        allowed = [field.name for field, _ in parameters_of(entry.method)]
        values: dict[str, float] = {}
        for part in rest.split(",") if colon else ():
            key, equals, text = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise UncurseError(f"{self.kind} {spec!r}: write name=value after the colon, not {part!r}")
            if key not in allowed:
                raise UncurseError(f"{self.kind} {name!r} has no parameter {key!r}{nearest(key, allowed)}")
            if key in values:
                raise UncurseError(f"{self.kind} {spec!r} gives {key!r} twice")
            values[key] = _number(f"{self.kind} {spec!r}: {key}", text)
        return entry, values

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
        raise UncurseError(f"{type(method).__name__} is not a registered {self.kind}")

    def _known(self, name: str) -> str:
        if name not in self._entries:
            raise UncurseError(f"unknown {self.kind} {name!r}{nearest(name, list(self._entries))}")
        return name


def source_digest(method: object) -> str | None:
    """A checksum of the file that defines a method; None for those of this package, which has a version."""
    path = _source_file(method)
    return None if path is None else sha256(path.read_bytes()).hexdigest()[:12]


def class_name(method: object) -> str:
    """The class of a method for an error message, with the file that defines it if that is not of this package."""
    name, path = type(method).__name__, _source_file(method)
    return name if path is None else f"{path}: {name}"


def _source_file(method: object) -> Path | None:
    module = type(method).__module__
    path = getattr(sys.modules.get(module), "__file__", None)
    return None if module.split(".")[0] == "uncurse" or path is None else Path(path)


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UncurseError(f"{what} = {text!r} is not a number") from None
