"""The output layer: the k most likely tokens of each row, without ever holding all logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self, final

import torch
from torch import Tensor

from uncurse.models.ragged import RaggedRows
from uncurse.models.transformer.linear import ComputeType, LinearInput, make_linear
from uncurse.models.transformer.quantization import Weight

CHUNK: Final = 2560  # tokens whose logits are computed and searched at once: they fit into the CPU's cache
BLOCK: Final = 16  # tokens of a chunk of which only the maximum is compared at first


@final
class OutputLayer:
    """Projection to the vocabulary with a fused top-k and log-softmax, a chunk of the vocabulary at a time.

    The logits of a chunk are computed, summed and searched while they are in the CPU's cache. Only logits that
    reach a row's threshold, its k-th best so far, are taken out; where tokens are ordered by frequency there are
    hardly any after the first chunks. Tokens that are not `allowed` are not computed and have no probability.
    """

    def __init__(
        self, weight: Weight, bias: Tensor, compute_type: ComputeType, allowed: Tensor | None = None
    ) -> None:
        self.vocab_size = len(bias)
        self._allowed = allowed  # in rising order
        if allowed is not None:
            weight, bias = weight.rows(allowed), bias[allowed]
        self._computed = len(bias)
        self._chunks = [
            (first, make_linear(weight.rows(chunk := slice(first, first + CHUNK)), bias[chunk], compute_type))
            for first in range(0, self._computed, CHUNK)
        ]

    def top_k(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and ids of the k most likely tokens, [rows, k]: falling, but by id if k is all."""
        inputs = LinearInput(rows)
        if 4 * k > self._computed:  # most of them: one sort is cheaper than one per chunk
            return self._top_k_of_all(inputs, k)
        best = _TopK(rows.new_empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.long, device=rows.device))
        total = rows.new_full((len(rows),), -torch.inf)
        for first, linear in self._chunks:
            chunk = _Chunk(linear(inputs), first)
            best = best.with_chunk(chunk, k)
            total = torch.logaddexp(total, chunk.log_sum_exp())
        tokens = best.tokens if self._allowed is None else self._allowed[best.tokens]
        return best.logits - total[:, None], tokens

    def _top_k_of_all(self, inputs: LinearInput, k: int) -> tuple[Tensor, Tensor]:
        logits = torch.cat([linear(inputs) for _, linear in self._chunks], dim=1)
        if self._allowed is not None:
            every = logits.new_full((len(logits), self.vocab_size), -torch.inf)
            logits = every.index_copy(1, self._allowed, logits)
        log_probs = logits.log_softmax(dim=1)
        if k == self.vocab_size:  # as in forced decoding: sorting would cost many times what computing does
            return log_probs, torch.arange(k, device=logits.device).expand(len(logits), k)
        return log_probs.topk(k, dim=1)


@final
class _Chunk:
    """The logits of a part of the vocabulary, in blocks of which only the maximum is compared at first."""

    def __init__(self, logits: Tensor, first: int) -> None:
        self._logits = logits  # [rows, tokens]
        self._first = first  # the id of the first token
        self._block = math.gcd(BLOCK, logits.shape[1])
        # A block is every n-th token, so that the maxima of all blocks are one vectorised operation.
        self.block_max = logits.view(len(logits), self._block, -1).amax(dim=1)  # [rows, blocks]
        self.max = self.block_max.amax(dim=1)  # [rows]

    def log_sum_exp(self) -> Tensor:
        """The logarithm of the sum of exponentials of each row, [rows]."""
        # Log-softmax reads each row while it is in the cache; with its maximum the sum is known.
        found = self.max - self._logits.log_softmax(dim=1).amax(dim=1)
        return found.where(self.max > -torch.inf, self.max)

    def at_least(self, rows: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of some rows that reach their threshold, [rows, most], padded with -inf, and their tokens."""
        row, block = torch.nonzero(self.block_max[rows] >= threshold[:, None], as_tuple=True)
        tokens = block[:, None] + self.block_max.shape[1] * torch.arange(self._block, device=block.device)
        logits = self._logits[rows[row][:, None], tokens]
        found, member = torch.nonzero(logits >= threshold[row][:, None], as_tuple=True)
        layout = RaggedRows.of(row[found], len(rows))
        padded = logits.new_full((len(rows), layout.lanes), -torch.inf)
        padded[layout.sentence, layout.lane] = logits[found, member]
        return padded, layout.pad(tokens[found, member] + self._first)

    def threshold(self, k: int) -> Tensor:
        """A logit that at least k tokens of each row reach: the k-th highest maximum of a block, [rows]."""
        if self.block_max.shape[1] < k:
            return self.max.new_full(self.max.shape, -torch.inf)
        highest, _ = self.block_max.topk(k, dim=1)
        return highest[:, -1]


@final
@dataclass(frozen=True, eq=False)
class _TopK:
    """The k best tokens of each row so far, or all of them if there are fewer."""

    logits: Tensor  # [rows, k] falling
    tokens: Tensor  # [rows, k]

    def with_chunk(self, chunk: _Chunk, k: int) -> Self:
        """The k best of these and of a chunk."""
        if self.logits.shape[1] < k:
            every = torch.arange(len(self.logits), device=self.logits.device)
            return type(self)(*self._merge(*chunk.at_least(every, chunk.threshold(k)), k))
        rows = torch.nonzero(chunk.max > self.logits[:, -1])[:, 0]
        if not len(rows):
            return self
        old = type(self)(self.logits[rows], self.tokens[rows])
        logits, tokens = old._merge(*chunk.at_least(rows, old.logits[:, -1]), k)
        return type(self)(self.logits.index_copy(0, rows, logits), self.tokens.index_copy(0, rows, tokens))

    def _merge(self, logits: Tensor, tokens: Tensor, k: int) -> tuple[Tensor, Tensor]:
        logits, tokens = torch.cat((self.logits, logits), dim=1), torch.cat((self.tokens, tokens), dim=1)
        logits, kept = logits.topk(min(k, logits.shape[1]), dim=1)
        return logits, tokens.gather(1, kept)
