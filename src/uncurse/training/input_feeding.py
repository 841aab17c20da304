"""The decoder with input feeding, unrolled over all steps of a batch as one autograd function.

It computes what `AttentionalLSTM.forward` computes step by step, with fewer and larger matrix products: the
embeddings of all steps are projected at once, and the gradient of each weight matrix is one product over all
steps. Arrays are time-major, [steps, rows, size].
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from uncurse.models.lstm.network import LAYERS, AttentionalLSTM, DecoderState, EncoderOutput
from uncurse.training.unrolled_lstm import UnrolledLayer, dropout_mask

PARAMETERS: Final = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of a layer of torch.nn.LSTM


def input_feeding_outputs(
    network: AttentionalLSTM, encoded: EncoderOutput, state: DecoderState, embedded: Tensor, dtype: torch.dtype
) -> Tensor:
    """What the output layer reads after each step, [steps, sentences, output]; `embedded` are the target inputs.

    The decoder's products with weights are computed in `dtype`, and everything else in float32.
    """
    rate = network.shape.dropout if network.training else 0.0
    sizes = (network.shape.hidden, network.shape.output)
    masks = [dropout_mask(embedded, (*embedded.shape[:2], size), rate) if rate else None for size in sizes]
    with torch.autocast(embedded.device.type, enabled=False):
        outputs: Tensor = _InputFeedingDecoder.apply(  # type: ignore[no-untyped-call]
            dtype,
            encoded.padding,
            *masks,
            *(each.float() for each in (embedded, state.hidden, state.cell, encoded.states, encoded.keys)),
            *(getattr(network.decoder, f"{kind}_l{layer}") for layer in range(LAYERS) for kind in PARAMETERS),
            network.combine.weight,
        )
    return outputs


class _Attention(NamedTuple):
    """Global attention, with the activations that its gradient needs."""

    combine: Tensor  # [output, 2·hidden] in the dtype of products
    states: Tensor  # [rows, positions, hidden]
    keys: Tensor  # [rows, positions, hidden]
    padding: Tensor  # [rows, positions]
    weights: Tensor  # [steps, rows, positions]
    inputs: Tensor  # [steps, rows, 2·hidden] the context and the decoder's state
    outputs: Tensor  # [steps, rows, output]
    d_scores: Tensor  # [steps, rows, positions] the gradient before the softmax
    d_context: Tensor  # [steps, rows, hidden]
    d_outputs: Tensor  # [steps, rows, output] the gradient before tanh

    @staticmethod
    def start(combine: Tensor, states: Tensor, keys: Tensor, padding: Tensor, steps: int) -> _Attention:
        """Attention before its first step."""
        rows, positions, size = states.shape
        weights, outputs = states.new_empty(steps, rows, positions), states.new_empty(steps, rows, len(combine))
        return _Attention(
            combine=combine,
            states=states,
            keys=keys,
            padding=padding,
            weights=weights,
            inputs=states.new_empty(steps, rows, 2 * size),
            outputs=outputs,
            d_scores=torch.empty_like(weights),
            d_context=states.new_empty(steps, rows, size),
            d_outputs=torch.empty_like(outputs),
        )

    def forward(self, step: int, state: Tensor) -> Tensor:
        """The attention output, [rows, output]."""
        scores = _row_products(state, self.keys).masked_fill_(self.padding, -torch.inf)
        torch.softmax(scores, dim=1, out=self.weights[step])
        context = torch.bmm(self.weights[step][:, None], self.states)[:, 0]
        torch.cat((context, state), dim=1, out=self.inputs[step])
        combined = (self.inputs[step].to(self.combine.dtype) @ self.combine.T).float()
        return torch.tanh(combined, out=self.outputs[step])

    def backward(self, step: int, d_output: Tensor) -> Tensor:
        """The gradient of the decoder's state, [rows, hidden]."""
        size, output = self.states.shape[2], self.outputs[step]
        torch.mul(d_output, 1.0 - output * output, out=self.d_outputs[step])
        d_inputs = (self.d_outputs[step].to(self.combine.dtype) @ self.combine).float()
        self.d_context[step] = d_inputs[:, :size]
        weights, d_weights = self.weights[step], _row_products(d_inputs[:, :size], self.states)
        torch.mul(weights, d_weights - (weights * d_weights).sum(dim=1, keepdim=True), out=self.d_scores[step])
        return d_inputs[:, size:] + torch.bmm(self.d_scores[step][:, None], self.keys)[:, 0]

    def d_states(self) -> Tensor:
        """The gradient of the encoder's states."""
        return torch.bmm(self.weights.permute(1, 2, 0), self.d_context.transpose(0, 1))

    def d_keys(self) -> Tensor:
        """The gradient of the keys."""
        states = self.inputs[:, :, self.states.shape[2] :]
        return torch.bmm(self.d_scores.permute(1, 2, 0), states.transpose(0, 1))

    def d_combine(self) -> Tensor:
        """The gradient of the weight."""
        dtype = self.combine.dtype
        return (_flat(self.d_outputs, dtype).T @ _flat(self.inputs, dtype)).float()


