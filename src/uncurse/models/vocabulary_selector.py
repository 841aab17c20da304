"""Vocabulary selection: which tokens the output layer computes for a sentence, chosen from its encoder states.

The model itself says what a source position can become: the decoder takes one step while it attends to this
position alone, and its most likely tokens there are votes. A fitted bias for each token tells how likely it must
be for one of the positions. Few vote for how a rare word goes on, so most tokens that do not begin a word are
always computed. The choice depends on one sentence alone, so neighbours in a batch cannot change an output. The
model is renormalised over the chosen tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.search.step_model import S, StepModel
from uncurse.storage.array_file import load_array_file, save_array_file

SHIPPED: Final = Path(__file__).parent / "pretrained" / "vocabularies"  # by fingerprint of the model
DTYPES: Final = {"tokens": np.int32, "bias": np.float32}  # in a file
MOST_LIKELY: Final = 300  # tokens that a position votes for
NO_VOTE: Final = -1e4  # instead of a log-probability
Floats32 = NDArray[np.float32]


@final
@dataclass(frozen=True, eq=False)
class VocabularySelector:
    """`v is computed ⇔ max_i log p(v | position i) + bias_v > 0`, over the positions i that vote for v."""

    tokens: Ints  # [candidates] ids, rising; no other token is ever computed
    bias: Floats32  # [candidates] +inf: always

    def __post_init__(self) -> None:
        if self.tokens.ndim != 1 or self.bias.shape != self.tokens.shape or not len(self.tokens):
            raise UncurseError("tokens and bias must have one row for each candidate")
        if self.tokens[0] < 0 or (np.diff(self.tokens) <= 0).any():
            raise UncurseError("the tokens must rise")
        if np.isnan(self.bias).any() or not (self.bias == np.inf).any():
            raise UncurseError(
                "bias must be a number everywhere, and +inf for the tokens that are always computed"
            )

    def always(self, allowed: Ints | None = None) -> Ints:
        """The tokens for every sentence among those that are allowed; ids, rising."""
        return _allowed(self.tokens[self.bias == np.inf], allowed)

    def expected(self, votes: Floats32, allowed: Ints | None = None) -> Ints:
        """The other tokens for a sentence with these votes, [vocab_size]."""
        above = votes[self.tokens] + self.bias > 0
        return _allowed(self.tokens[above & (self.bias < np.inf)], allowed)

    def selected(self, votes: Floats32, allowed: Ints | None = None) -> Ints:
        """All tokens for a sentence with these votes."""
        return np.union1d(self.always(allowed), self.expected(votes, allowed))

    def check_fits(self, vocab_size: int, eos: int) -> None:
        """Refuse to select tokens for a model of another vocabulary, or outputs that could not end."""
        if self.tokens[-1] >= vocab_size:
            raise UncurseError(
                f"the vocabulary selector is for more than {self.tokens[-1]} tokens; the model has {vocab_size}"
            )
        if eos not in self.tokens[self.bias == np.inf]:
            raise UncurseError("the vocabulary selector does not always select </s>")

    @property
    def fingerprint(self) -> str:
        """Identify what was learnt."""
        return sha256(self.tokens.tobytes() + self.bias.tobytes()).hexdigest()[:8]


def _allowed(tokens: Ints, allowed: Ints | None) -> Ints:
    return tokens if allowed is None else np.intersect1d(tokens, allowed, assume_unique=True)


@runtime_checkable
class HasVotes(Protocol):
    """A model that a vocabulary selector can be fitted to."""

    def votes(self, sources: Sequence[Sequence[int]], tokens: Ints) -> list[Floats32]:
        """The votes of each source's positions among these tokens, [vocab_size]."""
        ...


def vote(model: StepModel[S], state: S, first: Sequence[int]) -> list[Floats32]:
    """The highest log-probability of each token, [vocab_size], in each sentence.

    The rows of the state are positions that the decoder attends to; those of sentence i begin at `first[i]`.
    """
    found, _ = model.step(state, np.full(first[-1], model.bos), MOST_LIKELY, attention=False)
    votes = [np.full(model.vocab_size, NO_VOTE, dtype=np.float32) for _ in first[1:]]
    for highest, (begin, end) in zip(votes, pairwise(first), strict=True):
        np.maximum.at(highest, found.tokens[begin:end], found.log_probs[begin:end].astype(np.float32))
    return votes


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
        return VocabularySelector(arrays["tokens"].astype(np.int64), arrays["bias"])
    except (KeyError, IndexError, ValueError) as error:
        raise UncurseError(f"{path} is not a vocabulary selector for this model: {error}") from error
