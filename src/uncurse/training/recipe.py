"""Recipes: everything that decides what a training run learns, as a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from uncurse.errors import UncurseError
from uncurse.scoring.decoding import checked_count
from uncurse.scoring.registry import check_parameters, parameter
from uncurse.storage.toml_config import read_settings
from uncurse.text.parallel import ParallelFiles

MAX_SEED: Final = 2**32 - 1


@final
@dataclass(frozen=True)
class DataConfig:
    """The training text, and the development text that decides which checkpoint is best."""

    train: tuple[ParallelFiles, ...]
    dev: tuple[ParallelFiles, ...]


@final
@dataclass(frozen=True)
class TokenizerConfig:
    """The SentencePiece BPE model of each side."""

    source: int  # vocabulary size
    target: int
    lowercase: bool = False

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            checked_count(name, getattr(self, name))


@final
@dataclass(frozen=True)
class NetworkConfig:
    """The sizes of the network; see `LSTMShape`."""

    embedding: int
    hidden: int
    dropout: float = 0.0
    input_feed: bool = True
    tied: bool = False
    finetune_from: str | None = None  # start from the weights and tokenizers of this model, which has these sizes

    def __post_init__(self) -> None:
        for name in ("embedding", "hidden"):
            checked_count(name, getattr(self, name))


@final
@dataclass(frozen=True)
class TrainingConfig:
    """Batches, learning rate and regularisation."""

    epochs: int
    batch_sentences: int | None = None
    batch_tokens: int | None = None  # of the longer side, padding included
    max_tokens_per_side: int = 100  # a pair with more tokens on either side is dropped
    learning_rate: float = parameter("the peak", default=1e-3, low=0.0, low_open=True)
    warmup_steps: int = 500  # the rate rises linearly, and then falls linearly to 0
    weight_decay: float = parameter("of AdamW", default=0.01, low=0.0)
    clip_norm: float = parameter("the largest norm of the gradient", default=1.0, low=0.0, low_open=True)
    label_smoothing: float = parameter("above 0 makes empty outputs likelier", default=0.0, low=0.0, high=0.999)
    seed: int = 1
    checkpoint_minutes: float = parameter("between two checkpoints", default=3.0, low=0.0)

    def __post_init__(self) -> None:
        if (self.batch_sentences is None) == (self.batch_tokens is None):
            raise UncurseError("give one of batch_sentences and batch_tokens")
        counts = {
            "epochs": 1,
            "batch_sentences": 1,
            "batch_tokens": 1,
            "max_tokens_per_side": 1,
            "warmup_steps": 0,
        }
        for name, low in counts.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise UncurseError(f"{name} = {value} is not allowed: it must be at least {low}")
        if not 0 <= self.seed <= MAX_SEED:
            raise UncurseError(f"seed = {self.seed} is not allowed: it must be in 0 … {MAX_SEED}")
        check_parameters(self)


@final
@dataclass(frozen=True)
class Recipe:
    """A whole training run."""

    data: DataConfig
    tokenizer: TokenizerConfig
    model: NetworkConfig
    training: TrainingConfig

    def __post_init__(self) -> None:
        if self.model.finetune_from is not None and self.tokenizer.lowercase:
            raise UncurseError("tokenizer.lowercase is not allowed with model.finetune_from: that model decides")


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; an unknown key is refused, and the error names the nearest valid one."""
    return read_settings(Recipe, path)