@final
class _InputFeedingDecoder(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  (PyTorch's)
        dtype: torch.dtype,
        padding: Tensor,
        mask_between: Tensor | None,
        mask_output: Tensor | None,
        embedded: Tensor,
        hidden: Tensor,
        cell: Tensor,
        states: Tensor,
        keys: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        """The outputs after dropout, [steps, rows, output], which are fed back too."""
        ih_0, hh_0, bias_ih_0, bias_hh_0, ih_1, hh_1, bias_ih_1, bias_hh_1, combine = parameters
        steps, rows, size = embedded.shape
        into_embedding, inputs = ih_0[:, :size].to(dtype), _flat(embedded, dtype)
        gates = (inputs @ into_embedding.T).float().add_(bias_ih_0 + bias_hh_0).view(steps, rows, -1)
        lower = UnrolledLayer.start(torch.cat((ih_0[:, size:], hh_0), dim=1).to(dtype), gates, hidden[0], cell[0])
        gates = (bias_ih_1 + bias_hh_1).repeat(steps, rows, 1)
        upper = UnrolledLayer.start(torch.cat((ih_1, hh_1), dim=1).to(dtype), gates, hidden[1], cell[1])
        attention = _Attention.start(combine.to(dtype), states, keys, padding, steps)
        feed = embedded.new_zeros(rows, len(combine))
        outputs = []
        for step in range(steps):
            state = _masked(lower.forward(step, feed), mask_between, step)
            feed = _masked(attention.forward(step, upper.forward(step, state)), mask_output, step)
            outputs.append(feed)
        ctx.kept = (into_embedding, inputs, lower, upper, attention, mask_between, mask_output)
        return torch.stack(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_fed: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """The gradients of all inputs of `forward`."""
        into_embedding, inputs, lower, upper, attention, mask_between, mask_output = ctx.kept
        steps, rows, size = lower.tanh_cell.shape
        d_state_0 = d_state_1 = d_cell_0 = d_cell_1 = d_fed.new_zeros(rows, size)
        d_feed = torch.zeros_like(d_fed[0])
        for step in reversed(range(steps)):
            d_state_1 = d_state_1 + attention.backward(step, _masked(d_fed[step] + d_feed, mask_output, step))
            d_input, d_state_1, d_cell_1 = upper.backward(step, d_state_1, d_cell_1)
            d_state_0 = d_state_0 + _masked(d_input, mask_between, step)
            d_feed, d_state_0, d_cell_0 = lower.backward(step, d_state_0, d_cell_0)
        d_gates = _flat(lower.d_gates, into_embedding.dtype)
        d_lower, d_upper, output = lower.d_weight(), upper.d_weight(), d_fed.shape[2]
        d_bias_0, d_bias_1 = lower.d_gates.sum(dim=(0, 1)), upper.d_gates.sum(dim=(0, 1))
        return (
            *(None, None, None, None),
            (d_gates @ into_embedding).float().view(steps, rows, -1),
            torch.stack((d_state_0, d_state_1)),
            torch.stack((d_cell_0, d_cell_1)),
            attention.d_states(),
            attention.d_keys(),
            torch.cat(((d_gates.T @ inputs).float(), d_lower[:, :output]), dim=1),
            *(d_lower[:, output:], d_bias_0, d_bias_0),
            *(d_upper[:, :size], d_upper[:, size:], d_bias_1, d_bias_1),
            attention.d_combine(),
        )


def _masked(values: Tensor, mask: Tensor | None, step: int) -> Tensor:
    """Values after dropout."""
    return values if mask is None else values * mask[step]


def _row_products(rows: Tensor, matrices: Tensor) -> Tensor:
    """The products of a row, [rows, size], with those of its matrix, [rows, positions, size].

    The row comes first: with a column behind the matrix, PyTorch's product takes ten times as long on a CPU.
    """
    return torch.bmm(rows[:, None], matrices.transpose(1, 2))[:, 0]


def _flat(values: Tensor, dtype: torch.dtype) -> Tensor:
    """All steps as rows of one matrix."""
    return values.to(dtype).flatten(0, 1)
