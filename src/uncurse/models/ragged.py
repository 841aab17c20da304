"""Ragged beams as padded tensors, so that attention over all sentences of a batch is one matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class RaggedRows:
    """Where each row of a batch lies in a tensor [sentences, lanes, …] that is padded to the widest beam."""

    sentence: Tensor  # [rows] the sentence of each row, in rising order
    lane: Tensor  # [rows] the index of each row among the rows of its sentence
    sentences: int
    lanes: int  # the rows of the widest beam

    @classmethod
    def of(cls, sentence: Tensor, sentences: int) -> Self:
        """The layout of rows, given the sentence of each, [rows], in rising order."""
        counts = torch.bincount(sentence, minlength=sentences)
        lane = torch.arange(len(sentence), device=sentence.device) - (counts.cumsum(0) - counts)[sentence]
        return cls(sentence, lane, sentences, int(counts.max()))

    @property
    def _is_full(self) -> bool:
        return len(self.sentence) == self.sentences * self.lanes

    def pad(self, rows: Tensor) -> Tensor:
        """Rows, [rows, …], as [sentences, lanes, …]; lanes without a row are zero."""
        if self._is_full:
            return rows.view(self.sentences, self.lanes, *rows.shape[1:])
        padded = rows.new_zeros(self.sentences, self.lanes, *rows.shape[1:])
        padded[self.sentence, self.lane] = rows
        return padded

    def unpad(self, padded: Tensor) -> Tensor:
        """The rows, [rows, …], of a tensor [sentences, lanes, …]."""
        return padded.flatten(0, 1) if self._is_full else padded[self.sentence, self.lane]
