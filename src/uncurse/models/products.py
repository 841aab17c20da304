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


class WholeProduct(Protocol):
    """Multiplies rows of whole numbers, given as floats, with weights that are whole numbers times a step."""

    lowest: int
    highest: int

    def __call__(self, wholes: Tensor) -> Tensor:
        """The products, float32."""
        ...


@final
class WideProduct:
    """Eight bits by eight, for devices that add up such products in 32 bits."""

    lowest: int = -128
    highest: int = 127

    def __init__(self, weight: Tensor, step: Tensor) -> None:
        self._weight = weight.t()
        self._step = step

    def __call__(self, wholes: Tensor) -> Tensor:
        """The products."""
        return torch._int_mm(wholes.to(torch.int8), self._weight).to(torch.float32).mul_(self._step)


@final
class PairedProduct:
    """Seven bits by eight, for CPUs that add up such products in pairs of 16 bits, which hold no more."""

    lowest: int = 0
    highest: int = 127

    def __init__(self, weight: Tensor, step: Tensor) -> None:
        self._weight = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)
        self._step = step
        self._zeros = torch.zeros(len(step), dtype=torch.int32)

    def __call__(self, wholes: Tensor) -> Tensor:
        """The products."""
        rows, steps = (wholes.to(torch.uint8), 1.0, 0), (self._weight, self._step, self._zeros)
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            *rows, *steps, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return products


@final
class Int8Product:
    """In whole numbers, which in each row go evenly from its lowest to its highest value.

    So the result of a row is the same in any batch. Its values are `low + step · whole`, hence its products are
    `step` times those of the wholes and `low` times the sums of the weights.
    """

    def __init__(self, matrix: Matrix, bias: Tensor | None) -> None:
        weight, step = matrix.wholes
        kind = PairedProduct if adds_in_pairs(weight.device) else WideProduct
        self._product: WholeProduct = kind(weight, step)
        self._sums = weight.sum(dim=1) * step  # [outputs]
        self._bias = torch.zeros_like(step) if bias is None else bias

    def __call__(self, rows: Tensor) -> Tensor:
        """The products."""
        flat, lowest, highest = rows.flatten(0, -2), self._product.lowest, self._product.highest
        low, high = flat.amin(dim=1, keepdim=True), flat.amax(dim=1, keepdim=True)
        step = (high - low).clamp_(min=1e-30).div_(highest - lowest)
        products = self._product((flat - low).div_(step).round_().add_(lowest))
        torch.addcmul(self._bias, products, step, out=products)
        return products.addcmul_(low - lowest * step, self._sums).view(*rows.shape[:-1], -1)


def adds_in_pairs(device: torch.device) -> bool:
    """Whether products of bytes are added up in pairs of 16 bits: on CPUs without AVX-512 VNNI."""
    return device.type == "cpu" and torch.cpu._is_avx2_supported() and not torch.cpu._is_vnni_supported()


def written(numbers: Numbers, device: torch.device) -> str:
    """How a signature says what products are computed in: seven bits give other results than eight."""
    if numbers is not Numbers.INT8:
        return numbers.value
    return "int8x7" if adds_in_pairs(device) else "int8x8"


def product_of(matrix: Matrix, bias: Tensor | None, numbers: Numbers) -> Product:
    """A product with some weights in some numbers."""
    if numbers is Numbers.INT8:
        return Int8Product(matrix, bias)
    dtype = getattr(torch, numbers.value)
    weight, bias = matrix.floats.to(dtype), None if bias is None else bias.to(dtype)
    packs = weight.device.type == "cpu" and numbers is not Numbers.FLOAT16 and torch.backends.mkldnn.enabled
    return PackedProduct(weight, bias) if packs else FloatProduct(weight, bias)
