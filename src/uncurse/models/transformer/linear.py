"""Linear layers in float32, int8, bfloat16 or float16, each with the kernel that suits the machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, final

import torch
from torch import Tensor
from torch.nn.functional import linear

from uncurse.errors import UncurseError
from uncurse.models.transformer.quantization import (
    Int8Kernel,
    QuantizedRows,
    Weight,
    int8_kernel,
    max_quantized_value,
)


class ComputeType(StrEnum):
    """The type that linear layers compute in; everything between them is float32."""

    FLOAT32 = "float32"
    INT8 = "int8"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def signature(self) -> str:
        """The name, and for int8 the bits of activations on this CPU: seven give other results than eight."""
        return f"int8x{max_quantized_value().bit_length()}" if self is ComputeType.INT8 else self.value


@final
class LinearInput:
    """The input of one or more linear layers, quantised at most once for all of them."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows  # [..., inputs] float32
        self._quantized: dict[int, QuantizedRows] = {}

    def quantized(self, max_value: int) -> QuantizedRows:
        """The rows as uint8, 0 … max_value."""
        if max_value not in self._quantized:
            self._quantized[max_value] = QuantizedRows.of(self.rows.flatten(0, -2), max_value)
        return self._quantized[max_value]


class Linear(Protocol):
    """A linear layer: rows [..., inputs] times a weight matrix plus a bias."""

    def __call__(self, inputs: LinearInput) -> Tensor:
        """The outputs, [..., outputs] float32."""
        ...


@final
@dataclass(frozen=True, eq=False)
class FloatLinear:
    """A linear layer in floating point on any device."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor | None

    def __call__(self, inputs: LinearInput) -> Tensor:
        """The outputs, float32 whatever type they are computed in."""
        return linear(inputs.rows.to(self.weight.dtype), self.weight, self.bias).float()


@final
class PackedLinear:
    """A linear layer in floating point on a CPU, with weights packed once for oneDNN.

    Otherwise oneDNN packs them at every call, which costs the more the fewer rows there are.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = bias

    def __call__(self, inputs: LinearInput) -> Tensor:
        """The outputs, float32 whatever type they are computed in."""
        rows = inputs.rows.to(self._dtype).contiguous()
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return outputs.float()


@final
class Int8Linear:
    """A linear layer in int8.

    A row `x = minimum + step · q` gives `x W = step · (q W) + minimum · (1 W)`: the kernel computes `q W`, and the
    sums `1 W` of the weights are computed once.
    """

    def __init__(self, weight: Weight, bias: Tensor | None) -> None:
        values, step = weight.quantize()
        self._kernel: Int8Kernel = int8_kernel()(values, step, max_quantized_value())
        self._sums = values.sum(dim=1) * step  # [outputs]
        self._bias = torch.zeros_like(step) if bias is None else bias

    def __call__(self, inputs: LinearInput) -> Tensor:
        """The outputs."""
        quantized = inputs.quantized(self._kernel.max_value)
        outputs = self._kernel(quantized.values)
        torch.addcmul(self._bias, outputs, quantized.step, out=outputs)
        return outputs.addcmul_(quantized.minimum, self._sums).view(*inputs.rows.shape[:-1], len(self._sums))


def make_linear(weight: Weight, bias: Tensor | None, compute_type: ComputeType) -> Linear:
    """A linear layer that computes in this type, on the device of its weights."""
    if compute_type is ComputeType.INT8:
        if weight.values.device.type != "cpu":
            raise UncurseError("dtype int8 is for CPUs: on another device take float32, bfloat16 or float16")
        return Int8Linear(weight, bias)
    dtype = getattr(torch, compute_type.value)
    values, bias = weight.dequantize().to(dtype), None if bias is None else bias.to(dtype)
    packs = values.device.type == "cpu" and dtype != torch.float16 and torch.backends.mkldnn.enabled
    return PackedLinear(values, bias) if packs else FloatLinear(values, bias)
