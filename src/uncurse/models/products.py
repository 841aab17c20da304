"""Products of rows with weights, in the numbers that a machine is good at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self, final

import torch
from torch import Tensor
from torch.nn.functional import linear


class Numbers(StrEnum):
    """What products are computed in; everything between them is float32."""

    FLOAT32 = "float32"
    INT8 = "int8"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


@final
@dataclass(frozen=True, eq=False)
class Matrix:
    """Weights as they are stored: floats, or whole numbers with a scale for each row, `w = whole / scale`."""

    values: Tensor  # [outputs, inputs] float32 or int8
    scale: Tensor | None = None  # [outputs]

    @property
    def floats(self) -> Tensor:
        """The weights."""
        return self.values.float() if self.scale is None else self.values.float() / self.scale[:, None]

    @property
    def wholes(self) -> tuple[Tensor, Tensor]:
        """The weights as whole numbers from -127 to 127 and the step between them in each row."""
        if self.scale is not None:
            return self.values, 1.0 / self.scale
        step = self.values.abs().amax(dim=1).clamp(min=1e-30) / 127.0
        return (self.values / step[:, None]).round().to(torch.int8), step

    def rows(self, which: slice | Tensor) -> Self:
        """Some of the outputs."""
        return type(self)(self.values[which], None if self.scale is None else self.scale[which])


class Product(Protocol):
    """Multiplies rows, [rows, inputs], with weights and adds a bias, [rows, outputs]."""

    def __call__(self, rows: Tensor) -> Tensor:
        """The products."""
        ...


@final
@dataclass(frozen=True, eq=False)
class FloatProduct:
    """In floating point."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor | None

    def __call__(self, rows: Tensor) -> Tensor:
        """The products, float32 whatever they are computed in."""
        return linear(rows.to(self.weight.dtype), self.weight, self.bias).float()


@final
class PackedProduct:
    """In floating point on a CPU, with weights laid out once as oneDNN likes them.

    A plain product lays them out anew each time, which costs the more the fewer rows there are.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = bias

    def __call__(self, rows: Tensor) -> Tensor:
        """The products, float32 whatever they are computed in."""
        given = rows.to(self._dtype).contiguous()
        products: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._weight, self._bias, "none", [], "")
        return products.float()


@final
@dataclass(frozen=True, eq=False)
class Int8Product:
    """In whole numbers: each row of the input has its own step, so that its result is the same in any batch."""

    weight: Tensor  # [inputs, outputs] int8
    step: Tensor  # [outputs]
    bias: Tensor | None

    def __call__(self, rows: Tensor) -> Tensor:
        """The products."""
        flat = rows.flatten(0, -2)
        step = flat.abs().amax(dim=1, keepdim=True).clamp_(min=1e-30).div_(127.0)
        wholes = torch._int_mm((flat / step).round_().to(torch.int8), self.weight)
        products = wholes.to(torch.float32).mul_(step)
        if self.bias is None:
            products.mul_(self.step)
        else:
            torch.addcmul(self.bias, products, self.step, out=products)
        return products.view(*rows.shape[:-1], -1)


def product_of(matrix: Matrix, bias: Tensor | None, numbers: Numbers) -> Product:
    """A product with some weights in some numbers."""
    if numbers is Numbers.INT8:
        wholes, step = matrix.wholes
        return Int8Product(wholes.t(), step, bias)
    dtype = getattr(torch, numbers.value)
    weight, bias = matrix.floats.to(dtype), None if bias is None else bias.to(dtype)
    packs = weight.device.type == "cpu" and numbers is not Numbers.FLOAT16 and torch.backends.mkldnn.enabled
    return PackedProduct(weight, bias) if packs else FloatProduct(weight, bias)
