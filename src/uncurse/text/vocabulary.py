"""Subwords of models that come with a vocabulary: SentencePiece cuts, the vocabulary numbers."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from uncurse.registry import nearest
from uncurse.text.subwords import processor_of

END_PIECE: Final = "</s>"
UNKNOWN_PIECE: Final = "<unk>"
SPACE: Final = "\u2581"  # what SentencePiece writes for a space


def _script_of(letter: str) -> str:
    return unicodedata.name(letter, "unnamed").split()[0].lower()


@final
class Vocabulary:
    """Pieces and their ids."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = tuple(pieces)
        self._ids = {piece: index for index, piece in enumerate(self.pieces)}
        if len(self._ids) < len(self.pieces):
            raise ValueError("the vocabulary has a piece twice")
        for needed in (END_PIECE, UNKNOWN_PIECE):
            if needed not in self._ids:
                raise ValueError(f"the vocabulary has no {needed}")
        self.end = self._ids[END_PIECE]
        self.unknown = self._ids[UNKNOWN_PIECE]

    def __len__(self) -> int:
        return len(self.pieces)

    def find(self, piece: str) -> int | None:
        """The id of a piece."""
        return self._ids.get(piece)

    def without_script(self, script: str) -> list[int]:
        """The pieces without letters of a script, which is called as Unicode calls its letters: cjk, cyrillic."""
        script = script.strip().lower()
        written = [{_script_of(letter) for letter in piece if letter.isalpha()} for piece in self.pieces]
        if script not in (known := set().union(*written)):
            raise ValueError(f"no piece has letters of the script {script!r}{nearest(script, sorted(known))}")
        special = (self.end, self.unknown)
        return [index for index, scripts in enumerate(written) if index in special or script not in scripts]

    def text(self, ids: Sequence[int]) -> str:
        """The line that pieces spell; a `</s>` at the end is left out."""
        try:
            spelt = "".join(self.pieces[index] for index in ids if index != self.end)
        except IndexError:
            raise ValueError(f"a piece is none of the {len(self)} that are known") from None
        return spelt.replace(SPACE, " ").strip()


@final
class SentencePieces:
    """Lines cut by a SentencePiece model into pieces of a vocabulary."""

    def __init__(self, model: bytes, vocabulary: Vocabulary) -> None:
        self._processor = processor_of(model)
        self._vocabulary = vocabulary

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line, without `</s>`."""
        find, unknown = self._vocabulary.find, self._vocabulary.unknown
        cut: list[list[str]] = self._processor.encode(list(lines), out_type=str)
        return [[unknown if (found := find(piece)) is None else found for piece in pieces] for pieces in cut]

    def decode(self, pieces: Sequence[int]) -> str:
        """The line that pieces spell."""
        return self._vocabulary.text(pieces)


def read_pieces(path: Path, vocabulary: Vocabulary) -> SentencePieces:
    """The SentencePiece model of a file."""
    try:
        return SentencePieces(path.read_bytes(), vocabulary)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@final
class RankedPieces:
    """Lines cut into the most likely pieces of a vocabulary that is ordered by frequency.

    For models that come without the subword model of their target side. By Zipf's law the piece of rank r has a
    probability of about 1 / (r · H), H being the sum of 1 / r over all ranks; the cut of least cost is found by
    dynamic programming, word by word, since no piece goes beyond the space before a word.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._longest = max(len(piece) for piece in vocabulary.pieces)
        self._harmonic = math.log(sum(1.0 / rank for rank in range(1, len(vocabulary) + 1)))
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line, without `</s>`."""
        return [[piece for word in line.split() for piece in self._word(SPACE + word)] for line in lines]

    def decode(self, pieces: Sequence[int]) -> str:
        """The line that pieces spell."""
        return self._vocabulary.text(pieces)

    def _word(self, word: str) -> tuple[int, ...]:
        if word not in self._known:
            self._known[word] = self._cut(word)
        return self._known[word]

    def _cut(self, word: str) -> tuple[int, ...]:
        unknown = self._vocabulary.unknown
        best: list[tuple[float, int, int]] = [(0.0, 0, unknown)]  # cost, where the last piece begins, its id
        for end in range(1, len(word) + 1):
            ways = [(best[end - 1][0] + self._cost(len(self._vocabulary)), end - 1, unknown)]
            for start in range(max(0, end - self._longest), end):
                found = self._vocabulary.find(word[start:end])
                if found is not None:
                    ways.append((best[start][0] + self._cost(found), start, found))
            best.append(min(ways))
        pieces: list[int] = []
        end = len(word)
        while end:
            _, end, piece = best[end]
            pieces.append(piece)
        return tuple(reversed(pieces))

    def _cost(self, index: int) -> float:
        return math.log(index + 1) + self._harmonic
