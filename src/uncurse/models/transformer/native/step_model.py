"""The Transformer as a step model whose steps are computed by the kernels.

It gives what `transformer/step_model.py` gives, which is the reference and runs where there are no kernels. Here
nothing is padded: every sentence has KV caches of its own, so that sentences come and go without copies, and the
result of a sentence is the same bit for bit in any batch and with any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import RLock
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.models.encoder_cache import CachedEncoder
from uncurse.models.special_tokens import SpecialTokens, marian_tokens
from uncurse.models.transformer.native.library import Step
from uncurse.models.transformer.native.network import EncodedSources, NativeNetwork, SelectedOutput, address
from uncurse.models.vocabulary_selector import Floats32, VocabularySelector, vote
from uncurse.search.step_model import Continuations

SPARE_STEPS: Final = 8  # for which a tree has capacity after it was compacted
SPARE_BYTES: Final = 1 << 27  # of memory kept for trees to come


@final
class Buffers:
    """Memory for trees, used again and again: the kernel would have to clear fresh pages."""

    def __init__(self, layers: int, stride: int) -> None:
        self._layers, self._stride = layers, stride
        self._free: list[NDArray[np.float32]] = []
        self._changing = RLock()  # the garbage collector may give back a buffer while one is taken

    def take(self, capacity: int) -> NDArray[np.float32]:
        """A buffer for at least so many nodes, [layers, capacity, stride]; its content is arbitrary."""
        with self._changing:
            for found in tuple(self._free):
                if capacity <= found.shape[1] <= 2 * capacity:
                    self._free = [each for each in self._free if each is not found]
                    return found
        return np.empty((self._layers, -(-capacity // 32) * 32, self._stride), dtype=np.float32)

    def give_back(self, buffer: NDArray[np.float32]) -> None:
        """Keep a buffer for the next one who needs it, unless there are many; the oldest go first."""
        with self._changing:
            self._free.append(buffer)
            while sum(each.nbytes for each in self._free) > SPARE_BYTES:
                del self._free[0]


@final
@dataclass(frozen=True, eq=False)
class SourceCache:
    """The KV cache of cross-attention for one sentence: a part of that of the sentences it was encoded with."""

    cache: NDArray[np.float32]  # [layers, tokens of all sentences, stride]
    first: int  # of its tokens
    length: int
    output: SelectedOutput | None  # the output layer for this sentence; None: that of the network

    @property
    def address(self) -> int:
        """Where its keys and values in the first layer begin."""
        return address(self.cache) + 4 * self.first * int(self.cache.shape[2])

    @property
    def layer_stride(self) -> int:
        """The floats from one layer to the next."""
        return int(self.cache.shape[1] * self.cache.shape[2])


@final
class TreeCache:
    """The KV cache of self-attention for one sentence: keys and values of the nodes of its prefix tree.

    Nodes are only ever added, so states that branch from one another can share a cache.
    """

    def __init__(self, buffers: Buffers, capacity: int, nodes: int = 0) -> None:
        self._buffers = buffers
        self.cache = buffers.take(capacity)  # [layers, capacity, stride]
        self.nodes = nodes  # in use; some may be dead, that is, in no live prefix
        self.address = address(self.cache)

    def __del__(self) -> None:
        self._buffers.give_back(self.cache)

    @property
    def capacity(self) -> int:
        """How many nodes memory is allocated for."""
        return int(self.cache.shape[1])

    def take(self, nodes: NDArray[np.int32], spare: int) -> TreeCache:
        """A copy of some nodes, with capacity for more."""
        taken = TreeCache(self._buffers, len(nodes) + spare, len(nodes))
        for before, after in zip(self.cache, taken.cache, strict=True):
            np.take(before, nodes, axis=0, out=after[: len(nodes)], mode="clip")  # "raise" would copy twice
        return taken


@final
@dataclass(frozen=True, eq=False)
class NativeState:
    """The live prefixes of some sentences, with the KV caches that they share."""

    sources: tuple[SourceCache, ...]
    trees: tuple[TreeCache, ...]
    depth: NDArray[np.int32]  # [sentences] how many tokens were fed
    paths: NDArray[np.int32]  # [rows, steps] the nodes of each prefix; -1 for none
    sentence: NDArray[np.int32]  # [rows] the sentence of each row, in rising order; every sentence has a row

    def select(self, rows: Ints) -> Self:
        """The state of some rows, without the sentences that have none."""
        paths, sentence = self.paths[rows], self.sentence[rows]
        begins = np.flatnonzero(np.diff(sentence, prepend=-1))
        if len(begins) == len(self.trees):
            return replace(self, paths=paths, sentence=sentence)
        live = sentence[begins]
        depth = self.depth[live]
        return type(self)(
            sources=tuple(self.sources[index] for index in live),
            trees=tuple(self.trees[index] for index in live),
            depth=depth,
            paths=paths[:, (paths >= 0).any(axis=0)],  # without the steps of sentences that have left
            sentence=np.repeat(np.arange(len(live), dtype=np.int32), np.diff(begins, append=len(sentence))),
        )

    def append(self, other: Self) -> Self:
        """These sentences followed by the others."""
        steps = max(self.paths.shape[1], other.paths.shape[1])
        return type(self)(
            sources=self.sources + other.sources,
            trees=self.trees + other.trees,
            depth=np.concatenate((self.depth, other.depth)),
            paths=np.concatenate((_padded(self.paths, steps), _padded(other.paths, steps))),
            sentence=np.concatenate((self.sentence, other.sentence + np.int32(len(self.trees)))),
        )

    def with_new_nodes(self) -> Self:
        """Every prefix with one more node at its end; trees that have no capacity for them are compacted."""
        begins = np.flatnonzero(np.diff(self.sentence, prepend=-1))
        counts = np.diff(begins, append=len(self.sentence))
        paths = np.empty((len(self.sentence), self.paths.shape[1] + 1), dtype=np.int32)
        paths[:, :-1] = self.paths
        trees = list(self.trees)
        for index, (begin, count) in enumerate(zip(begins.tolist(), counts.tolist(), strict=True)):
            rows = slice(begin, begin + count)
            if trees[index].nodes + count > trees[index].capacity:
                live = np.unique(self.paths[rows])
                live = live[live >= 0]
                trees[index] = trees[index].take(live, SPARE_STEPS * count)
                moved = np.searchsorted(live, self.paths[rows])
                paths[rows, :-1] = np.where(self.paths[rows] >= 0, moved, -1)
            paths[rows, -1] = np.arange(trees[index].nodes, trees[index].nodes + count)
            trees[index].nodes += count
        return replace(self, paths=paths, trees=tuple(trees))


@final
class NativeStepModel:
    """The network as a search uses it."""

    attends: Final = True

    def __init__(
        self,
        network: NativeNetwork,
        signature: str,
        special: SpecialTokens | None = None,
        selector: VocabularySelector | None = None,
    ) -> None:
        self._network = network
        self._selector = selector
        self._candidates = None if selector is None else network.output.rows(selector.tokens)
        always = None if selector is None else selector.always(network.allowed)
        self._always = None if always is None else network.output.rows(always)  # packed once, not per sentence
        self._encoder = CachedEncoder(self._encode)
        self._buffers = Buffers(network.layers, network.cache_stride)
        self._special = special = special or marian_tokens(network.eos, network.vocab_size)
        self.signature = signature
        self.vocab_size = network.vocab_size
        self.bos = special.decoder_prompt[-1]
        self.eos = network.eos
        self.max_source_length = special.max_source_length(network.max_positions("encoder"))
        self.max_target_length = special.max_target_length(network.max_positions("decoder"))

    def start(self, sources: Sequence[Sequence[int]]) -> NativeState:
        """Encode sources."""
        cache, first = self._cross_attention_cache(sources)
        outputs: list[SelectedOutput | None] = [None] * len(sources)
        if self._selector is not None and self._candidates is not None:
            votes, network = self._votes(cache, first, self._candidates), self._network
            own = (self._selector.expected(each, network.allowed) for each in votes)
            outputs = [network.output.rows(tokens, self._always) for tokens in own]
        caches = [
            SourceCache(cache, begin, end - begin, output)
            for (begin, end), output in zip(pairwise(first), outputs, strict=True)
        ]
        return self._prompted(caches, [TreeCache(self._buffers, 1) for _ in sources])

    def votes(self, sources: Sequence[Sequence[int]], tokens: Ints) -> list[Floats32]:
        """The votes of each source's positions among these tokens, [vocab_size]."""
        return self._votes(*self._cross_attention_cache(sources), self._network.output.rows(tokens))

    def _votes(self, cache: NDArray[np.float32], first: Sequence[int], output: SelectedOutput) -> list[Floats32]:
        positions, steps = first[-1], len(self._special.decoder_prompt)
        tree = TreeCache(self._buffers, steps * positions)  # for all of them, as no two share a node
        caches = [SourceCache(cache, position, 1, output) for position in range(positions)]
        return vote(self, self._prompted(caches, [tree] * positions), first)

    def _cross_attention_cache(self, sources: Sequence[Sequence[int]]) -> tuple[NDArray[np.float32], list[int]]:
        """The cache for all sources, and where the tokens of each begin."""
        encoded = self._encoder(sources)
        return self._network.cross_attention_cache(encoded.states), encoded.first.tolist()

    def _prompted(self, sources: Sequence[SourceCache], trees: Sequence[TreeCache]) -> NativeState:
        """The state after what is fed to the decoder first."""
        count = len(sources)
        state = NativeState(
            sources=tuple(sources),
            trees=tuple(trees),
            depth=np.zeros(count, dtype=np.int32),
            paths=np.empty((count, 0), dtype=np.int32),
            sentence=np.arange(count, dtype=np.int32),
        )
        for token in self._special.decoder_prompt[:-1]:
            _, state = self.step(state, np.full(count, token), 0, attention=False)
        return state

    def step(self, state: NativeState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, NativeState]:
        """Feed each row its token; the k best next tokens."""
        network = self._network
        if int(state.depth.max()) >= network.max_positions("decoder"):
            most = self.max_target_length
            raise UncurseError(f"an output has more than {most} tokens, the most for this model")
        state = state.with_new_nodes()
        positions = state.depth[state.sentence]
        trees = np.array([tree.address for tree in state.trees], dtype=np.uint64)
        capacities = np.array([tree.capacity for tree in state.trees], dtype=np.int32)
        sources = np.array([source.address for source in state.sources], dtype=np.uint64)
        strides = np.array([source.layer_stride for source in state.sources], dtype=np.int64)
        lengths = np.array([source.length for source in state.sources], dtype=np.int32)
        step = Step(
            rows=len(state.sentence),
            path_length=state.paths.shape[1],
            positions=address(positions),
            sentence=address(state.sentence),
            paths=address(state.paths),
            trees=address(trees),
            capacities=address(capacities),
            sources=address(sources),
            source_strides=address(strides),
        )
        outputs = [source.output for source in state.sources]
        found = network.decode(tokens, step, lengths, outputs, min(k, self.vocab_size), attention)
        if found.attention is not None:
            found = replace(found, attention=found.attention[:, len(self._special.source_prefix) :])
        return found, replace(state, depth=state.depth + np.int32(1))

    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states over all tokens of each source, special ones too, [sources, size]."""
        encoded = self._encoder(sources)
        parts = (encoded.states[begin:end] for begin, end in pairwise(encoded.first.tolist()))
        return np.array([states.mean(axis=0, dtype=np.float64) for states in parts])

    def _encode(self, sources: Sequence[Sequence[int]]) -> EncodedSources:
        return self._network.encode([self._special.framed(source) for source in sources])


def _padded(paths: NDArray[np.int32], steps: int) -> NDArray[np.int32]:
    return np.pad(paths, ((0, 0), (0, steps - paths.shape[1])), constant_values=-1)
