"""Recipes: everything that decides what a training run learns, as a TOML file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from uncurse.decoding import checked_count
from uncurse.registry import Parameter
from uncurse.settings import read_settings


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

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            checked_count(name, getattr(self, name))


@final
@dataclass(frozen=True)
class NetworkPlan:
    """The sizes of the network; see `LSTMShape`."""

    embedding: int
    hidden: int
    dropout: float = 0.0
    input_feed: bool = True
    tied: bool = False

    def __post_init__(self) -> None:
        for name in ("embedding", "hidden"):
            checked_count(name, getattr(self, name))


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
        for name, allowed in _RANGES.items():
            allowed.checked(name, getattr(self, name))


_RANGES: Final = {
    "learning_rate": Parameter("the highest rate", 0.0, math.inf, low_open=True),
    "warmup": Parameter("steps", 0, math.inf, low_open=False),
    "weight_decay": Parameter("of AdamW", 0.0, math.inf, low_open=False),
    "clip": Parameter("a norm", 0.0, math.inf, low_open=True),
    "label_smoothing": Parameter("a share", 0.0, 0.999, low_open=False),
    "seed": Parameter("any", 0, 2**32 - 1, low_open=False),
    "checkpoint_minutes": Parameter("a time", 0.0, math.inf, low_open=False),
}


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
    return read_settings(Recipe, path)
