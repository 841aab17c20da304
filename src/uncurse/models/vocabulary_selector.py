"""Vocabulary selection: which tokens the output layer computes for a sentence, chosen by the encoder's states.

Every source position votes for tokens; a token is computed if one position wants it. The choice depends on one
sentence alone, so neighbours in a batch cannot change an output. The model is renormalised over the chosen tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.storage.array_file import load_array_file, save_array_file

SHIPPED: Final = Path(__file__).parent / "pretrained" / "vocabularies"  # by fingerprint of the model
DTYPES: Final = {"tokens": np.int32, "projection": np.float16, "bias": np.float32}  # in a file
Floats32 = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class VocabularySelector:
    """`v is computed ⇔ max_i (h_i · projection) · e_v + bias_v > 0`: states h_i, the model's embeddings e."""

    tokens: Ints  # [candidates] ids, rising; no other token is ever computed
    projection: Floats32  # [d_model, d_model]
    bias: Floats32  # [candidates] +inf: always

    def __post_init__(self) -> None:
        if self.tokens.ndim != 1 or self.bias.shape != self.tokens.shape or not len(self.tokens):
            raise UncurseError("tokens and bias must have one row for each candidate")
        if self.projection.ndim != 2 or self.projection.shape[0] != self.projection.shape[1]:
            raise UncurseError(f"projection has the shape {self.projection.shape}, and should be square")
        if self.tokens[0] < 0 or (np.diff(self.tokens) <= 0).any():
            raise UncurseError("the tokens must rise")
        if not np.isfinite(self.projection).all():
            raise UncurseError("projection must be finite")
        if np.isnan(self.bias).any() or not (self.bias == np.inf).any():
            raise UncurseError(
                "bias must be a number everywhere, and +inf for the tokens that are always computed"
            )

    def selected(self, votes: Floats32, allowed: Ints | None = None) -> Ints:
        """The tokens for a sentence whose positions vote so, among those that are allowed; ids, rising."""
        tokens: Ints = self.tokens[votes.max(axis=0) + self.bias > 0]
        return tokens if allowed is None else np.intersect1d(tokens, allowed, assume_unique=True)

    def check_fits(self, vocab_size: int, d_model: int, eos: int) -> None:
        """Refuse to select tokens for a model of other sizes, or outputs that could not end."""
        if self.tokens[-1] >= vocab_size or len(self.projection) != d_model:
            raise UncurseError(
                f"the vocabulary selector is for {len(self.projection)} features and more than {self.tokens[-1]}"
                f" tokens; the model has {d_model} and {vocab_size}"
            )
        if eos not in self.tokens[self.bias == np.inf]:
            raise UncurseError("the vocabulary selector does not always select </s>")

    @property
    def fingerprint(self) -> str:
        """Identify what was learnt."""
        parts = (self.tokens, self.projection, self.bias)
        return sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:8]


@final
@dataclass(frozen=True, eq=False)
class TokenSpace:
    """Where encoder states and tokens meet: `state · start · embedding` is high for its translation."""

    embeddings: Floats32  # of all tokens, [vocab_size, d_model]
    start: Floats32  # values and output of the last layer's cross-attention in one product, [d_model, d_model]


@runtime_checkable
class HasEncoderStates(Protocol):
    """A model that a vocabulary selector can be fitted to."""

    def encoder_states(self, sources: Sequence[Sequence[int]]) -> list[Floats32]:
        """The encoder's states of each source and its `</s>`, [tokens, d_model]."""
        ...

    def token_space(self) -> TokenSpace:
        """Where encoder states and tokens meet."""
        ...


def find_selector(folder: Path, fingerprint: str, file: Path | None = None) -> VocabularySelector:
    """The selector of a model: a given file, the one in its folder, or one that comes with the package."""
    if file is not None:
        return load_selector(file, fingerprint)
    for path in (selector_path(folder, fingerprint), SHIPPED / f"{fingerprint}.safetensors"):
        if path.exists():
            return load_selector(path, fingerprint)
    raise UncurseError("there is no vocabulary selector for this model: fit one with `uncurse fit-vocabulary`")


def selector_path(folder: Path, fingerprint: str) -> Path:
    """Where the selector of a model in a folder belongs."""
    return folder / f"vocabulary-{fingerprint}.safetensors"


def save_selector(path: Path, selector: VocabularySelector, fingerprint: str) -> None:
    """Write a selector with the fingerprint of its model."""
    arrays: dict[str, NDArray[Any]] = {
        name: getattr(selector, name).astype(dtype) for name, dtype in DTYPES.items()
    }
    save_array_file(path, arrays, {"model": fingerprint})


def load_selector(path: Path, fingerprint: str) -> VocabularySelector:
    """Read a selector, which must have been fitted to the model with this fingerprint."""
    arrays, metadata = load_array_file(path, "vocabulary selector")
    try:
        if metadata["model"] != fingerprint:
            raise UncurseError(f"it was fitted to model {metadata['model']}, and this is {fingerprint}")
        for name, dtype in DTYPES.items():
            if arrays[name].dtype != dtype:  # a fraction is no token, and a large float64 becomes inf
                raise UncurseError(f"{name} is of type {arrays[name].dtype}, and should be {np.dtype(dtype)}")
        return VocabularySelector(
            tokens=arrays["tokens"].astype(np.int64),
            projection=arrays["projection"].astype(np.float32),
            bias=arrays["bias"].astype(np.float32),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise UncurseError(f"{path} is not a vocabulary selector for this model: {error}") from error
