"""The Transformer as a step model for wide beams.

A step is one product of all prefixes of a sentence with all nodes of its prefix tree, under a mask that says which
prefix goes through which node; see `kv_cache.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.models.encoder_cache import CachedEncoder
from uncurse.models.ragged import RaggedRows
from uncurse.models.special_tokens import SpecialTokens, marian_tokens
from uncurse.models.tensors import mean_over_tokens, pad_and_concat, to_float64
from uncurse.models.transformer.attention import additive_mask, attend, attention_weights, merge_heads, split_heads
from uncurse.models.transformer.kv_cache import CrossAttentionCache, PrefixTreeCache
from uncurse.models.transformer.layers import TransformerNetwork
from uncurse.models.transformer.linear import LinearInput
from uncurse.models.transformer.output_layer import OutputLayer
from uncurse.models.vocabulary_selector import Floats32, VocabularySelector, vote
from uncurse.search.step_model import Continuations

MIN_LIVE_SHARE: Final = 0.8  # of sentences; below it, those that have left are dropped from the caches
SPARE_STEPS: Final = 4  # for which a cache has capacity after compaction


@final
@dataclass(frozen=True, eq=False)
class TransformerState:
    """The live prefixes of some sentences, with the KV caches that they share."""

    source: CrossAttentionCache
    tree: PrefixTreeCache
    paths: Tensor  # [rows, steps] the nodes of each prefix; -1 for none
    sentence: Tensor  # [rows] the sentence of each row, in rising order; some sentences may have no row any more
    depth: Tensor  # [sentences] how many tokens were fed
    outputs: tuple[OutputLayer, ...]  # [sentences] the output layer of each

    def select(self, rows: Ints) -> Self:
        """The state of some rows; sentences without any are dropped at the next compaction."""
        chosen = torch.from_numpy(np.asarray(rows)).to(self.sentence.device)
        selected = replace(self, paths=self.paths[chosen], sentence=self.sentence[chosen])
        live = len(torch.unique_consecutive(selected.sentence))
        return selected.compacted() if live < MIN_LIVE_SHARE * len(self.depth) else selected

    def append(self, other: Self) -> Self:
        """These sentences followed by the others."""
        return type(self)(
            source=self.source.append(other.source),
            tree=self.tree.append(other.tree),
            paths=pad_and_concat(self.paths, other.paths, 1, fill=-1),
            sentence=torch.cat((self.sentence, other.sentence + len(self.depth))),
            depth=torch.cat((self.depth, other.depth)),
            outputs=self.outputs + other.outputs,
        )

    def compacted(self) -> Self:
        """The same prefixes without dead nodes and finished sentences, with capacity for a few steps."""
        sentences, sentence = torch.unique_consecutive(self.sentence, return_inverse=True)
        lanes = int(torch.bincount(sentence).max())
        live = torch.zeros(len(sentences), self.tree.nodes + 1, dtype=torch.bool, device=self.paths.device)
        live[sentence[:, None], self.paths] = True  # -1 is the last column
        live = live[:, :-1]
        nodes = int(live.sum(dim=1).max())
        order = live.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :nodes]
        tree = self.tree.take(sentences, pad(order, (0, SPARE_STEPS * lanes)), nodes)
        moved = pad(live.cumsum(dim=1) - 1, (0, 1), value=-1)
        paths = moved[sentence[:, None], self.paths]
        paths = paths[:, (paths >= 0).any(dim=0)]  # without the steps of sentences that have left
        source = self.source if len(sentences) == len(self.depth) else self.source.take(sentences)
        return type(self)(
            source=source,
            tree=tree,
            paths=paths,
            sentence=sentence,
            depth=self.depth[sentences],
            outputs=tuple(self.outputs[index] for index in sentences.tolist()),
        )

    def with_capacity(self, lanes: int) -> Self:
        """The same prefixes in a cache with capacity for one more step."""
        return self if self.tree.nodes + lanes <= self.tree.capacity else self.compacted()


@final
class TransformerStepModel:
    """The network as a search uses it."""

    attends: Final = True

    def __init__(
        self,
        network: TransformerNetwork,
        signature: str,
        special: SpecialTokens | None = None,
        selector: VocabularySelector | None = None,
    ) -> None:
        self._network = network
        self._selector = selector
        self._candidates = None if selector is None else network.output_for(selector.tokens)
        self._encoder = CachedEncoder(self._encode)
        self._special = special = special or marian_tokens(network.eos, network.vocab_size)
        self.signature = signature
        self.vocab_size = network.vocab_size
        self.bos = special.decoder_prompt[-1]
        self.eos = network.eos
        self.max_source_length = special.max_source_length(network.max_positions("encoder"))
        self.max_target_length = special.max_target_length(network.max_positions("decoder"))

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> TransformerState:
        """Encode sources."""
        network, source = self._network, self._cross_attention_cache(sources)
        outputs = [network.output] * len(sources)
        if self._selector is not None and self._candidates is not None:
            votes = self._votes(source, self._candidates)
            outputs = [network.output_for(self._selector.selected(each, network.allowed)) for each in votes]
        return self._prompted(source, outputs)

    @torch.inference_mode()
    def votes(self, sources: Sequence[Sequence[int]], tokens: Ints) -> list[Floats32]:
        """The votes of each source's positions among these tokens, [vocab_size]."""
        return self._votes(self._cross_attention_cache(sources), self._network.output_for(tokens))

    def _votes(self, source: CrossAttentionCache, output: OutputLayer) -> list[Floats32]:
        positions = source.split()
        state = self._prompted(positions, [output] * len(positions.is_token))
        return vote(self, state, [0, *source.is_token.sum(dim=1).cumsum(dim=0).tolist()])

    def _cross_attention_cache(self, sources: Sequence[Sequence[int]]) -> CrossAttentionCache:
        states, is_token = self._encoder(sources)
        inputs = LinearInput(states)
        projected = [layer.cross_attention.key_value(inputs) for layer in self._network.decoder]
        return CrossAttentionCache.of(projected, self._network.heads, is_token)

    def _prompted(self, source: CrossAttentionCache, outputs: Sequence[OutputLayer]) -> TransformerState:
        """The state after what is fed to the decoder first."""
        count, device = len(outputs), self._network.device
        empty = [each.new_zeros(count, each.shape[1], 1, each.shape[3]) for each in (*source.keys, *source.values)]
        state = TransformerState(
            source=source,
            tree=PrefixTreeCache(empty[: len(source.keys)], empty[len(source.keys) :], 0),
            paths=torch.empty(count, 0, dtype=torch.long, device=device),
            sentence=torch.arange(count, device=device),
            depth=torch.zeros(count, dtype=torch.long, device=device),
            outputs=tuple(outputs),
        )
        for token in self._special.decoder_prompt[:-1]:
            _, _, state = self._decode(state, np.full(count, token), attention=False)
        return state

    @torch.inference_mode()
    def step(
        self, state: TransformerState, tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, TransformerState]:
        """Feed each row its token; the k best next tokens."""
        states, received, state = self._decode(state, tokens, attention)
        log_probs, ids = _top_k(state, states, min(k, self.vocab_size))
        return Continuations(ids.cpu().numpy(), to_float64(log_probs), received), state

    def _decode(
        self, state: TransformerState, tokens: Ints, attention: bool
    ) -> tuple[Tensor, Floats | None, TransformerState]:
        """Feed each row its token: what the output layer reads, [rows, d_model], and attention to the source."""
        network = self._network
        state = state.with_capacity(int(torch.bincount(state.sentence).max()))
        layout = RaggedRows.of(state.sentence, len(state.depth))
        position = state.depth[state.sentence]  # [rows]
        if int(position.max()) >= network.max_positions("decoder"):
            most = self.max_target_length
            raise UncurseError(f"an output has more than {most} tokens, the most for this model")
        tree, first, last = state.tree, state.tree.nodes, state.tree.nodes + layout.lanes
        paths = torch.cat((state.paths, (first + layout.lane)[:, None]), dim=1)
        tree_mask = _tree_mask(paths, layout, last)
        source_mask = additive_mask(state.source.is_token)[:, None, None]  # [sentences, 1, 1, positions]
        fed = torch.from_numpy(np.asarray(tokens)).to(network.device)
        states = network.embed("decoder", fed[:, None], position[:, None])[:, 0]  # [rows, d_model]
        tree.nodes = last
        weights = None
        for index, layer in enumerate(network.decoder):
            projected = layout.pad(layer.self_attention.query_key_value(layer.self_attention.output.input(states)))
            query, key, value = split_heads(projected, 3, network.heads)
            tree.keys[index][:, :, first:last] = key
            tree.values[index][:, :, first:last] = value
            keys, values = tree.keys[index][:, :, :last], tree.values[index][:, :, :last]
            attended = attend(query, keys, values, tree_mask)
            states = layer.self_attention.output(states, layout.unpad(merge_heads(attended)))
            queries = layer.cross_attention.query(layer.cross_attention.output.input(states))
            (query,) = split_heads(layout.pad(queries), 1, network.heads)
            keys, values = state.source.keys[index], state.source.values[index]
            if attention and layer is network.decoder[-1]:
                weights = attention_weights(query, keys, source_mask)
            attended = attend(query, keys, values, source_mask)
            states = layer.feed_forward(layer.cross_attention.output(states, layout.unpad(merge_heads(attended))))
        first_source = len(self._special.source_prefix)
        received = None if weights is None else to_float64(layout.unpad(weights))[:, first_source:]
        return network.finished("decoder", states), received, replace(state, paths=paths, depth=state.depth + 1)

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states over all tokens of each source, special ones too, [sources, size]."""
        states, is_token = self._encoder(sources)
        return mean_over_tokens(states, is_token)

    def _encode(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        return self._network.encode([self._special.framed(source) for source in sources])


def _top_k(state: TransformerState, states: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids of the k most likely tokens, [rows, k]: all rows at once if they share a layer."""
    if len(set(state.outputs)) == 1:
        return state.outputs[0].top_k(states, k)
    sentences, counts = torch.unique_consecutive(state.sentence, return_counts=True)
    parts = zip(sentences.tolist(), torch.split(states, counts.tolist()), strict=True)
    log_probs, ids = zip(*(state.outputs[index].top_k(rows, k) for index, rows in parts), strict=True)
    return torch.cat(log_probs), torch.cat(ids)


def _tree_mask(paths: Tensor, layout: RaggedRows, nodes: int) -> Tensor:
    """The self-attention mask: 0 where a prefix goes through a node, else -inf, [sentences, 1, lanes, nodes]."""
    visible = torch.zeros(layout.sentences, layout.lanes, nodes + 1, dtype=torch.bool, device=paths.device)
    visible[layout.sentence[:, None], layout.lane[:, None], paths] = True  # -1 is the last column
    return additive_mask(visible[:, None, :, :nodes])
