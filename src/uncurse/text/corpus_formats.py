"""Corpus files: plain text, JSON lines and Parquet, read sentence by sentence."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, final

from uncurse.errors import UncurseError
from uncurse.storage.strict_json import parse_json
from uncurse.text.arriving_lines import ArrivingLines
from uncurse.text.lines import LONGEST_LINE, LineStream, decode_lines
from uncurse.text.parquet_rows import read_rows

FIELD: Final = "text"  # the field of a JSON line, or the column of a Parquet file, that holds the sentence
ID: Final = "id"  # and the one that names it, if there is any
STANDARD_INPUT: Final = Path("-")


class CorpusFormat(Enum):
    """The format of a corpus file."""

    TEXT = "a sentence on each line"
    JSON = "a JSON object on each line"
    PARQUET = "a row of a Parquet file for each sentence"

    @staticmethod
    def of(path: Path) -> CorpusFormat:
        """The format that a file's suffix stands for."""
        suffix = path.suffix.lower()
        return {".jsonl": CorpusFormat.JSON, ".parquet": CorpusFormat.PARQUET}.get(suffix, CorpusFormat.TEXT)


@final
@dataclass(frozen=True)
class CorpusLine:
    """A sentence and where it comes from."""

    text: str
    place: str  # its file and line, for a message
    id: str | float | None = None  # what its JSON line or its row has as `id`


@final
class Corpus:
    """The sentences of files, in order; standard input if there are none, or where a file is called `-`."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.files = tuple(files) or (STANDARD_INPUT,)
        self._arriving: ArrivingLines | None = None  # what is being read, if that is standard input

    def __iter__(self) -> Iterator[CorpusLine]:
        for path in self.files:
            if path == STANDARD_INPUT:
                self._arriving = ArrivingLines(sys.stdin.buffer)
                yield from _text_lines(self._arriving, "standard input")
                self._arriving = None
            elif CorpusFormat.of(path) is CorpusFormat.PARQUET:
                yield from _rows(path)
            else:
                yield from _file_lines(path)

    def is_idle(self) -> bool:
        """Whether the next sentence would have to be waited for."""
        return self._arriving is not None and self._arriving.is_idle()

    def count(self) -> int | None:
        """How many sentences there are; None if they can be read only once."""
        return sum(1 for _ in self) if all(path.is_file() for path in self.files) else None


def read_sentences(files: Iterable[Path]) -> Iterator[str]:
    """The sentences of files, in order; standard input if there are none."""
    return (line.text for line in Corpus(files))


def _file_lines(path: Path) -> Iterator[CorpusLine]:
    with path.open("rb") as file:
        lines = _text_lines(file, str(path))
        yield from lines if CorpusFormat.of(path) is CorpusFormat.TEXT else map(_json_line, lines)


def _text_lines(stream: LineStream, name: str) -> Iterator[CorpusLine]:
    for number, line in enumerate(decode_lines(stream, name), start=1):
        text = line.removeprefix("\ufeff") if number == 1 else line  # some editors write a byte order mark
        yield CorpusLine(text.rstrip("\r"), f"{name}, line {number}")


def _json_line(line: CorpusLine) -> CorpusLine:
    try:
        found = parse_json(line.text)
    except UncurseError as error:
        raise UncurseError(f"{line.place} is not valid JSON: {error}") from None
    table = found if isinstance(found, dict) else {}
    return CorpusLine(_sentence(table.get(FIELD), line.place), line.place, _id(table.get(ID), line.place))


def _rows(path: Path) -> Iterator[CorpusLine]:
    for number, (text, value) in enumerate(read_rows(path, FIELD, ID), start=1):
        place = f"{path}, row {number}"
        yield CorpusLine(_sentence(text, place), place, _id(value, place))


def _sentence(text: Any, place: str) -> str:  # noqa: ANN401  (whatever was in the file)
    if not isinstance(text, str):
        raise UncurseError(f"{place}: {FIELD!r} is missing or is not a string")
    line: str = text.rstrip("\r\n")
    if "\n" in line or "\r" in line:
        raise UncurseError(f"{place}: the text has more than one line")
    if len(line) > LONGEST_LINE:
        raise UncurseError(f"{place} has more than {LONGEST_LINE} characters")
    return line


def _id(value: Any, place: str) -> str | float | None:  # noqa: ANN401  (whatever was in the file)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not isinstance(value, str) and not is_number:
        raise UncurseError(f"{place}: {ID!r} is neither a string nor a number")
    name: str | float | None = value
    return name
