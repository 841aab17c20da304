"""A Bergamot model as a step model: the source once per sentence, and of a prefix only the cells of the SSRUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
import torch
from torch import Tensor

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.models.bergamot.network import BergamotNetwork
from uncurse.models.encoder_cache import CachedEncoder
from uncurse.models.ragged import RaggedRows
from uncurse.models.tensors import mean_over_tokens, to_float64
from uncurse.models.transformer.attention import additive_mask, attend, attention_weights, merge_heads, split_heads
from uncurse.models.transformer.kv_cache import CrossAttentionCache
from uncurse.models.transformer.linear import LinearInput
from uncurse.models.transformer.positions import MAX_POSITIONS
from uncurse.search.step_model import Continuations


@final
@dataclass(frozen=True, eq=False)
class BergamotState:
    """The live prefixes of some sentences."""

    source: CrossAttentionCache
    cells: Tensor  # [rows, layers, d_model] of the SSRUs
    sentence: Tensor  # [rows] the sentence of each row, in rising order
    position: Tensor  # [rows] how many tokens were fed

    def select(self, rows: Ints) -> Self:
        """The state of some rows; sentences without any are dropped."""
        chosen = torch.from_numpy(np.asarray(rows)).to(self.sentence.device)
        kept, sentence = torch.unique_consecutive(self.sentence[chosen], return_inverse=True)
        source = self.source if len(kept) == len(self.source.is_token) else self.source.take(kept)
        return type(self)(source, self.cells[chosen], sentence, self.position[chosen])

    def append(self, other: Self) -> Self:
        """These sentences followed by the others."""
        return type(self)(
            source=self.source.append(other.source),
            cells=torch.cat((self.cells, other.cells)),
            sentence=torch.cat((self.sentence, other.sentence + len(self.source.is_token))),
            position=torch.cat((self.position, other.position)),
        )


@final
class BergamotStepModel:
    """The network as a search uses it."""

    attends: Final = True
    max_source_length: Final = MAX_POSITIONS - 1  # </s> takes one
    max_target_length: Final = MAX_POSITIONS

    def __init__(self, network: BergamotNetwork, signature: str) -> None:
        self._network = network
        self._encoder = CachedEncoder(network.encode)
        self.signature = signature
        self.vocab_size = network.vocab_size
        self.bos = network.vocab_size  # not a token: the decoder starts from a zero embedding
        self.eos = network.eos

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> BergamotState:
        """Encode sources."""
        network = self._network
        states, is_token = self._encoder(sources)
        inputs = LinearInput(states)
        projected = [layer.cross_attention.key_value(inputs) for layer in network.decoder]
        rows = len(sources)
        return BergamotState(
            source=CrossAttentionCache.of(projected, network.heads, is_token),
            cells=states.new_zeros(rows, len(network.decoder), network.d_model),
            sentence=torch.arange(rows, device=network.device),
            position=torch.zeros(rows, dtype=torch.long, device=network.device),
        )

    @torch.inference_mode()
    def step(
        self, state: BergamotState, tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, BergamotState]:
        """Feed each row its token; the k best next tokens."""
        network, source = self._network, state.source
        if int(state.position.max()) >= MAX_POSITIONS:
            raise UncurseError(f"an output has more than {MAX_POSITIONS} tokens, the most for this model")
        layout = RaggedRows.of(state.sentence, len(source.is_token))
        mask = additive_mask(source.is_token)[:, None, None]  # [sentences, 1, 1, positions]
        fed = torch.from_numpy(np.asarray(tokens)).to(network.device)
        states = network.embed(fed, state.position)  # [rows, d_model]
        cells, weights = [], None
        for index, layer in enumerate(network.decoder):
            states, after = layer.ssru(states, state.cells[:, index])
            cells.append(after)
            (query,) = split_heads(layout.pad(layer.cross_attention.query(LinearInput(states))), 1, network.heads)
            if attention and layer is network.decoder[-1]:
                weights = attention_weights(query, source.keys[index], mask)
            attended = attend(query, source.keys[index], source.values[index], mask)
            states = layer.feed_forward(layer.cross_attention.output(states, layout.unpad(merge_heads(attended))))
        log_probs, ids = network.output.top_k(states, min(k, self.vocab_size))
        received = None if weights is None else to_float64(layout.unpad(weights))
        after_step = BergamotState(source, torch.stack(cells, dim=1), state.sentence, state.position + 1)
        return Continuations(ids.cpu().numpy(), to_float64(log_probs), received), after_step

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states over the tokens of each source and its `</s>`, [sources, d_model]."""
        states, is_token = self._encoder(sources)
        return mean_over_tokens(states, is_token)
