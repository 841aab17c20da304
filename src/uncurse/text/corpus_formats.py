"""Corpus files: plain text, JSON lines and Parquet, read sentence by sentence and written shard by shard."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from uncurse.errors import UncurseError
from uncurse.storage.strict_json import parse_json
from uncurse.text.lines import LONGEST_LINE, decode_lines

if TYPE_CHECKING:
    import pyarrow

FIELD: Final = "text"  # the field of a JSON line, or the column of a Parquet file, that holds the sentence


class CorpusFormat(Enum):
    """The format of a corpus file."""

    TEXT = "a sentence on each line"
    JSON = "a JSON object on each line"
    PARQUET = "a row of a Parquet file for each sentence"

    @staticmethod
    def of(path: Path) -> CorpusFormat:
        """The format that a file's suffix stands for."""
        return {".jsonl": CorpusFormat.JSON, ".parquet": CorpusFormat.PARQUET}.get(path.suffix, CorpusFormat.TEXT)


def read_sentences(files: Iterable[Path]) -> Iterator[str]:
    """The sentences of files, in order; standard input if there are none."""
    files = list(files)
    if not files:
        yield from _decoded(sys.stdin.buffer, "standard input")
    for path in files:
        corpus_format = CorpusFormat.of(path)
        if corpus_format is CorpusFormat.PARQUET:
            yield from _rows(path)
            continue
        with path.open("rb") as file:
            lines = _decoded(file, str(path))
            yield from lines if corpus_format is CorpusFormat.TEXT else _fields(lines, path)


def write_corpus(corpus_format: CorpusFormat, contents: Iterable[bytes], file: BinaryIO) -> None:
    """Write the lines of shards; for Parquet they are JSON records, and each shard becomes a row group."""
    if corpus_format is not CorpusFormat.PARQUET:
        for content in contents:
            file.write(content)
        return
    import pyarrow.parquet

    schema = _schema()
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for content in contents:
            records = [json.loads(line) for line in content.splitlines()]
            writer.write_table(pyarrow.Table.from_pylist(records, schema))


def _decoded(file: BinaryIO, name: str) -> Iterator[str]:
    return (line.rstrip("\r") for line in decode_lines(file, name))


def _fields(lines: Iterator[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            found = parse_json(line)
        except ValueError:
            raise UncurseError(f"{path}, line {number}: not JSON") from None
        text = found.get(FIELD) if isinstance(found, dict) else None
        yield _sentence(text, f"{path}, line {number}")


def _rows(path: Path) -> Iterator[str]:
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(path).names
        if FIELD not in names:
            raise UncurseError(f"{path} has no column {FIELD!r}: {', '.join(names)}")
        # Parquet stores a repeated text once; as a dictionary it takes no more memory when it is read.
        with pyarrow.parquet.ParquetFile(path, read_dictionary=[FIELD]) as file:
            number = 0
            for batch in file.iter_batches(columns=[FIELD]):
                for value in batch.column(0):
                    number += 1
                    yield _sentence(value.as_py(), f"{path}, row {number}")
    except KeyError:  # the column is nested: it has columns of its own
        raise UncurseError(f"{path}: the column {FIELD!r} is not a column of strings") from None
    except pyarrow.ArrowException as error:
        raise UncurseError(f"{path} is not a valid Parquet file: {error}") from None


def _sentence(text: Any, where: str) -> str:  # noqa: ANN401  (whatever was in the file)
    if not isinstance(text, str):
        raise UncurseError(f"{where}: {FIELD!r} is missing or is not a string")
    if len(text.splitlines()) > 1:
        raise UncurseError(f"{where}: the text has more than one line")
    if len(text) > LONGEST_LINE:
        raise UncurseError(f"{where} has more than {LONGEST_LINE} characters")
    if not text.isascii() and any(0xD800 <= ord(letter) < 0xE000 for letter in text):
        raise UncurseError(f"{where}: not valid Unicode")
    return text


def _schema() -> pyarrow.Schema:
    """The fields of `uncurse.translation.records.record_of` as columns."""
    import pyarrow

    hypothesis = [
        ("text", pyarrow.string()),
        ("tokens", pyarrow.list_(pyarrow.int64())),
        ("log_prob", pyarrow.float64()),
        ("score", pyarrow.float64()),
        ("length", pyarrow.int64()),
    ]
    search = [
        ("expected_length", pyarrow.float64()),
        ("certificate", pyarrow.string()),
        ("gap", pyarrow.float64()),
        ("steps", pyarrow.int64()),
        ("model_rows", pyarrow.int64()),
        ("signature", pyarrow.string()),
        ("others", pyarrow.list_(pyarrow.struct(hypothesis))),
    ]
    return pyarrow.schema(hypothesis + search)
