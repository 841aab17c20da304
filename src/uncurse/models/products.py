"""Products of rows with weights, in the numbers that a machine is good at, and an output layer that never holds
all of its logits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, Self, final

import torch
from torch import Tensor
from torch.nn.functional import linear

from uncurse.models.lanes import Lanes

CHUNK: Final = 5000  # outputs whose logits are looked at while they lie in the cache
BLOCK: Final = 16  # outputs of which the best is looked at first


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

    def rows(self, first: int, last: int) -> Self:
        """Some of the outputs."""
        return type(self)(self.values[first:last], None if self.scale is None else self.scale[first:last])


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
        products = products.mul_(self.step) if self.bias is None else torch.addcmul(self.bias, products, self.step)
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


@final
class OutputLayer:
    """The most likely outputs of each row, without a log-softmax: logits come in chunks and go again.

    A chunk is multiplied, summed up and searched while it lies in the cache. Only outputs that reach a row's bar,
    the k-th best so far, are taken out of it; where tokens are ordered by frequency that is next to none after
    the first chunks.
    """

    def __init__(self, matrix: Matrix, bias: Tensor, numbers: Numbers) -> None:
        self.outputs = len(bias)
        self._chunks = [
            (first, product_of(matrix.rows(first, first + CHUNK), bias[first : first + CHUNK], numbers))
            for first in range(0, self.outputs, CHUNK)
        ]

    def best(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and numbers of the k best outputs, falling, [rows, k]."""
        if 4 * k > self.outputs:  # most are wanted: sorted once is cheaper than again with every chunk
            logits = torch.cat([product(rows) for _, product in self._chunks], dim=1)
            return logits.log_softmax(dim=1).topk(k, dim=1)
        best = _Best(rows.new_empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.long, device=rows.device))
        total = rows.new_full((len(rows),), -torch.inf)
        for first, product in self._chunks:
            logits = product(rows)
            peak = logits.amax(dim=1)
            best = best.with_chunk(logits, peak, first, k)
            # log-softmax goes through each row while it is near; its highest value tells the sum of the chunk
            here = peak - logits.log_softmax(dim=1).amax(dim=1)
            total = torch.logaddexp(total, here.where(peak > -torch.inf, peak))
        return best.values - total[:, None], best.tokens


@final
@dataclass(frozen=True, eq=False)
class _Best:
    """The k best outputs of each row so far, or all of them if there are fewer."""

    values: Tensor  # [rows, k] falling
    tokens: Tensor  # [rows, k]

    def with_chunk(self, logits: Tensor, peak: Tensor, first: int, k: int) -> Self:
        """The k best of these and the outputs from `first` on, whose highest logits are given, [rows]."""
        if self.values.shape[1] < k:
            values, tokens = _among(logits, _bar(logits, k))
            return type(self)(*self._merged(values, tokens + first, k))
        rows = torch.nonzero(peak > self.values[:, -1])[:, 0]
        if not len(rows):
            return self
        old = type(self)(self.values[rows], self.tokens[rows])
        values, tokens = _among(logits[rows], old.values[:, -1])
        values, tokens = old._merged(values, tokens + first, k)
        return type(self)(self.values.index_copy(0, rows, values), self.tokens.index_copy(0, rows, tokens))

    def _merged(self, values: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, tokens = torch.cat((self.values, values), dim=1), torch.cat((self.tokens, tokens), dim=1)
        values, kept = values.topk(min(k, values.shape[1]), dim=1)
        return values, tokens.gather(1, kept)


def _among(logits: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """The logits that reach a bar and their places, [rows, most]; rows with fewer are filled up with -inf."""
    row, place = torch.nonzero(logits >= bar[:, None], as_tuple=True)
    lanes = Lanes.of(row, len(logits))
    values = logits.new_full((len(logits), lanes.width), -torch.inf)
    values[row, lanes.lane] = logits[row, place]
    return values, lanes.spread(place)


def _bar(logits: Tensor, k: int) -> Tensor:
    """A height that at least k outputs of each row reach: that of the k-th highest of blocks, [rows]."""
    blocks = logits.shape[1] // BLOCK
    if blocks < k:
        return logits.new_full((len(logits),), -torch.inf)
    peaks = logits[:, : blocks * BLOCK].reshape(len(logits), BLOCK, blocks).amax(dim=1)
    heights, _ = peaks.topk(k, dim=1)
    return heights[:, -1]
