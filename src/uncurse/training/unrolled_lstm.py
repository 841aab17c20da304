"""LSTM layers unrolled over all steps of a batch, with gradients that take fewer and larger matrix products.

PyTorch's own LSTM on a CPU adds up the gradient of a packed sequence once for every step, over the whole sequence.
Here the gradient of each weight matrix is one product over all steps. Arrays are time-major, so that each step is
contiguous, and both directions of an encoder are computed together, with one more dimension before the rows.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

GATES: Final = 4  # input, forget, cell, output, as in torch.nn.LSTM
MASK_BITS: Final = 16  # of randomness for each value of a dropout mask


class UnrolledLayer(NamedTuple):
    """A layer, with the activations that its gradient needs.

    In an encoder, `rows` stands for [directions, rows], and a weight has as many matrices.
    """

    weight: Tensor  # [4·hidden, input + hidden] in the dtype of products
    inputs: Tensor  # [steps + 1, rows, input + hidden] the input and the previous state, in that dtype too
    gates: Tensor  # [steps, rows, 4·hidden] until its step, the part that does not depend on earlier steps
    cell: Tensor  # [steps + 1, rows, hidden]
    tanh_cell: Tensor  # [steps, rows, hidden]
    d_gates: Tensor  # [steps, rows, 4·hidden] the gradient before the nonlinearities

    @staticmethod
    def start(weight: Tensor, gates: Tensor, state: Tensor, cell: Tensor) -> UnrolledLayer:
        """A layer before its first step."""
        steps, size = len(gates), state.shape[-1]
        inputs = weight.new_zeros(steps + 1, *state.shape[:-1], weight.shape[-1])
        inputs[0, ..., -size:] = state
        cells = cell.new_empty(steps + 1, *cell.shape)
        cells[0] = cell
        return UnrolledLayer(
            weight=weight,
            inputs=inputs,
            gates=gates,
            cell=cells,
            tanh_cell=cell.new_empty(steps, *cell.shape),
            d_gates=torch.empty_like(gates),
        )

    def forward(self, step: int, given: Tensor | None = None) -> Tensor:
        """The new state, [rows, hidden], after one more input, [rows, input], unless `gates` have it already."""
        size = self.cell.shape[-1]
        if given is not None:
            self.inputs[step, ..., :-size] = given
        gates = self.gates[step].add_(self.inputs[step] @ self.weight.mT)
        gates[..., : 2 * size].sigmoid_()
        gates[..., 2 * size : 3 * size].tanh_()
        gates[..., 3 * size :].sigmoid_()
        in_gate, forget_gate, candidate, out_gate = gates.chunk(GATES, dim=-1)
        cell = torch.mul(forget_gate, self.cell[step], out=self.cell[step + 1]).addcmul_(in_gate, candidate)
        state = out_gate * torch.tanh(cell, out=self.tanh_cell[step])
        self.inputs[step + 1, ..., -size:] = state
        return state

    def backward(self, step: int, d_state: Tensor, d_cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of the input, of the previous state and of the previous cell."""
        in_gate, forget_gate, candidate, out_gate = self.gates[step].chunk(GATES, dim=-1)
        d_in, d_forget, d_candidate, d_out = self.d_gates[step].chunk(GATES, dim=-1)
        tanh_cell, size = self.tanh_cell[step], self.cell.shape[-1]
        d_cell = torch.addcmul(d_cell, d_state * out_gate, 1.0 - tanh_cell * tanh_cell)
        torch.mul(d_cell * candidate, in_gate - in_gate * in_gate, out=d_in)
        torch.mul(d_cell * self.cell[step], forget_gate - forget_gate * forget_gate, out=d_forget)
        torch.mul(d_cell * in_gate, 1.0 - candidate * candidate, out=d_candidate)
        torch.mul(d_state * tanh_cell, out_gate - out_gate * out_gate, out=d_out)
        d_inputs = (self.d_gates[step].to(self.weight.dtype) @ self.weight).float()
        return d_inputs[..., :-size], d_inputs[..., -size:], d_cell * forget_gate

    def d_weight(self) -> Tensor:
        """The gradient of the weight."""
        d_gates, inputs = self.d_gates.to(self.weight.dtype), self.inputs[:-1]
        if self.weight.ndim == 2:
            return (d_gates.flatten(0, 1).T @ inputs.flatten(0, 1)).float()
        both = zip(d_gates.unbind(1), inputs.unbind(1), strict=True)
        return torch.stack([(one.flatten(0, 1).T @ two.flatten(0, 1)).float() for one, two in both])


