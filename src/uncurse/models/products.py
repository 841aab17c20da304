"""Products of rows with weights, in the numbers that a machine is good at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
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


@final
@dataclass(frozen=True, eq=False)
class Wholes:
    """Rows in whole numbers, which in each row go evenly from its lowest to its highest value.

    So the result of a row is the same in any batch. Its values are `low + step · whole`.
    """

    values: Tensor  # [rows, inputs] uint8
    step: Tensor  # [rows, 1]
    low: Tensor  # [rows, 1]

    @classmethod
    def of(cls, rows: Tensor, highest: int) -> Self:
        """Rows, [rows, inputs], from 0 to a highest whole number."""
        low, high = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)  # aminmax is not vectorised
        step = (high - low).clamp_(min=1e-30).div_(highest)
        return cls((rows - low).div_(step).round_().to(torch.uint8), step, low)


@final
class Given:
    """Rows of floats that are to be multiplied, and made whole numbers once for all products that ask for them."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows  # [..., inputs]
        self._wholes: dict[int, Wholes] = {}

    def wholes(self, highest: int) -> Wholes:
        """The rows from 0 to a highest whole number."""
        if highest not in self._wholes:
            self._wholes[highest] = Wholes.of(self.rows.flatten(0, -2), highest)
        return self._wholes[highest]


class Product(Protocol):
    """Multiplies rows, [..., inputs], with weights and adds a bias, [..., outputs]."""

    def __call__(self, given: Given) -> Tensor:
        """The products."""
        ...


@final
@dataclass(frozen=True, eq=False)
class FloatProduct:
    """In floating point."""

    weight: Tensor  # [outputs, inputs]
    bias: Tensor | None

    def __call__(self, given: Given) -> Tensor:
        """The products, float32 whatever they are computed in."""
        return linear(given.rows.to(self.weight.dtype), self.weight, self.bias).float()


@final
class PackedProduct:
    """In floating point on a CPU, with weights laid out once as oneDNN likes them.

    A plain product lays them out anew each time, which costs the more the fewer rows there are.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = bias

    def __call__(self, given: Given) -> Tensor:
        """The products, float32 whatever they are computed in."""
        rows = given.rows.to(self._dtype).contiguous()
        products: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return products.float()


class WholeProduct(Protocol):
    """Multiplies bytes from 0 to a highest one with weights that are whole numbers times a step."""

    highest: int

    def __call__(self, wholes: Tensor) -> Tensor:
        """The products, float32, of rows of bytes, [rows, inputs]."""
        ...


@final
class PackedBytes:
    """On x86 CPUs, with weights laid out once as oneDNN likes them."""

    def __init__(self, weight: Tensor, step: Tensor, highest: int) -> None:
        self.highest = highest
        self._weight = torch.ops.onednn.qlinear_prepack(weight.contiguous(), None)
        self._step = step
        self._zeros = torch.zeros(len(step), dtype=torch.int32)

    def __call__(self, wholes: Tensor) -> Tensor:
        """The products."""
        weights = self._weight, self._step, self._zeros
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            wholes, 1.0, 0, *weights, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return products


@final
class PlainBytes:
    """On other CPUs, by a product whose bytes have signs."""

    def __init__(self, weight: Tensor, step: Tensor, highest: int) -> None:
        self.highest = highest
        self._weight = weight.t()
        self._step = step
        self._middle = 128 * weight.sum(dim=1, dtype=torch.int32)  # what is missing when 128 is taken off

    def __call__(self, wholes: Tensor) -> Tensor:
        """The products."""
        signed = wholes.bitwise_xor(128).view(torch.int8)
        return (torch._int_mm(signed, self._weight) + self._middle).to(torch.float32).mul_(self._step)


@final
class Int8Product:
    """In whole numbers: of a row `step` times those of the wholes, and `low` times the sums of the weights."""

    def __init__(self, matrix: Matrix, bias: Tensor | None) -> None:
        weight, step = matrix.wholes
        self._product: WholeProduct = kind_of_bytes()(weight, step, highest_byte())
        self._sums = weight.sum(dim=1) * step  # [outputs]
        self._bias = torch.zeros_like(step) if bias is None else bias

    def __call__(self, given: Given) -> Tensor:
        """The products."""
        wholes = given.wholes(self._product.highest)
        products = self._product(wholes.values)
        torch.addcmul(self._bias, products, wholes.step, out=products)
        return products.addcmul_(wholes.low, self._sums).view(*given.rows.shape[:-1], -1)


def kind_of_bytes() -> type[PackedBytes | PlainBytes]:
    """How this CPU multiplies bytes."""
    return PackedBytes if torch.backends.mkldnn.enabled and torch.cpu._is_avx2_supported() else PlainBytes


@cache
def highest_byte() -> int:
    """The highest byte whose products are exact here, found out by trying.

    With AVX-512 VNNI products are added up in 32 bits. Without it they are added up in pairs of 16 bits, which
    hold no more than seven bits by eight.
    """
    inputs, byte, weight = 64, 255, 127
    weights = torch.full((inputs, inputs), weight, dtype=torch.int8)
    product = kind_of_bytes()(weights, torch.ones(inputs), byte)
    found = product(torch.full((inputs, inputs), byte, dtype=torch.uint8))
    return byte if bool((found == inputs * byte * weight).all()) else 127


def written(numbers: Numbers) -> str:
    """How a signature says what products are computed in: seven bits give other results than eight."""
    return f"int8x{highest_byte().bit_length()}" if numbers is Numbers.INT8 else numbers.value


def product_of(matrix: Matrix, bias: Tensor | None, numbers: Numbers) -> Product:
    """A product with some weights in some numbers."""
    if numbers is Numbers.INT8 and matrix.values.device.type != "cpu":
        raise ValueError("dtype int8 is for CPUs: on another device take float32, bfloat16 or float16")
    if numbers is Numbers.INT8:
        return Int8Product(matrix, bias)
    dtype = getattr(torch, numbers.value)
    weight, bias = matrix.floats.to(dtype), None if bias is None else bias.to(dtype)
    packs = weight.device.type == "cpu" and numbers is not Numbers.FLOAT16 and torch.backends.mkldnn.enabled
    return PackedProduct(weight, bias) if packs else FloatProduct(weight, bias)
