"""Recipes: everything that decides what a training run learns, as a TOML file."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

from uncurse.registry import nearest

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Corpus:
    """A source file and one or more files that translate it line by line."""

    source: str
    targets: tuple[str, ...]


@final
@dataclass(frozen=True)
class DataPlan:
    """What is learnt from and what it is tried on."""

    train: tuple[Corpus, ...]
    dev: tuple[Corpus, ...]


@final
@dataclass(frozen=True)
class SubwordPlan:
    """How many pieces each side has."""

    source: int
    target: int
    lowercase: bool = False


@final
@dataclass(frozen=True)
class NetworkPlan:
    """The sizes of the network; see `LSTMShape`."""

    embedding: int
    hidden: int
    dropout: float = 0.0
    input_feed: bool = True
    tied: bool = False


@final
@dataclass(frozen=True)
class TrainingPlan:
    """How the weights are found."""

    epochs: int
    batch_sentences: int | None = None
    batch_tokens: int | None = None  # of the longer side, padding included
    max_length: int = 100  # pairs with more pieces on either side are dropped
    learning_rate: float = 1e-3
    warmup: int = 500  # steps; after them the rate falls in a straight line to nothing
    weight_decay: float = 0.01
    clip: float = 1.0  # the norm of the gradient
    label_smoothing: float = 0.0  # above 0 it makes empty outputs likelier
    seed: int = 1
    checkpoint_minutes: float = 3.0

    def __post_init__(self) -> None:
        if (self.batch_sentences is None) == (self.batch_tokens is None):
            raise ValueError("give one of batch_sentences and batch_tokens")
        for name in ("epochs", "max_length", "batch_sentences", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value} is not allowed: it must be at least 1")


@final
@dataclass(frozen=True)
class Recipe:
    """A whole training run."""

    data: DataPlan
    subwords: SubwordPlan
    model: NetworkPlan
    training: TrainingPlan


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; a key that does not exist is refused with the nearest that does."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    try:
        return _built(Recipe, table, "")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _built(kind: type[T], table: object, where: str) -> T:
    """A dataclass from a table of the same shape."""
    if not isinstance(table, dict):
        raise ValueError(f"{where or 'the recipe'} must be a table")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in fields:
            raise ValueError(f"unknown key {prefix + key!r}{nearest(key, list(fields))}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in table:
            raise ValueError(f"the key {prefix + name!r} is missing")
    hints = typing.get_type_hints(kind)
    try:
        return kind(**{key: _value(hints[key], value, prefix + key) for key, value in table.items()})
    except ValueError as error:
        text = str(error)
        raise ValueError(
            text if where and text.startswith(where) else f"{where}: {text}" if where else text
        ) from None


def _value(hint: Any, value: object, where: str) -> object:  # noqa: ANN401  (a type hint)
    if dataclasses.is_dataclass(hint):
        return _built(hint, value, where)  # type: ignore[arg-type]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{where} must be a list that is not empty")
        return tuple(_value(arguments[0], each, where) for each in value)
    allowed = tuple(each for each in arguments if each is not types.NoneType) or (hint,)
    if allowed[0] is float and type(value) is int:
        return float(value)
    if type(value) is allowed[0]:
        return value
    raise ValueError(f"{where} = {value!r} must be of type {allowed[0].__name__}")
