"""The shards of an output put together, as text, JSON lines or Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

from uncurse.text.corpus_formats import CorpusFormat

if TYPE_CHECKING:
    import pyarrow


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
            records = [_row(json.loads(line)) for line in content.splitlines()]
            writer.write_table(pyarrow.Table.from_pylist(records, schema))


def _row(record: dict[str, Any]) -> dict[str, Any]:
    """A record as a row; ids are strings, since a column has one type."""
    name = record["id"]
    return {**record, "id": name if name is None or isinstance(name, str) else json.dumps(name)}


def _schema() -> pyarrow.Schema:
    """The fields of `uncurse.translation.records.json_line` as columns."""
    import pyarrow

    origin = [
        ("line", pyarrow.int64()),
        ("id", pyarrow.string()),
        ("source", pyarrow.string()),
        ("source_truncated", pyarrow.bool_()),
    ]
    hypothesis = [
        ("text", pyarrow.string()),
        ("tokens", pyarrow.list_(pyarrow.int64())),
        ("log_prob", pyarrow.float64()),
        ("token_log_probs", pyarrow.list_(pyarrow.float64())),
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
    return pyarrow.schema(origin + hypothesis + search)
