"""The paper's translator: a bidirectional LSTM encoder and an LSTM decoder with global attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from uncurse.decoding import checked_count

LAYERS = 2


@final
@dataclass(frozen=True)
class LSTMShape:
    """The sizes of the network."""

    source_vocabulary: int
    target_vocabulary: int
    embedding: int
    hidden: int  # of the decoder; each direction of the encoder has half
    dropout: float = 0.0
    input_feed: bool = True  # give each step the attention output of the one before (Luong et al. 2015)
    tied: bool = False  # use the target embeddings as output weights too

    def __post_init__(self) -> None:
        for name in ("source_vocabulary", "target_vocabulary", "embedding", "hidden"):
            checked_count(name, getattr(self, name))
        if self.hidden % 2:
            raise ValueError(f"hidden = {self.hidden} is not allowed: the encoder halves it, so it must be even")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout = {self.dropout} is not allowed: dropout must be in [0, 1)")

    @property
    def output(self) -> int:
        """The size of what the output weights see."""
        return self.embedding if self.tied else self.hidden


class Memory(NamedTuple):
    """What the encoder says of each sentence."""

    states: Tensor  # [sentences, positions, hidden]
    keys: Tensor  # [sentences, positions, hidden] the states as attention compares them
    padding: Tensor  # [sentences, positions] True where there is no piece


class Carry(NamedTuple):
    """What the decoder carries from step to step."""

    hidden: Tensor  # [layers, rows, hidden]
    cell: Tensor  # [layers, rows, hidden]
    feed: Tensor  # [rows, output] the last attention output


@final
class AttentionalLSTM(nn.Module):
    """Encoder, decoder and attention."""

    def __init__(self, shape: LSTMShape) -> None:
        nn.Module.__init__(self)
        self.shape = shape
        hidden, feed = shape.hidden, shape.output if shape.input_feed else 0
        self.source_embedding = nn.Embedding(shape.source_vocabulary, shape.embedding)
        self.encoder = nn.LSTM(
            shape.embedding, hidden // 2, LAYERS, batch_first=True, bidirectional=True, dropout=shape.dropout
        )
        self.target_embedding = nn.Embedding(shape.target_vocabulary, shape.embedding)
        self.decoder = nn.LSTM(shape.embedding + feed, hidden, LAYERS, batch_first=True, dropout=shape.dropout)
        self.attention = nn.Linear(hidden, hidden, bias=False)
        self.combine = nn.Linear(2 * hidden, shape.output, bias=False)
        self.output = nn.Linear(shape.output, shape.target_vocabulary)
        if shape.tied:
            self.output.weight = self.target_embedding.weight
        self.dropout = nn.Dropout(shape.dropout)
        self._initialise()

    def _initialise(self) -> None:
        """Start with embeddings of unit variance and gates that remember.

        With embeddings as small as output weights have to be, the first layers see next to nothing of the words,
        and attention takes many times as long to form.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
            if "bias_ih" in name:  # input, forget, cell, output
                quarter = len(parameter) // 4
                nn.init.ones_(parameter[quarter : 2 * quarter].detach())
        nn.init.normal_(self.source_embedding.weight)
        nn.init.normal_(self.target_embedding.weight, std=1.0 / self._target_scale)

    @property
    def _target_scale(self) -> float:
        """Embeddings that are output weights too are kept small, and enlarged where they are read."""
        return math.sqrt(self.shape.embedding) if self.shape.tied else 1.0

    def embed_target(self, tokens: Tensor) -> Tensor:
        """The embeddings of target tokens."""
        embedded: Tensor = self.target_embedding(tokens) * self._target_scale
        return embedded

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Memory, Carry]:
        """Read padded sources, [sentences, positions]; the decoder starts from the encoder's last states."""
        embedded = self.dropout(self.source_embedding(source))
        # An empty source is read as one padding piece, which attention then sees alone.
        packed = pack_padded_sequence(embedded, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        packed_states, (hidden, cell) = self.encoder(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        padding = torch.arange(source.shape[1]) >= lengths.clamp(min=1)[:, None]
        feed = states.new_zeros(len(source), self.shape.output)
        carry = Carry(_both_directions(hidden), _both_directions(cell), feed)
        return Memory(states, self.attention(states), padding.to(states.device)), carry

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Logits of every next token for given target inputs, [sentences, steps, target vocabulary]."""
        memory, carry = self.encode(source, lengths)
        embedded = self.dropout(self.embed_target(target))
        if not self.shape.input_feed:
            states, _ = self.decoder(embedded, (carry.hidden, carry.cell))
            attended, _ = self.attend(memory, states)
            return self.logits(self.dropout(attended))
        outputs = []
        for step in range(target.shape[1]):
            attended, _, carry = self.step(memory, carry, embedded[:, step])
            outputs.append(attended)
        return self.logits(torch.stack(outputs, dim=1))

    def logits(self, attended: Tensor) -> Tensor:
        """The output layer."""
        logits: Tensor = self.output(attended)
        return logits

    def step(self, memory: Memory, carry: Carry, embedded: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """One decoder step for one row per sentence: attention output, attention weights, what is carried on."""
        state, after = self.advance(carry, embedded)
        attended, weights = self.attend(memory, state[:, None])
        attended = self.dropout(attended[:, 0])
        return attended, weights[:, 0], after._replace(feed=attended)

    def advance(self, carry: Carry, embedded: Tensor) -> tuple[Tensor, Carry]:
        """Feed the decoder one token in each row: its state, [rows, hidden], and what is carried on."""
        seen = torch.cat((embedded, carry.feed), dim=1) if self.shape.input_feed else embedded
        state, (hidden, cell) = self.decoder(seen[:, None], (carry.hidden, carry.cell))
        return state[:, 0], Carry(hidden, cell, carry.feed)

    def attend(self, memory: Memory, states: Tensor) -> tuple[Tensor, Tensor]:
        """Global attention: outputs, [sentences, steps, output], and weights, [sentences, steps, positions]."""
        scores = torch.bmm(states, memory.keys.transpose(1, 2))
        weights = scores.masked_fill(memory.padding[:, None], -torch.inf).softmax(dim=-1)
        context = torch.bmm(weights, memory.states)
        return torch.tanh(self.combine(torch.cat((context, states), dim=-1))), weights

    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Take weights by name, in whatever precision they are given."""
        _check_weights(self, tensors)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(tensors[name])

    def parameter_count(self) -> int:
        """How many numbers are learnt; shared ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())


def loaded_network(shape: LSTMShape, tensors: Mapping[str, Tensor]) -> AttentionalLSTM:
    """A network with given weights; whether they fit is found out before there is memory for it."""
    with torch.device("meta"):
        _check_weights(AttentionalLSTM(shape), tensors)
    network = AttentionalLSTM(shape)
    network.load_weights(tensors)
    return network


def _check_weights(network: AttentionalLSTM, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        tensor = tensors.get(name)
        if tensor is None:
            raise ValueError(f"it lacks {name!r}")
        if tensor.shape != parameter.shape or not tensor.is_floating_point():
            found = f"{tuple(tensor.shape)} of {tensor.dtype}"
            raise ValueError(f"{name!r} has the shape {found} and not {tuple(parameter.shape)}")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name!r} has a number that is not finite")


def _both_directions(states: Tensor) -> Tensor:
    """`[layers · 2, sentences, half]` as `[layers, sentences, hidden]`."""
    _, sentences, half = states.shape
    return states.view(LAYERS, 2, sentences, half).transpose(1, 2).reshape(LAYERS, sentences, 2 * half)