@final
class _Recurrence(torch.autograd.Function):
    """All steps of a layer whose inputs are all known."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  (PyTorch's)
        dtype: torch.dtype,
        gates: Tensor,
        weight: Tensor,
        state: Tensor,
        cell: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """States and cells after each step, [steps, rows, hidden], from the gates' part of the inputs."""
        layer = UnrolledLayer.start(weight.to(dtype), gates.clone(), state, cell)
        states = torch.stack([layer.forward(step) for step in range(len(gates))])
        ctx.layer = layer
        return states, layer.cell[1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_cells: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """The gradients of all inputs of `forward`."""
        layer: UnrolledLayer = ctx.layer
        d_state, d_cell = torch.zeros_like(d_states[0]), torch.zeros_like(d_cells[0])
        for step in reversed(range(len(d_states))):
            _, d_state, d_cell = layer.backward(step, d_state + d_states[step], d_cell + d_cells[step])
        return None, layer.d_gates, layer.d_weight(), d_state, d_cell


def unrolled_layer(
    lstm: nn.LSTM, layer: int, inputs: Tensor, initial: tuple[Tensor, Tensor] | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """States and cells of one layer after each step, [steps, directions, rows, hidden].

    `inputs` are [steps, directions, rows, input], and `initial` the state and the cell before the first step, each
    [directions, rows, hidden], zeros if not given. Products are computed in `dtype`.
    """
    suffixes = ("", "_reverse") if lstm.bidirectional else ("",)

    def parameter(kind: str) -> Tensor:
        return torch.stack([getattr(lstm, f"{kind}_l{layer}{suffix}") for suffix in suffixes])

    steps, directions, rows, size = inputs.shape
    weight, bias = parameter("weight_ih").to(dtype), parameter("bias_ih") + parameter("bias_hh")
    flat = inputs.to(dtype).transpose(0, 1).reshape(directions, steps * rows, size)
    projected = (flat @ weight.mT).float().view(directions, steps, rows, -1).transpose(0, 1)
    state, cell = initial or (inputs.new_zeros(directions, rows, lstm.hidden_size, dtype=torch.float32),) * 2
    found: tuple[Tensor, Tensor] = _Recurrence.apply(  # type: ignore[no-untyped-call]
        dtype, projected + bias[:, None], parameter("weight_hh"), state, cell
    )
    return found


def dropped(values: Tensor, rate: float) -> Tensor:
    """Values after dropout."""
    return values * dropout_mask(values, values.shape, rate) if rate else values


def dropout_mask(like: Tensor, shape: torch.Size | tuple[int, ...], rate: float) -> Tensor:
    """Zeros with probability `rate`, to within 2⁻¹⁶, and otherwise what keeps the mean.

    One 64-bit random number decides on four values: PyTorch's own dropout takes a number and a logarithm for each.
    """
    count = int(torch.Size(shape).numel())
    bits = torch.empty(count * MASK_BITS // 64 + 1, dtype=torch.int64, device=like.device).random_(-(2**63), None)
    kept = bits.view(torch.int16)[:count] >= round(rate * 2**MASK_BITS) - 2 ** (MASK_BITS - 1)
    mask: Tensor = kept.view(shape).to(like.dtype).div_(1.0 - rate)
    return mask
