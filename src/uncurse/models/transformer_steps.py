"""The Transformer as a step model for wide beams.

The keys and values made of the encoder's states are kept once per sentence. So are those of the prefixes: the
prefixes of a beam are a tree, whose nodes are stored once, however many prefixes go through them. A prefix is the
list of its nodes, and a step is one product of all prefixes of a sentence with all nodes of its tree, masked by
who goes through what. Selecting prefixes moves lists of small numbers, not keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from uncurse.arrays import Floats, Ints
from uncurse.model import Continuations
from uncurse.models.lanes import Lanes
from uncurse.models.once import Once
from uncurse.models.products import Given
from uncurse.models.tensors import beside, doubles
from uncurse.models.transformer import Transformer, joined, split

FEW: Final = 1000  # scores of a sentence and head up to which plain products are faster than a fused kernel
STAYING: Final = 0.8  # the share of sentences from which on those that have left are still kept
ROOM: Final = 4  # steps for which a tree has room when its dead nodes have been cleared away


@final
class Tree:
    """Keys and values of the nodes of every sentence's prefixes.

    Nodes are only ever added, so that states which branch from one another can share a tree.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], nodes: int) -> None:
        self.keys = keys  # of each layer, [sentences, heads, room, size]
        self.values = values
        self.nodes = nodes  # how many each sentence has, of which some may belong to no prefix

    @property
    def room(self) -> int:
        """How many nodes there is room for."""
        return self.keys[0].shape[2]

    def take(self, sentences: Tensor, places: Tensor, nodes: int) -> Tree:
        """Some sentences with what lies at given places, [sentences, room]: first nodes, then room for more."""
        heads, size = self.keys[0].shape[1], self.keys[0].shape[3]
        rows = sentences[:, None] * heads + torch.arange(heads, device=sentences.device)
        chosen = (rows[:, :, None] * self.room + places[:, None]).flatten()
        shape = len(sentences), heads, places.shape[1], size

        def taken(parts: list[Tensor]) -> list[Tensor]:
            return [part.reshape(-1, size).index_select(0, chosen).view(shape) for part in parts]

        return Tree(taken(self.keys), taken(self.values), nodes)

    def beside(self, other: Tree) -> Tree:
        """The sentences of both."""
        nodes = max(self.nodes, other.nodes)
        return Tree(_all_beside(self.keys, other.keys), _all_beside(self.values, other.values), nodes)


@final
@dataclass(frozen=True, eq=False)
class Memory:
    """What attention sees of the sources."""

    keys: list[Tensor]  # of each layer, [sentences, heads, positions, size]
    values: list[Tensor]
    inside: Tensor  # [sentences, positions] where there is a piece

    def take(self, sentences: Tensor) -> Self:
        """Some of the sentences, with as many positions as the longest of them has."""
        inside = self.inside[sentences]
        inside = inside[:, : int(inside.sum(dim=1).max())]
        keys = [part[sentences, :, : inside.shape[1]] for part in self.keys]
        return type(self)(keys, [part[sentences, :, : inside.shape[1]] for part in self.values], inside)

    def beside(self, other: Self) -> Self:
        """The sentences of both."""
        keys, values = _all_beside(self.keys, other.keys), _all_beside(self.values, other.values)
        return type(self)(keys, values, beside(self.inside, other.inside, 1))


@final
@dataclass(frozen=True, eq=False)
class TransformerState:
    """The prefixes of some sentences."""

    memory: Memory
    tree: Tree
    paths: Tensor  # [rows, steps] the nodes of each prefix; -1 for none
    sentence: Tensor  # [rows] rising; some may have no rows any more
    depth: Tensor  # [sentences] how many tokens were fed

    def select(self, rows: Ints) -> Self:
        """The given rows; sentences without any are let go when they are many, or when there is no more room."""
        chosen = torch.from_numpy(np.asarray(rows)).to(self.sentence.device)
        selected = replace(self, paths=self.paths[chosen], sentence=self.sentence[chosen])
        staying = len(torch.unique_consecutive(selected.sentence))
        return selected.cleared() if staying < STAYING * len(self.depth) else selected

    def append(self, other: Self) -> Self:
        """These sentences and then the others."""
        return type(self)(
            self.memory.beside(other.memory),
            self.tree.beside(other.tree),
            beside(self.paths, other.paths, 1, fill=-1),
            torch.cat((self.sentence, other.sentence + len(self.depth))),
            torch.cat((self.depth, other.depth)),
        )

    def cleared(self) -> Self:
        """The same prefixes without sentences that have none and without dead nodes, with room for a few steps."""
        sentences, sentence = torch.unique_consecutive(self.sentence, return_inverse=True)
        lanes = int(torch.bincount(sentence).max())
        used = torch.zeros(len(sentences), self.tree.nodes + 1, dtype=torch.bool, device=self.paths.device)
        used[sentence[:, None], self.paths] = True  # -1 is the last column
        used = used[:, :-1]
        nodes = int(used.sum(dim=1).max())
        order = used.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :nodes]
        tree = self.tree.take(sentences, pad(order, (0, ROOM * lanes)), nodes)
        moved = pad(used.cumsum(dim=1) - 1, (0, 1), value=-1)
        paths = moved[sentence[:, None], self.paths]
        paths = paths[:, (paths >= 0).any(dim=0)]  # without the steps of those who have left
        memory = self.memory if len(sentences) == len(self.depth) else self.memory.take(sentences)
        return type(self)(memory, tree, paths, sentence, self.depth[sentences])

    def with_room(self, width: int) -> Self:
        """The same prefixes in a tree that has room for a step."""
        return self if self.tree.nodes + width <= self.tree.room else self.cleared()


