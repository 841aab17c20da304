"""Rows of ragged beams laid out by sentence, so that one product serves all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class Lanes:
    """Where each row of a batch lies when every sentence has room for the widest beam."""

    sentence: Tensor  # [rows] rising
    lane: Tensor  # [rows] place among the rows of its sentence
    sentences: int
    width: int

    @classmethod
    def of(cls, sentence: Tensor, sentences: int) -> Self:
        """The layout of rows that belong to given sentences."""
        counts = torch.bincount(sentence, minlength=sentences)
        lane = torch.arange(len(sentence), device=sentence.device) - (counts.cumsum(0) - counts)[sentence]
        return cls(sentence, lane, sentences, int(counts.max()))

    @property
    def _is_full(self) -> bool:
        return len(self.sentence) == self.sentences * self.width

    def spread(self, rows: Tensor) -> Tensor:
        """Rows by sentence and lane, [sentences, lanes, …]; lanes without a row are zero."""
        if self._is_full:
            return rows.view(self.sentences, self.width, *rows.shape[1:])
        laid_out = rows.new_zeros(self.sentences, self.width, *rows.shape[1:])
        laid_out[self.sentence, self.lane] = rows
        return laid_out

    def gather(self, laid_out: Tensor) -> Tensor:
        """The rows of what lies by sentence and lane."""
        return laid_out.flatten(0, 1) if self._is_full else laid_out[self.sentence, self.lane]
