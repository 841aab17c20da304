"""The LSTM of the paper: a bidirectional encoder and a decoder with global attention (Luong et al. 2015)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from uncurse.errors import UncurseError
from uncurse.scoring.decoding import checked_count

LAYERS = 2


@final
@dataclass(frozen=True)
class LSTMShape:
    """The sizes of the network."""

    source_vocab_size: int
    target_vocab_size: int
    embedding: int
    hidden: int  # of the decoder; each direction of the encoder has half
    dropout: float = 0.0
    input_feed: bool = True  # feed each step the attention output of the previous one (Luong et al. 2015)
    tied: bool = False  # share the target embeddings with the output layer

    def __post_init__(self) -> None:
        for name in ("source_vocab_size", "target_vocab_size", "embedding", "hidden"):
            checked_count(name, getattr(self, name))
        if self.hidden % 2:
            raise UncurseError(f"hidden = {self.hidden} is not allowed: it must be even, the encoder halves it")
        if not 0.0 <= self.dropout < 1.0:
            raise UncurseError(f"dropout = {self.dropout} is not allowed: dropout must be in [0, 1)")

    @property
    def output(self) -> int:
        """The size of the vectors that the output layer reads."""
        return self.embedding if self.tied else self.hidden


class EncoderOutput(NamedTuple):
    """The encoder's states of each sentence, and the keys of cross-attention made from them."""

    states: Tensor  # [sentences, positions, hidden]
    keys: Tensor  # [sentences, positions, hidden]
    padding: Tensor  # [sentences, positions] True where there is no token


class DecoderState(NamedTuple):
    """The recurrent state of the decoder."""

    hidden: Tensor  # [layers, rows, hidden]
    cell: Tensor  # [layers, rows, hidden]
    feed: Tensor  # [rows, output] the attention output of the last step


