"""The decoder with input feeding, unrolled over all steps of a batch as one autograd function.

It computes what `AttentionalLSTM.forward` computes step by step, with fewer and larger matrix products: the
embeddings of all steps are projected at once, and the gradient of each weight matrix is one product over all steps
instead of one product per step. Arrays are time-major, [steps, rows, size], so that each step is contiguous.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout

from uncurse.models.lstm.network import LAYERS, AttentionalLSTM

GATES: Final = 4  # input, forget, cell, output, as in torch.nn.LSTM
PARAMETERS: Final = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of a layer of torch.nn.LSTM


def attention_outputs(
    network: AttentionalLSTM, source: Tensor, lengths: Tensor, target: Tensor, dtype: torch.dtype
) -> Tensor:
    """What the output layer reads for given sources and target inputs, [sentences, steps, output].

    The decoder's products with weights are computed in `dtype`, and everything else in it in float32.
    """
    encoded, state = network.encode(source, lengths)
    embedded = network.dropout(network.embed_target(target.T))
    rate = network.shape.dropout if network.training else 0.0
    sizes = (network.shape.hidden, network.shape.output)
    masks = [dropout(embedded.new_ones(*target.T.shape, size), rate) if rate else None for size in sizes]
    with torch.autocast(source.device.type, enabled=False):
        outputs: Tensor = _InputFeedingDecoder.apply(  # type: ignore[no-untyped-call]
            dtype,
            encoded.padding,
            *masks,
            *(each.float() for each in (embedded, state.hidden, state.cell, encoded.states, encoded.keys)),
            *(getattr(network.decoder, f"{kind}_l{layer}") for layer in range(LAYERS) for kind in PARAMETERS),
            network.combine.weight,
        )
    return outputs.transpose(0, 1)


class _Layer(NamedTuple):
    """An LSTM layer, with the activations that its gradient needs."""

    weight: Tensor  # [4·hidden, input + hidden] in the dtype of products
    inputs: Tensor  # [steps + 1, rows, input + hidden] the input and the previous state, in that dtype too
    gates: Tensor  # [steps, rows, 4·hidden] until its step, the part that does not depend on earlier steps
    cell: Tensor  # [steps + 1, rows, hidden]
    tanh_cell: Tensor  # [steps, rows, hidden]
    d_gates: Tensor  # [steps, rows, 4·hidden] the gradient before the nonlinearities

    @staticmethod
    def start(weight: Tensor, gates: Tensor, state: Tensor, cell: Tensor) -> _Layer:
        """A layer before its first step."""
        steps, rows, size = len(gates), *state.shape
        inputs = weight.new_zeros(steps + 1, rows, weight.shape[1])
        inputs[0, :, -size:] = state
        cells = cell.new_empty(steps + 1, rows, size)
        cells[0] = cell
        return _Layer(
            weight=weight,
            inputs=inputs,
            gates=gates,
            cell=cells,
            tanh_cell=cell.new_empty(steps, rows, size),
            d_gates=torch.empty_like(gates),
        )

    def forward(self, step: int, given: Tensor) -> Tensor:
        """Feed the layer its input, [rows, input]: its new state, [rows, hidden]."""
        size = self.cell.shape[2]
        self.inputs[step, :, :-size] = given
        gates = self.gates[step].add_(self.inputs[step] @ self.weight.T)
        gates[:, : 2 * size].sigmoid_()
        gates[:, 2 * size : 3 * size].tanh_()
        gates[:, 3 * size :].sigmoid_()
        in_gate, forget_gate, candidate, out_gate = gates.chunk(GATES, dim=1)
        cell = torch.mul(forget_gate, self.cell[step], out=self.cell[step + 1]).addcmul_(in_gate, candidate)
        state = out_gate * torch.tanh(cell, out=self.tanh_cell[step])
        self.inputs[step + 1, :, -size:] = state
        return state

    def backward(self, step: int, d_state: Tensor, d_cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of the input, of the previous state and of the previous cell."""
        in_gate, forget_gate, candidate, out_gate = self.gates[step].chunk(GATES, dim=1)
        d_in, d_forget, d_candidate, d_out = self.d_gates[step].chunk(GATES, dim=1)
        tanh_cell, size = self.tanh_cell[step], self.cell.shape[2]
        d_cell = torch.addcmul(d_cell, d_state * out_gate, 1.0 - tanh_cell * tanh_cell)
        torch.mul(d_cell * candidate, in_gate - in_gate * in_gate, out=d_in)
        torch.mul(d_cell * self.cell[step], forget_gate - forget_gate * forget_gate, out=d_forget)
        torch.mul(d_cell * in_gate, 1.0 - candidate * candidate, out=d_candidate)
        torch.mul(d_state * tanh_cell, out_gate - out_gate * out_gate, out=d_out)
        d_inputs = (self.d_gates[step].to(self.weight.dtype) @ self.weight).float()
        return d_inputs[:, :-size], d_inputs[:, -size:], d_cell * forget_gate

    def d_weight(self) -> Tensor:
        """The gradient of the weight."""
        return (_flat(self.d_gates, self.weight.dtype).T @ self.inputs[:-1].flatten(0, 1)).float()


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
        scores = torch.bmm(self.keys, state[:, :, None])[:, :, 0].masked_fill_(self.padding, -torch.inf)
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
        weights, d_weights = self.weights[step], torch.bmm(self.states, d_inputs[:, :size, None])[:, :, 0]
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
        lower = _Layer.start(torch.cat((ih_0[:, size:], hh_0), dim=1).to(dtype), gates, hidden[0], cell[0])
        gates = (bias_ih_1 + bias_hh_1).repeat(steps, rows, 1)
        upper = _Layer.start(torch.cat((ih_1, hh_1), dim=1).to(dtype), gates, hidden[1], cell[1])
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


def _flat(values: Tensor, dtype: torch.dtype) -> Tensor:
    """All steps as rows of one matrix."""
    return values.to(dtype).flatten(0, 1)
