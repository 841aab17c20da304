"""Products of rows with weights, in the numbers that a machine is good at, and an output layer that never holds
all of its logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, Self, final

import torch
from torch import Tensor
from torch.nn.functional import linear

from uncurse.models.lanes import Lanes

CHUNK: Final = 5120  # outputs whose logits are looked at while they lie in the cache
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
            chunk = _Chunk(product(rows), first)
            best = best.with_chunk(chunk, k)
            total = torch.logaddexp(total, chunk.log_sum())
        return best.values - total[:, None], best.tokens


@final
class _Chunk:
    """The logits of some outputs, in blocks of which only the highest is looked at first."""

    def __init__(self, logits: Tensor, first: int) -> None:
        self._logits = logits
        self._first = first
        self._block = math.gcd(BLOCK, logits.shape[1])
        # a block is every n-th output: then the highest of all blocks are found side by side
        self.peaks = logits.view(len(logits), self._block, -1).amax(dim=1)  # [rows, blocks]
        self.peak = self.peaks.amax(dim=1)  # [rows]

    def log_sum(self) -> Tensor:
        """The logarithm of the sum of all outputs' weights, [rows]."""
        # log-softmax goes through each row while it is near; its highest value tells the sum
        here = self.peak - self._logits.log_softmax(dim=1).amax(dim=1)
        return here.where(self.peak > -torch.inf, self.peak)

    def among(self, rows: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of some rows that reach a bar and their outputs, [rows, most]; the rest of a row is -inf."""
        row, block = torch.nonzero(self.peaks[rows] >= bar[:, None], as_tuple=True)
        outputs = block[:, None] + self.peaks.shape[1] * torch.arange(self._block, device=block.device)
        logits = self._logits[rows[row][:, None], outputs]
        found, member = torch.nonzero(logits >= bar[row][:, None], as_tuple=True)
        lanes = Lanes.of(row[found], len(rows))
        values = logits.new_full((len(rows), lanes.width), -torch.inf)
        values[lanes.sentence, lanes.lane] = logits[found, member]
        return values, lanes.spread(outputs[found, member] + self._first)

    def bar(self, k: int) -> Tensor:
        """A height that at least k outputs of each row reach: that of the k-th highest of blocks, [rows]."""
        if self.peaks.shape[1] < k:
            return self.peak.new_full(self.peak.shape, -torch.inf)
        heights, _ = self.peaks.topk(k, dim=1)
        return heights[:, -1]


@final
@dataclass(frozen=True, eq=False)
class _Best:
    """The k best outputs of each row so far, or all of them if there are fewer."""

    values: Tensor  # [rows, k] falling
    tokens: Tensor  # [rows, k]

    def with_chunk(self, chunk: _Chunk, k: int) -> Self:
        """The k best of these and of a chunk."""
        if self.values.shape[1] < k:
            every = torch.arange(len(self.values), device=self.values.device)
            return type(self)(*self._merged(*chunk.among(every, chunk.bar(k)), k))
        rows = torch.nonzero(chunk.peak > self.values[:, -1])[:, 0]
        if not len(rows):
            return self
        old = type(self)(self.values[rows], self.tokens[rows])
        values, tokens = old._merged(*chunk.among(rows, old.values[:, -1]), k)
        return type(self)(self.values.index_copy(0, rows, values), self.tokens.index_copy(0, rows, tokens))

    def _merged(self, values: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, tokens = torch.cat((self.values, values), dim=1), torch.cat((self.tokens, tokens), dim=1)
        values, kept = values.topk(min(k, values.shape[1]), dim=1)
        return values, tokens.gather(1, kept)
