"""Quantisation to int8: weights with a scale per row, activations with a range per row, and kernels for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, Self, final

import torch
from torch import Tensor
from torch.nn.functional import pad


@final
@dataclass(frozen=True, eq=False)
class Weight:
    """A weight matrix as it is stored: float32, or int8 with a scale per row, where `w = int8 / scale`."""

    values: Tensor  # [outputs, inputs] float32 or int8
    scale: Tensor | None = None  # [outputs], for int8

    def dequantize(self) -> Tensor:
        """The weights in float32, [outputs, inputs]."""
        return self.values.float() if self.scale is None else self.values.float() / self.scale[:, None]

    def quantize(self) -> tuple[Tensor, Tensor]:
        """The weights as int8, -127 … 127, [outputs, inputs], and the step of each row, [outputs]."""
        if self.scale is not None:
            return self.values, 1.0 / self.scale
        step = self.values.abs().amax(dim=1).clamp(min=1e-30) / 127.0
        return (self.values / step[:, None]).round().to(torch.int8), step

    def rows(self, which: slice | Tensor) -> Self:
        """Some of the rows, that is, of the outputs."""
        return type(self)(self.values[which], None if self.scale is None else self.scale[which])

    @classmethod
    def stack(cls, weights: Sequence[Self]) -> Self:
        """Matrices with the same inputs, and all of one type, as one matrix with the outputs of all."""
        scales = [weight.scale for weight in weights if weight.scale is not None]
        return cls(torch.cat([weight.values for weight in weights]), torch.cat(scales) if scales else None)

    def to(self, device: torch.device) -> Self:
        """The same weights on a device."""
        return type(self)(self.values.to(device), None if self.scale is None else self.scale.to(device))


@final
@dataclass(frozen=True, eq=False)
class QuantizedRows:
    """Activations as uint8; each row is spread evenly from its minimum to its maximum, `minimum + step · uint8`.

    As every row has its own range, its result does not depend on the batch it is in.
    """

    values: Tensor  # [rows, inputs] uint8
    step: Tensor  # [rows, 1]
    minimum: Tensor  # [rows, 1]

    @classmethod
    def of(cls, rows: Tensor, max_value: int) -> Self:
        """Quantise float rows, [rows, inputs], to 0 … max_value."""
        low, high = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)  # aminmax is not vectorised
        step = (high - low).clamp_(min=1e-30).div_(max_value)
        return cls((rows - low).div_(step).round_().to(torch.uint8), step, low)


class Int8Kernel(Protocol):
    """A matrix product of uint8 rows, up to a maximum, with int8 weights times their step."""

    max_value: int

    def __call__(self, rows: Tensor) -> Tensor:
        """The products, [rows, outputs] float32, of rows [rows, inputs] uint8."""
        ...


@final
class OneDNNInt8:
    """The kernel of oneDNN, for x86 CPUs; the weights are packed once."""

    def __init__(self, weight: Tensor, step: Tensor, max_value: int) -> None:
        self.max_value = max_value
        self._weight = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)
        self._step = step
        self._zero_points = torch.zeros(len(step), dtype=torch.int32)

    def __call__(self, rows: Tensor) -> Tensor:
        """The products."""
        weights = self._weight, self._step, self._zero_points
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            rows, 1.0, 0, *weights, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return products


@final
class PlainInt8:
    """A kernel for other CPUs, by PyTorch's product of two signed int8 matrices."""

    def __init__(self, weight: Tensor, step: Tensor, max_value: int) -> None:
        self.max_value = max_value
        self._one_input = weight.shape[1] == 1  # `_int_mm` gives nonsense for one input (PyTorch 2.13)
        self._weight = (pad(weight, (0, 1)) if self._one_input else weight).t()
        self._step = step
        self._correction = 128 * weight.sum(dim=1, dtype=torch.int32)  # for the 128 that makes the rows signed

    def __call__(self, rows: Tensor) -> Tensor:
        """The products."""
        padded = pad(rows, (0, 1)) if self._one_input else rows
        signed = padded.bitwise_xor(128).view(torch.int8)
        return (torch._int_mm(signed, self._weight) + self._correction).to(torch.float32).mul_(self._step)


def int8_kernel() -> type[OneDNNInt8 | PlainInt8]:
    """The int8 kernel for this CPU."""
    return OneDNNInt8 if torch.backends.mkldnn.enabled and torch.cpu._is_avx2_supported() else PlainInt8


@cache
def max_quantized_value() -> int:
    """The largest uint8 whose products are exact on this CPU, found by trying: 255 or 127.

    With AVX-512 VNNI products are accumulated in 32 bits. Without it they are added in pairs in 16 bits, which
    hold no more than seven bits by eight.
    """
    inputs, largest, weight = 64, 255, 127
    weights = torch.full((inputs, inputs), weight, dtype=torch.int8)
    kernel = int8_kernel()(weights, torch.ones(inputs), largest)
    found = kernel(torch.full((inputs, inputs), largest, dtype=torch.uint8))
    return largest if bool((found == inputs * largest * weight).all()) else 127
