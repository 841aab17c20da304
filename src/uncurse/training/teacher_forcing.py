"""The network on whole sentence pairs, as `AttentionalLSTM.attended` has it, but faster to train."""

from __future__ import annotations

import torch
from torch import Tensor

from uncurse.models.lstm.network import LAYERS, AttentionalLSTM, DecoderState, EncoderOutput
from uncurse.training.input_feeding import input_feeding_outputs
from uncurse.training.unrolled_lstm import dropped, unrolled_layer


def attention_outputs(
    network: AttentionalLSTM, source: Tensor, lengths: Tensor, target: Tensor, dtype: torch.dtype
) -> Tensor:
    """What the output layer reads for given sources and target inputs, [sentences, steps, output].

    The products of the LSTM layers are computed in `dtype`.
    """
    rate = network.shape.dropout if network.training else 0.0
    encoded, state = _encode(network, source, lengths.to(source.device), rate, dtype)
    values = dropped(network.embed_target(target.T), rate)
    if network.shape.input_feed:
        return input_feeding_outputs(network, encoded, state, values, dtype).transpose(0, 1)
    for layer in range(LAYERS):
        initial = (state.hidden[layer : layer + 1], state.cell[layer : layer + 1])
        states, _ = unrolled_layer(network.decoder, layer, values[:, None], initial, dtype)
        values = dropped(states[:, 0], rate) if layer < LAYERS - 1 else states[:, 0]
    attended, _ = network.attend(encoded, values.transpose(0, 1))
    return dropped(attended, rate)


def _encode(
    network: AttentionalLSTM, source: Tensor, lengths: Tensor, rate: float, dtype: torch.dtype
) -> tuple[EncoderOutput, DecoderState]:
    """Both directions of the encoder at once; the second reads the tokens of each sentence in reverse order."""
    sentences, positions = source.shape
    lengths = lengths.clamp(min=1)  # an empty source is one padding token
    steps = torch.arange(positions, device=source.device)[:, None]
    mirrored = torch.where(steps < lengths, lengths - 1 - steps, steps)
    order = (mirrored * sentences + torch.arange(sentences, device=source.device)).flatten()
    last = (lengths - 1)[None, None, :, None]

    def in_reverse(values: Tensor) -> Tensor:
        return values.flatten(0, 1).index_select(0, order).view_as(values)

    values, hidden, cell = network.source_embedding(source.T), [], []
    for layer in range(LAYERS):
        values = dropped(values, rate)
        both = torch.stack((values, in_reverse(values)), dim=1)
        states, cells = unrolled_layer(network.encoder, layer, both, None, dtype)
        hidden.append(_at(states, last))
        cell.append(_at(cells, last))
        values = torch.cat((states[:, 0], in_reverse(states[:, 1])), dim=-1)
    padding = (steps >= lengths).T
    found = values.transpose(0, 1).masked_fill(padding[:, :, None], 0.0)
    feed = found.new_zeros(sentences, network.shape.output)
    initial = DecoderState(torch.stack(hidden), torch.stack(cell), feed)
    return EncoderOutput(found, network.attention(found), padding), initial


def _at(values: Tensor, last: Tensor) -> Tensor:
    """The values of both directions after the last token of each sentence, [sentences, hidden]."""
    forward, backward = values.gather(0, last.expand(1, *values.shape[1:]))[0]
    return torch.cat((forward, backward), dim=-1)
