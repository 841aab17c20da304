"""Table models and random models, which stand in where a neural network would hide what is being tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Floats, Ints
from uncurse.search.ranking import top_k
from uncurse.search.step_model import Continuations

Words = NDArray[np.uint64]


def top_continuations(log_probs: Floats, k: int, attention: Floats | None = None) -> Continuations:
    """The k best tokens of each row of `[rows, vocabulary]`, best first, ties to the lower token id."""
    tokens = top_k(log_probs, min(k, log_probs.shape[1]), lambda _, token: (token,))
    return Continuations(tokens, np.take_along_axis(log_probs, tokens, axis=1), attention)


@final
@dataclass(frozen=True, eq=False)
class TableState:
    """Where each row stands in the table."""

    places: Ints  # [rows]

    def select(self, rows: Ints) -> Self:
        """The given rows."""
        return type(self)(self.places[rows])

    def append(self, other: Self) -> Self:
        """These rows and then the others."""
        return type(self)(np.concatenate((self.places, other.places)))


@final
class TableModel:
    """A model read from tables: at each place a log-probability for every token, and the place it leads to.

    Source `x` starts at place `sum(x) mod places`. The last token is `</s>`. The log-probabilities need not add
    up to one, so they can be made to collide, or be -inf.
    """

    bos: Final = -1

    def __init__(self, log_probs: Floats, leads_to: Ints, attention: Floats | None = None) -> None:
        self._log_probs = np.asarray(log_probs, dtype=np.float64)  # [places, vocabulary]
        self._leads_to = np.asarray(leads_to)  # [places, vocabulary]
        self._attention = attention  # [places, positions], the same for every source
        self.vocab_size = self._log_probs.shape[1]
        self.eos = self.vocab_size - 1
        self.attends = attention is not None
        contents = [each.tobytes() for each in (self._log_probs, self._leads_to, attention) if each is not None]
        self.signature = f"table-{sha256(b''.join(contents)).hexdigest()[:12]}"

    def start(self, sources: Sequence[Sequence[int]]) -> TableState:
        """Each source at its first place."""
        return TableState(np.array([sum(source) % len(self._log_probs) for source in sources]))

    def step(self, state: TableState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, TableState]:
        """The k best entries at the place that each row's token leads to."""
        places = np.where(tokens == self.bos, state.places, self._leads_to[state.places, tokens])
        given = self._attention[places] if attention and self._attention is not None else None
        return top_continuations(self._log_probs[places], k, given), TableState(places)


@final
@dataclass(frozen=True, eq=False)
class RandomState:
    """A hash of source and prefix for each row."""

    keys: Words  # [rows]
    lengths: Ints  # [rows] of the sources

    def select(self, rows: Ints) -> Self:
        """The given rows."""
        return type(self)(self.keys[rows], self.lengths[rows])

    def append(self, other: Self) -> Self:
        """These rows and then the others."""
        return type(self)(np.concatenate((self.keys, other.keys)), np.concatenate((self.lengths, other.lengths)))


@final
class RandomModel:
    """A model whose distribution after every prefix is random, and always the same for the same prefix.

    `sharpness` scales the logits; `ending` is added to that of `</s>`, the last token. Its attention is
    meaningful only on the source tokens; beyond them it is arbitrary, as in a padded batch.
    """

    bos: Final = -1

    def __init__(
        self, seed: int, vocab_size: int, sharpness: float = 2.0, ending: float = 0.0, attends: bool = False
    ) -> None:
        self._seed = seed
        self._sharpness = sharpness
        self._ending = ending
        self.vocab_size = vocab_size
        self.eos = vocab_size - 1
        self.attends = attends
        self.signature = f"random-{seed}-{vocab_size}-{sharpness:g}-{ending:g}{'-attending' if attends else ''}"

    def start(self, sources: Sequence[Sequence[int]]) -> RandomState:
        """A hash of each source."""
        keys = np.full(len(sources), self._seed, dtype=np.uint64)
        for row, source in enumerate(sources):
            for piece in source:
                keys[row : row + 1] = _mixed(keys[row : row + 1], np.array([piece]))
        return RandomState(keys, np.array([len(source) for source in sources]))

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        """The k best of a distribution drawn with the hash of the prefix."""
        log_probs, given, after = self._drawn(state, tokens, attention)
        return top_continuations(log_probs, k, given), after

    def step_among(
        self, state: RandomState, tokens: Ints, candidates: Ints, attention: bool
    ) -> tuple[Continuations, RandomState]:
        """What that distribution says of candidates."""
        log_probs, given, after = self._drawn(state, tokens, attention)
        return Continuations(candidates, np.take_along_axis(log_probs, candidates, axis=1), given), after

    def _drawn(
        self, state: RandomState, tokens: Ints, attention: bool
    ) -> tuple[Floats, Floats | None, RandomState]:
        keys = _mixed(state.keys, tokens)
        logits = self._sharpness * _drawn(keys, np.arange(self.vocab_size))
        logits[:, self.eos] += self._ending
        logits -= logits.max(axis=1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        given = self._attention(keys, state.lengths) if attention and self.attends else None
        return np.minimum(log_probs, 0.0), given, RandomState(keys, state.lengths)

    def _attention(self, keys: Words, lengths: Ints) -> Floats:
        weights = np.exp(2.0 * _drawn(keys, np.arange(-int(lengths.max()), 0)[::-1]))
        inside = np.arange(weights.shape[1]) < lengths[:, None]
        total = np.add.accumulate(np.where(inside, weights, 0.0), axis=1)[:, -1:]
        return weights / np.maximum(total, 1e-9)


def _mixed(keys: Words, values: Ints) -> Words:
    """Keys and values hashed together, elementwise, by the finaliser of splitmix64."""
    word = (keys ^ (values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))) + np.uint64(0x632BE59BD9B4E019)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = word ^ (word >> np.uint64(31))
    return mixed


def _drawn(keys: Words, columns: Ints) -> Floats:
    """Numbers of mean 0 and variance 1 for each key and column, [keys, columns]."""
    words = _mixed(keys[:, None], columns[None, :])
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    logistic: Floats = np.log((uniform + 2.0**-54) / (1.0 - uniform + 2.0**-54)) * (np.sqrt(3.0) / np.pi)
    return logistic