@final
class AttentionalLSTM(nn.Module):
    """Encoder, decoder, attention and output layer."""

    def __init__(self, shape: LSTMShape) -> None:
        nn.Module.__init__(self)
        self.shape = shape
        hidden, feed = shape.hidden, shape.output if shape.input_feed else 0
        self.source_embedding = nn.Embedding(shape.source_vocab_size, shape.embedding)
        self.encoder = nn.LSTM(
            shape.embedding, hidden // 2, LAYERS, batch_first=True, bidirectional=True, dropout=shape.dropout
        )
        self.target_embedding = nn.Embedding(shape.target_vocab_size, shape.embedding)
        self.decoder = nn.LSTM(shape.embedding + feed, hidden, LAYERS, batch_first=True, dropout=shape.dropout)
        self.attention = nn.Linear(hidden, hidden, bias=False)
        self.combine = nn.Linear(2 * hidden, shape.output, bias=False)
        self.output = nn.Linear(shape.output, shape.target_vocab_size)
        if shape.tied:
            self.output.weight = self.target_embedding.weight
        self.dropout = nn.Dropout(shape.dropout)
        self._initialise()

    def _initialise(self) -> None:
        """Initialise with embeddings of unit variance and open forget gates.

        Were the embeddings as small as output weights must be, the first layers would hardly see the words, and
        attention would take many times as long to form.
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
        """Tied embeddings are kept small, as output weights must be, and scaled up where they are read."""
        return math.sqrt(self.shape.embedding) if self.shape.tied else 1.0

    def embed_target(self, tokens: Tensor) -> Tensor:
        """The embeddings of target tokens."""
        embedded: Tensor = self.target_embedding(tokens) * self._target_scale
        return embedded

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[EncoderOutput, DecoderState]:
        """Encode padded sources, [sentences, positions]; the decoder starts from the encoder's last states."""
        embedded = self.dropout(self.source_embedding(source))
        # An empty source is encoded as one padding token, the only one that attention then sees.
        packed = pack_padded_sequence(embedded, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        packed_states, (hidden, cell) = self.encoder(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        padding = torch.arange(source.shape[1]) >= lengths.clamp(min=1)[:, None]
        feed = states.new_zeros(len(source), self.shape.output)
        initial = DecoderState(_both_directions(hidden), _both_directions(cell), feed)
        return EncoderOutput(states, self.attention(states), padding.to(states.device)), initial

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Teacher forcing: the logits of each next token, [sentences, steps, target vocabulary]."""
        return self.logits(self.attended(source, lengths, target))

    def attended(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Teacher forcing: what the output layer reads, [sentences, steps, output]."""
        encoded, state = self.encode(source, lengths)
        embedded = self.dropout(self.embed_target(target))
        if not self.shape.input_feed:
            states, _ = self.decoder(embedded, (state.hidden, state.cell))
            attended, _ = self.attend(encoded, states)
            dropped: Tensor = self.dropout(attended)
            return dropped
        outputs = []
        for step in range(target.shape[1]):
            attended, state = self._step(encoded, state, embedded[:, step])
            outputs.append(attended)
        return torch.stack(outputs, dim=1)

    def logits(self, attended: Tensor) -> Tensor:
        """The output layer."""
        logits: Tensor = self.output(attended)
        return logits

    def advance(self, state: DecoderState, embedded: Tensor) -> tuple[Tensor, DecoderState]:
        """Feed the decoder one token in each row: its output, [rows, hidden], and its new state."""
        inputs = torch.cat((embedded, state.feed), dim=1) if self.shape.input_feed else embedded
        output, (hidden, cell) = self.decoder(inputs[:, None], (state.hidden, state.cell))
        return output[:, 0], DecoderState(hidden, cell, state.feed)

    def attend(self, encoded: EncoderOutput, states: Tensor) -> tuple[Tensor, Tensor]:
        """Global attention: outputs, [sentences, steps, output], and weights, [sentences, steps, positions]."""
        scores = torch.bmm(states, encoded.keys.transpose(1, 2))
        weights = scores.masked_fill(encoded.padding[:, None], -torch.inf).softmax(dim=-1)
        context = torch.bmm(weights, encoded.states)
        return torch.tanh(self.combine(torch.cat((context, states), dim=-1))), weights

    def _step(self, encoded: EncoderOutput, state: DecoderState, embedded: Tensor) -> tuple[Tensor, DecoderState]:
        """One decoder step for one row per sentence: the attention output, [sentences, output], and the state."""
        output, state = self.advance(state, embedded)
        attended, _ = self.attend(encoded, output[:, None])
        attended = self.dropout(attended[:, 0])
        return attended, state._replace(feed=attended)

    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy weights by name, whatever their precision."""
        _check_weights(self, tensors)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(tensors[name])

    def parameter_count(self) -> int:
        """The number of parameters; shared ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())


def network_of(shape: LSTMShape, tensors: Mapping[str, Tensor]) -> AttentionalLSTM:
    """A network with these weights; their shapes are checked before memory is allocated for it."""
    with torch.device("meta"):
        _check_weights(AttentionalLSTM(shape), tensors)
    network = AttentionalLSTM(shape)
    network.load_weights(tensors)
    return network


def _check_weights(network: AttentionalLSTM, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        tensor = tensors.get(name)
        if tensor is None:
            raise UncurseError(f"{name!r} is missing")
        if tensor.shape != parameter.shape or not tensor.is_floating_point():
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise UncurseError(f"{name!r} is {found}; expected floats {tuple(parameter.shape)}")
        if not bool(tensor.isfinite().all()):
            raise UncurseError(f"{name!r} has a value that is not finite")


def _both_directions(states: Tensor) -> Tensor:
    """`[layers · 2, sentences, half]` as `[layers, sentences, hidden]`."""
    _, sentences, half = states.shape
    return states.view(LAYERS, 2, sentences, half).transpose(1, 2).reshape(LAYERS, sentences, 2 * half)
