"""An output layer that never holds all of its logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self, final

import torch
from torch import Tensor

from uncurse.models.lanes import Lanes
from uncurse.models.products import Given, Matrix, Numbers, product_of

CHUNK: Final = 2560  # outputs whose logits are looked at while they lie in the cache
BLOCK: Final = 16  # outputs of which the best is looked at first


@final
class OutputLayer:
    """The most likely outputs of each row, without a log-softmax: logits come in chunks and go again.

    A chunk is multiplied, summed up and searched while it lies in the cache. Only outputs that reach a row's bar,
    the k-th best so far, are taken out of it; where tokens are ordered by frequency that is next to none after
    the first chunks. If only some outputs are `allowed`, the others are not computed, and share no probability.
    """

    def __init__(self, matrix: Matrix, bias: Tensor, numbers: Numbers, allowed: Tensor | None = None) -> None:
        self.outputs = len(bias)
        self._allowed = allowed  # rising
        if allowed is not None:
            matrix, bias = matrix.rows(allowed), bias[allowed]
        self._computed = len(bias)
        self._chunks = [
            (first, product_of(matrix.rows(chunk := slice(first, first + CHUNK)), bias[chunk], numbers))
            for first in range(0, self._computed, CHUNK)
        ]

    def best(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and numbers of the k best outputs, [rows, k]: falling, but all as they come."""
        given = Given(rows)
        if 4 * k > self._computed:  # most are wanted: sorted once is cheaper than again with every chunk
            logits = torch.cat([product(given) for _, product in self._chunks], dim=1)
            if self._allowed is not None:
                every = logits.new_full((len(rows), self.outputs), -torch.inf)
                logits = every.index_copy(1, self._allowed, logits)
            log_probs = logits.log_softmax(dim=1)
            if k == self.outputs:  # as in forced decoding: sorting would cost many times what computing does
                return log_probs, torch.arange(k, device=rows.device).expand(len(rows), k)
            return log_probs.topk(k, dim=1)
        best = _Best(rows.new_empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.long, device=rows.device))
        total = rows.new_full((len(rows),), -torch.inf)
        for first, product in self._chunks:
            chunk = _Chunk(product(given), first)
            best = best.with_chunk(chunk, k)
            total = torch.logaddexp(total, chunk.log_sum())
        tokens = best.tokens if self._allowed is None else self._allowed[best.tokens]
        return best.values - total[:, None], tokens


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
