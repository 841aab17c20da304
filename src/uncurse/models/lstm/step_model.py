"""The LSTM as a step model: each sentence is encoded once, and its whole beam attends in one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
import torch
from torch import Tensor

from uncurse.arrays import Floats, Ints
from uncurse.models.encoder_cache import CachedEncoder
from uncurse.models.lstm.network import AttentionalLSTM, DecoderState, EncoderOutput
from uncurse.models.ragged import RaggedRows
from uncurse.models.tensors import mean_over_tokens, pad_and_concat, to_float64
from uncurse.models.transformer.native.library import Library
from uncurse.models.transformer.native.network import PackedLayer
from uncurse.models.transformer.quantization import Weight
from uncurse.search.step_model import Continuations
from uncurse.text.sentencepiece_tokenizer import BOS, EOS


@final
@dataclass(frozen=True, eq=False)
class LSTMState:
    """Encoder output once per sentence, decoder state once per row."""

    encoded: EncoderOutput  # of the sentences
    decoder: DecoderState  # of the rows
    sentence: Tensor  # [rows] the sentence of each row, in rising order

    def select(self, rows: Ints) -> Self:
        """The state of some rows; sentences without any are dropped."""
        chosen = torch.from_numpy(np.asarray(rows)).to(self.sentence.device)
        kept, sentence = torch.unique_consecutive(self.sentence[chosen], return_inverse=True)
        encoded = self.encoded
        if len(kept) < len(encoded.states):
            longest = max(int((~encoded.padding[kept]).sum(dim=1).max()), 1)
            encoded = EncoderOutput(*(part[kept, :longest] for part in encoded))
        hidden, cell, feed = self.decoder
        return type(self)(encoded, DecoderState(hidden[:, chosen], cell[:, chosen], feed[chosen]), sentence)

    def append(self, other: Self) -> Self:
        """These sentences followed by the others."""
        encoded = EncoderOutput(
            pad_and_concat(self.encoded.states, other.encoded.states, 1),
            pad_and_concat(self.encoded.keys, other.encoded.keys, 1),
            pad_and_concat(self.encoded.padding, other.encoded.padding, 1, fill=True),
        )
        decoder = DecoderState(
            torch.cat((self.decoder.hidden, other.decoder.hidden), dim=1),
            torch.cat((self.decoder.cell, other.decoder.cell), dim=1),
            torch.cat((self.decoder.feed, other.decoder.feed)),
        )
        sentence = torch.cat((self.sentence, other.sentence + len(self.encoded.states)))
        return type(self)(encoded, decoder, sentence)


@final
class LSTMStepModel:
    """The network as a search uses it."""

    bos: Final = BOS
    eos: Final = EOS
    attends: Final = True
    max_source_length: Final = None
    max_target_length: Final = None

    def __init__(self, network: AttentionalLSTM, signature: str, library: Library | None = None) -> None:
        self._network = network.eval()
        self._output = None  # the output layer on the C++ kernels; its weights are those of now
        if library is not None:
            weight, bias = Weight(network.output.weight.detach()), network.output.bias.detach()
            self._output = PackedLayer(library, weight, bias, int8=False)
        self._encoder = CachedEncoder(self._encode)
        self._device = network.output.bias.device
        self.signature = signature
        self.vocab_size = network.shape.target_vocab_size

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> LSTMState:
        """Encode sources."""
        encoded, decoder = self._encoder(sources)
        return LSTMState(encoded, decoder, torch.arange(len(sources), device=self._device))

    @torch.inference_mode()
    def step(self, state: LSTMState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, LSTMState]:
        """Feed each row its token; the k best next tokens, without a log-softmax of the whole vocabulary."""
        attended, received, after = self._advance(state, tokens, attention)
        k = min(k, self.vocab_size)
        if self._output is not None:
            return Continuations(*self._output.top_k(attended.numpy(), k), received), after
        logits = self._network.logits(attended)
        values, ids = logits.topk(k, dim=1)
        log_probs = values - logits.logsumexp(dim=1, keepdim=True)
        return Continuations(ids.cpu().numpy(), to_float64(log_probs), received), after

    @torch.inference_mode()
    def step_among(
        self, state: LSTMState, tokens: Ints, candidates: Ints, attention: bool
    ) -> tuple[Continuations, LSTMState]:
        """Feed each row its token; what its candidates have, [rows, k]."""
        attended, received, after = self._advance(state, tokens, attention)
        logits = self._network.logits(attended)
        values = logits.gather(1, torch.from_numpy(candidates).to(self._device))
        log_probs = values - logits.logsumexp(dim=1, keepdim=True)
        return Continuations(candidates, to_float64(log_probs), received), after

    def _advance(self, state: LSTMState, tokens: Ints, attention: bool) -> tuple[Tensor, Floats | None, LSTMState]:
        """What the output layer reads after each row's token, what the source received, and the new state."""
        network = self._network
        embedded = network.embed_target(torch.from_numpy(np.asarray(tokens)).to(self._device))
        outputs, decoder = network.advance(state.decoder, embedded)
        attended, weights = self._attend(state, outputs)
        received = to_float64(weights) if attention else None
        after = LSTMState(state.encoded, decoder._replace(feed=attended), state.sentence)
        return attended, received, after

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states over the tokens of each source, [sources, hidden]."""
        encoded, _ = self._encoder(sources)
        return mean_over_tokens(encoded.states, ~encoded.padding)

    def _encode(self, sources: Sequence[Sequence[int]]) -> tuple[EncoderOutput, DecoderState]:
        ids, lengths = pad_sources(sources)
        return self._network.encode(ids.to(self._device), lengths)

    def _attend(self, state: LSTMState, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of beams of different sizes in one matrix product."""
        layout = RaggedRows.of(state.sentence, len(state.encoded.states))
        attended, weights = self._network.attend(state.encoded, layout.pad(outputs))
        return layout.unpad(attended), layout.unpad(weights)


def pad_sources(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Sources as a padded tensor, [sources, positions], and their lengths."""
    lengths = torch.tensor([len(source) for source in sources])
    ids = torch.zeros(len(sources), max(int(lengths.max()), 1), dtype=torch.long)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = torch.tensor(source, dtype=torch.long)
    return ids, lengths
