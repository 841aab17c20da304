"""The KV caches of a batch, as transformers makes them, for sentences that join and leave at any time."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Generic, NamedTuple, Protocol, Self, TypeVar, final

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.models.tensors import to_float64
from uncurse.search.step_model import Continuations


class EncoderMemory(NamedTuple):
    """What the decoder attends to; the same in every row of a sentence."""

    states: Tensor  # [rows, positions, hidden] the last layer of the encoder
    mask: Tensor  # [rows, positions] 1 where there is a source token, else 0
    source_positions: Tensor  # [rows, source tokens] without special tokens; beyond the last of a row any position

    def take(self, rows: Tensor) -> EncoderMemory:
        """Some of the rows."""
        return EncoderMemory(*(part[rows] for part in self))

    def mean_states(self) -> Floats:
        """The mean of the states over all tokens of each source, [rows, hidden]."""
        inside = to_float64(self.mask)[:, :, None]
        mean: Floats = (to_float64(self.states) * inside).sum(axis=1) / inside.sum(axis=1)
        return mean


@final
@dataclass(frozen=True, eq=False)
class CacheGroup:
    """Sentences that joined together. Their caches have one length, from which models count positions."""

    memory: EncoderMemory
    sentence: Ints  # [rows] which sentence a row belongs to
    fed: Tensor  # [rows, length] the tokens so far; before the first step the prompt, which is still to be fed
    cache: EncoderDecoderCache  # [rows] in each layer
    shares: bool  # whether the rows of a single sentence share the keys and values of its source

    @staticmethod
    def starting(memory: EncoderMemory, prompt: Tensor, shares: bool = False) -> CacheGroup:
        """One row for each sentence, with prompts of one length, [rows, length]."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        rows = np.arange(len(prompt))
        return CacheGroup(memory=memory, sentence=rows, fed=prompt, cache=cache, shares=shares)

    def __len__(self) -> int:
        return len(self.sentence)

    def select(self, rows: Ints) -> Self:
        """The given rows."""
        chosen = torch.from_numpy(np.ascontiguousarray(rows)).to(self.fed.device)
        own = selected_cache(self.cache.self_attention_cache, chosen)
        memory, cross = self.memory, self.cache.cross_attention_cache
        if np.array_equal(sentence := self.sentence[rows], self.sentence):
            # The keys and values of sources are large. While no beam changes its size, every row keeps its own.
            cross = selected_cache(cross, None)
        elif self.shares and len(np.unique(sentence)) == 1:
            memory, cross = memory.take(chosen[:1]), selected_cache(cross, chosen[:1])
            memory = EncoderMemory(*(repeated(part, len(rows)) for part in memory))
            for layer in cross.layers:
                if isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
                    layer.keys, layer.values = repeated(layer.keys, len(rows)), repeated(layer.values, len(rows))
        else:
            memory, cross = memory.take(chosen), selected_cache(cross, chosen)
        return replace(
            self, memory=memory, sentence=sentence, fed=self.fed[chosen], cache=EncoderDecoderCache(own, cross)
        )


def repeated(row: Tensor, rows: int) -> Tensor:
    """A single row, [1, …], as many rows, without a copy."""
    return row.expand(rows, *row.shape[1:])


def selected_cache(cache: DynamicCache, rows: Tensor | None) -> DynamicCache:
    """A cache of some rows, or of all. Layers replace tensors and never change them, so copies are shallow."""
    selected = DynamicCache()
    selected.layers = [copy(layer) for layer in cache.layers]
    if rows is not None:
        selected.batch_select_indices(rows)
    return selected


class RowGroup(Protocol):
    """Rows of a batch that one forward runs together."""

    def __len__(self) -> int: ...

    def select(self, rows: Ints) -> Self:
        """The given rows."""
        ...


G = TypeVar("G", bound=RowGroup)


@final
@dataclass(frozen=True, eq=False)
class CacheGroups(Generic[G]):
    """The state of a batch: groups one after the other, each run by a forward of its own."""

    groups: tuple[G, ...]

    def select(self, rows: Ints) -> Self:
        """The given rows; groups without any are dropped."""
        ends = np.cumsum([len(group) for group in self.groups])
        home = np.searchsorted(ends, rows, side="right")  # [rows] the group of each
        if (np.diff(home) < 0).any():
            raise UncurseError("rows cannot be selected: sentences must stay in the order in which they joined")
        staying = np.unique(home).tolist()
        parts = [rows[home == place] - (ends[place] - len(self.groups[place])) for place in staying]
        return type(self)(
            tuple(self.groups[place].select(part) for place, part in zip(staying, parts, strict=True))
        )

    def append(self, other: Self) -> Self:
        """These groups and then the others."""
        return type(self)(self.groups + other.groups)

    def split(self, tokens: Ints) -> Iterator[tuple[G, Ints]]:
        """The groups with the tokens of their rows, [rows]."""
        ends = np.cumsum([len(group) for group in self.groups])
        return zip(self.groups, np.split(tokens, ends[:-1]), strict=True)

    def split_wanted(self, wanted: int | Ints) -> Iterator[int | Ints]:
        """How many continuations each group is asked for, or the candidates of its rows, [rows, k]."""
        if isinstance(wanted, int):
            return repeat(wanted, len(self.groups))
        ends = np.cumsum([len(group) for group in self.groups])
        return iter(np.split(wanted, ends[:-1]))


def concatenated(parts: list[Continuations]) -> Continuations:
    """The continuations of groups one below the other."""
    weights = [part.attention for part in parts if part.attention is not None]
    widest = max((each.shape[1] for each in weights), default=0)
    padded = [np.pad(each, ((0, 0), (0, widest - each.shape[1]))) for each in weights]
    return Continuations(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.log_probs for part in parts]),
        np.concatenate(padded) if padded else None,
    )