@final
class TransformerStepModel:
    """What a search asks of the network."""

    attends: Final = True

    def __init__(self, network: Transformer, signature: str, tag: int | None = None) -> None:
        self._network = network
        self._encoded = Once(self._encode)
        self._tags = () if tag is None else (tag,)  # what every source begins with: the language to translate into
        self.signature = signature
        self.vocabulary = network.vocabulary
        self.begin = network.vocabulary  # no token: Marian starts from a zero embedding
        self.end = network.end
        self.longest_source = network.places - 1 - len(self._tags)  # and </s>
        self.longest_output = network.places

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> TransformerState:
        """Encode sources."""
        network = self._network
        states, inside = self._encoded(sources)
        given = Given(states)
        keys, values = [], []
        for layer in network.decoder:
            key, value = split(layer.cross.memory(given), 2, network.heads)
            keys.append(key.contiguous())
            values.append(value.contiguous())
        sentences, device = len(sources), network.device
        empty = [states.new_zeros(sentences, network.heads, 1, network.size // network.heads) for _ in 2 * keys]
        tree = Tree(empty[: len(keys)], empty[len(keys) :], 0)
        return TransformerState(
            Memory(keys, values, inside),
            tree,
            torch.empty(sentences, 0, dtype=torch.long, device=device),
            torch.arange(sentences, device=device),
            torch.zeros(sentences, dtype=torch.long, device=device),
        )

    @torch.inference_mode()
    def step(
        self, state: TransformerState, tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, TransformerState]:
        """Feed each row its token; the k best next tokens."""
        network = self._network
        state = state.with_room(int(torch.bincount(state.sentence).max()))
        lanes = Lanes.of(state.sentence, len(state.depth))
        place = state.depth[state.sentence]  # [rows]
        if int(place.max()) >= network.places:
            raise ValueError(f"an output has {network.places} tokens, and the model knows no more places")
        tree, first, last = state.tree, state.tree.nodes, state.tree.nodes + lanes.width
        paths = torch.cat((state.paths, (first + lanes.lane)[:, None]), dim=1)
        seen_nodes = self._mask(paths, lanes, last)
        seen_pieces = _blocked(state.memory.inside)[:, None, None]  # [sentences, 1, 1, positions]
        fed = torch.from_numpy(np.asarray(tokens)).to(network.device)
        states = network.embed(fed[:, None], place[:, None])[:, 0]  # [rows, size]
        tree.nodes = last
        weights = None
        for index, layer in enumerate(network.decoder):
            query, key, value = split(lanes.spread(layer.attention.inputs(Given(states))), 3, network.heads)
            tree.keys[index][:, :, first:last] = key
            tree.values[index][:, :, first:last] = value
            keys, values = tree.keys[index][:, :, :last], tree.values[index][:, :, :last]
            attended = _attended(query, keys, values, seen_nodes)
            states = layer.attention.close(states, lanes.gather(joined(attended)))
            (query,) = split(lanes.spread(layer.cross.query(Given(states))), 1, network.heads)
            keys, values = state.memory.keys[index], state.memory.values[index]
            if attention and layer is network.decoder[-1]:
                weights = _weights(query, keys, seen_pieces)
            attended = _attended(query, keys, values, seen_pieces)
            states = layer.feed_forward(layer.cross.close(states, lanes.gather(joined(attended))))
        log_probs, ids = network.output.best(states, min(k, self.vocabulary))
        received = None if weights is None else doubles(lanes.gather(weights))[:, len(self._tags) :]
        given = Continuations(ids.cpu().numpy(), doubles(log_probs), received)
        return given, replace(state, paths=paths, depth=state.depth + 1)

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states over the pieces of each source and its end, [sources, size]."""
        states, inside = self._encoded(sources)
        there = doubles(inside)[:, :, None]
        mean: Floats = (doubles(states) * there).sum(axis=1) / there.sum(axis=1)
        return mean

    def _encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        return self._network.encode([(*self._tags, *source) for source in sources])

    def _mask(self, paths: Tensor, lanes: Lanes, nodes: int) -> Tensor:
        """Zero where a prefix goes through a node, minus infinity elsewhere, [sentences, 1, lanes, nodes]."""
        through = torch.zeros(lanes.sentences, lanes.width, nodes + 1, dtype=torch.bool, device=paths.device)
        through[lanes.sentence[:, None], lanes.lane[:, None], paths] = True  # -1 is the last column
        return _blocked(through[:, None, :, :nodes])


def _blocked(seen: Tensor) -> Tensor:
    """What is added to the attention of what is seen and what is not."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, -torch.inf)


def _attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """What each query finds, [sentences, heads, lanes, size]."""
    if query.shape[2] * keys.shape[2] > FEW:
        return scaled_dot_product_attention(query, keys, values, mask)
    scores = (query @ keys.transpose(2, 3)).mul_(query.shape[3] ** -0.5).add_(mask)
    return scores.softmax(dim=-1) @ values


def _weights(query: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    """The attention that source pieces receive, on average over the heads, [sentences, lanes, positions]."""
    scores = query @ keys.transpose(2, 3) / query.shape[3] ** 0.5 + mask
    received: Tensor = scores.softmax(dim=-1).mean(dim=1)
    return received


def _all_beside(mine: list[Tensor], theirs: list[Tensor]) -> list[Tensor]:
    """The sentences of both in every layer, [sentences, heads, places, size]."""
    return [beside(one, two, 2) for one, two in zip(mine, theirs, strict=True)]
