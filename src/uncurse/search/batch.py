"""The sentences and the live prefixes of a batch, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.scoring.decoding import Sentence
from uncurse.scoring.rescorer import Source, without_prefix


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """The sentences being searched."""

    ticket: Ints  # [batch] the number by which the outside knows a sentence
    slot: Ints  # [batch] its place in the history
    step: Ints  # [batch] t; below 1 while the prefix is being forced
    rows_run: Ints  # [batch] prefixes the model was run on so far
    min_length: Ints  # [batch]
    source: Source  # [batch]
    sentences: tuple[Sentence, ...]

    def __len__(self) -> int:
        return len(self.ticket)

    @staticmethod
    def starting(sentences: Sequence[Sentence], ticket: Ints, slot: Ints) -> Batch:
        """Sentences before their first step."""
        known = [each.expected_length for each in sentences if each.expected_length is not None]
        expected_length = np.array(
            [np.nan if each.expected_length is None else each.expected_length for each in sentences]
        )
        prefix = _ints(len(each.prefix) for each in sentences)
        source = Source(
            _ints(len(each.source) for each in sentences),
            _ints(each.max_length for each in sentences),
            prefix,
            without_prefix(expected_length, prefix) if known else None,
        )
        fewest = _ints(each.min_length for each in sentences)
        return Batch(
            ticket=ticket,
            slot=slot,
            step=-prefix,
            rows_run=np.zeros_like(prefix),
            min_length=fewest,
            source=source,
            sentences=tuple(sentences),
        )

    def holders(self, tickets: Sequence[int]) -> Bools:
        """Which sentences have one of some tickets, [batch]."""
        for ticket in tickets:
            if ticket not in self.ticket:
                raise KeyError(f"no sentence with ticket {ticket} is being searched for")
        return np.isin(self.ticket, tickets)

    def take(self, positions: Ints) -> Batch:
        """The sentences at some positions."""
        return Batch(
            ticket=self.ticket[positions],
            slot=self.slot[positions],
            step=self.step[positions],
            rows_run=self.rows_run[positions],
            min_length=self.min_length[positions],
            source=self.source.take(positions),
            sentences=tuple(self.sentences[position] for position in positions),
        )

    def joined(self, other: Batch) -> Batch:
        """These sentences and then the others."""
        one, two = self.source, other.source
        expected = None
        if one.expected_length_or_none is not None or two.expected_length_or_none is not None:
            expected = np.concatenate(
                [
                    np.full(len(source.length), np.nan)
                    if source.expected_length_or_none is None
                    else source.expected_length_or_none
                    for source in (one, two)
                ]
            )
        source = Source(
            np.concatenate((one.length, two.length)),
            np.concatenate((one.max_length, two.max_length)),
            np.concatenate((one.prefix, two.prefix)),
            expected,
        )
        return Batch(
            ticket=np.concatenate((self.ticket, other.ticket)),
            slot=np.concatenate((self.slot, other.slot)),
            step=np.concatenate((self.step, other.step)),
            rows_run=np.concatenate((self.rows_run, other.rows_run)),
            min_length=np.concatenate((self.min_length, other.min_length)),
            source=source,
            sentences=self.sentences + other.sentences,
        )


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """The live prefixes, those of a sentence together and the best first: the rows of the model's state."""

    sentence: Ints  # [rows] position in the batch
    lane: Ints  # [rows] place among the live prefixes of the sentence
    rank: Ints  # [rows] place among the continuations of the step that made it
    token: Ints  # [rows] the last token
    log_prob: Floats  # [rows] S
    coverage: Floats | None  # [rows, positions] attention each source piece has received

    def __len__(self) -> int:
        return len(self.sentence)

    @staticmethod
    def starting(source: Source, bos: int, attention: bool) -> Rows:
        """The empty prefix of each sentence."""
        batch = len(source.length)
        zeros = np.zeros(batch, dtype=np.int64)
        coverage = np.zeros((batch, int(source.length.max(initial=0)))) if attention else None
        return Rows(
            sentence=np.arange(batch),
            lane=zeros,
            rank=zeros,
            token=np.full(batch, bos),
            log_prob=np.zeros(batch),
            coverage=coverage,
        )

    def joined(self, other: Rows, batch: int) -> Rows:
        """These rows and then those of sentences that join a batch of the given size."""
        coverage = None
        if self.coverage is not None and other.coverage is not None:
            positions = max(self.coverage.shape[1], other.coverage.shape[1])
            coverage = np.concatenate((_padded(self.coverage, positions), _padded(other.coverage, positions)))
        return Rows(
            sentence=np.concatenate((self.sentence, other.sentence + batch)),
            lane=np.concatenate((self.lane, other.lane)),
            rank=np.concatenate((self.rank, other.rank)),
            token=np.concatenate((self.token, other.token)),
            log_prob=np.concatenate((self.log_prob, other.log_prob)),
            coverage=coverage,
        )

    def take(self, rows: Ints) -> Rows:
        """Some of the rows."""
        return Rows(
            sentence=self.sentence[rows],
            lane=self.lane[rows],
            rank=self.rank[rows],
            token=self.token[rows],
            log_prob=self.log_prob[rows],
            coverage=None if self.coverage is None else self.coverage[rows],
        )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _padded(coverage: Floats, positions: int) -> Floats:
    return np.pad(coverage, ((0, 0), (0, positions - coverage.shape[1])))
