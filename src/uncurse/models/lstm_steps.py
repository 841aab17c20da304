"""The attentional LSTM as a step model: a sentence is encoded once, and its whole beam attends in one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np
import torch
from torch import Tensor

from uncurse.arrays import Floats, Ints
from uncurse.model import Continuations
from uncurse.models.lanes import Lanes
from uncurse.models.lstm import AttentionalLSTM, Carry, Memory
from uncurse.models.once import Once
from uncurse.models.tensors import beside, doubles
from uncurse.text.subwords import BEGIN, END


@final
@dataclass(frozen=True, eq=False)
class LSTMState:
    """Encoder states once per sentence, decoder states once per row."""

    memory: Memory  # of the sentences
    carry: Carry  # of the rows
    sentence: Tensor  # [rows] which sentence a row belongs to, in rising order

    def select(self, rows: Ints) -> Self:
        """The given rows; sentences without any are let go."""
        chosen = torch.from_numpy(np.asarray(rows)).to(self.sentence.device)
        staying, sentence = torch.unique_consecutive(self.sentence[chosen], return_inverse=True)
        memory = self.memory
        if len(staying) < len(memory.states):
            longest = max(int((~memory.padding[staying]).sum(dim=1).max()), 1)
            memory = Memory(*(part[staying, :longest] for part in memory))
        hidden, cell, feed = self.carry
        return type(self)(memory, Carry(hidden[:, chosen], cell[:, chosen], feed[chosen]), sentence)

    def append(self, other: Self) -> Self:
        """These sentences and then the others."""
        memory = Memory(
            beside(self.memory.states, other.memory.states, 1),
            beside(self.memory.keys, other.memory.keys, 1),
            beside(self.memory.padding, other.memory.padding, 1, fill=True),
        )
        mine, theirs = self.carry, other.carry
        carry = Carry(
            torch.cat((mine.hidden, theirs.hidden), dim=1),
            torch.cat((mine.cell, theirs.cell), dim=1),
            torch.cat((mine.feed, theirs.feed)),
        )
        return type(self)(memory, carry, torch.cat((self.sentence, other.sentence + len(self.memory.states))))


@final
class LSTMStepModel:
    """What a search asks of the network."""

    begin: Final = BEGIN
    end: Final = END
    attends: Final = True
    longest_source: Final = None
    longest_output: Final = None

    def __init__(self, network: AttentionalLSTM, signature: str) -> None:
        self._network = network.eval()
        self._encoded = Once(self._encode)
        self._device = network.output.bias.device
        self.signature = signature
        self.vocabulary = network.shape.target_vocabulary

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> LSTMState:
        """Encode sources."""
        memory, carry = self._encoded(sources)
        return LSTMState(memory, carry, torch.arange(len(sources), device=self._device))

    @torch.inference_mode()
    def step(self, state: LSTMState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, LSTMState]:
        """Feed each row its token; the k best next tokens, without a log-softmax of the whole vocabulary."""
        network = self._network
        embedded = network.embed_target(torch.from_numpy(np.asarray(tokens)).to(self._device))
        states, carry = network.advance(state.carry, embedded)
        attended, weights = self._attend(state, states)
        logits = network.logits(attended)  # [rows, vocabulary]
        values, ids = logits.topk(min(k, self.vocabulary), dim=1)
        log_probs = values - logits.logsumexp(dim=1, keepdim=True)
        given = Continuations(ids.cpu().numpy(), doubles(log_probs), doubles(weights) if attention else None)
        return given, LSTMState(state.memory, carry._replace(feed=attended), state.sentence)

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states over the pieces of each source, [sources, hidden]."""
        memory, _ = self._encoded(sources)
        inside = doubles(~memory.padding)[:, :, None]
        mean: Floats = (doubles(memory.states) * inside).sum(axis=1) / inside.sum(axis=1)
        return mean

    def _encode(self, sources: Sequence[Sequence[int]]) -> tuple[Memory, Carry]:
        ids, lengths = padded(sources)
        return self._network.encode(ids.to(self._device), lengths)

    def _attend(self, state: LSTMState, states: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of ragged beams in one product."""
        lanes = Lanes.of(state.sentence, len(state.memory.states))
        attended, weights = self._network.attend(state.memory, lanes.spread(states))
        return lanes.gather(attended), lanes.gather(weights)


def padded(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Sources as a tensor, [sources, positions], and their lengths."""
    lengths = torch.tensor([len(source) for source in sources])
    ids = torch.zeros(len(sources), max(int(lengths.max()), 1), dtype=torch.long)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = torch.tensor(source, dtype=torch.long)
    return ids, lengths
