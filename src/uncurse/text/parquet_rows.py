"""Rows of Parquet files, read a few at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from uncurse.errors import UncurseError
from uncurse.storage.atomic import open_regular_file

if TYPE_CHECKING:
    import pyarrow

ROWS: Final = 16  # read at once; a row may have a megabyte, and a file can repeat it at no cost
BUFFER: Final = 1 << 20  # bytes; without it a column of a row group is read as a whole
MAX_CHUNK: Final = 1 << 26  # bytes of a column in a row group when it is unpacked …
MAX_EXPANSION: Final = 100  # … and so many more for each byte of the file


def read_rows(path: Path, required: str, optional: str) -> Iterator[tuple[Any, Any]]:
    """The values of two columns, row by row; the second is None in a file that does not have it."""
    import pyarrow.parquet

    done = 0
    try:
        with (
            open_regular_file(path, sys.maxsize) as opened,
            pyarrow.parquet.ParquetFile(opened, buffer_size=BUFFER, pre_buffer=False) as file,
        ):
            columns = [name for name in (required, optional) if name in file.schema_arrow.names]
            _check_columns(file.schema_arrow, path, required, optional)
            _check_sizes(file.metadata, path, columns)
            for batch in file.iter_batches(ROWS, columns=columns):
                others = batch.column(optional) if optional in columns else [None] * len(batch)
                for value, other in zip(batch.column(required), others, strict=True):
                    yield value.as_py(), other and other.as_py()
                    done += 1
    except UnicodeDecodeError:
        raise UncurseError(f"{path}, row {done + 1}: not valid UTF-8") from None
    except (pyarrow.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # of the system, not of Arrow, which raises the same without a file
            raise
        raise UncurseError(f"{path} is not a valid Parquet file: {error}") from None


def _check_columns(schema: pyarrow.Schema, path: Path, required: str, optional: str) -> None:
    """Refuse columns that are missing or doubled, or that hold neither text nor, if optional, numbers.

    Nested ones could hold gigabytes in a small file; Python has no values for some dates and times.
    """
    for name in (required, optional):
        count = schema.names.count(name)
        if count > 1 or (name == required and not count):
            found = ", ".join(schema.names)
            raise UncurseError(f"{path} must have one column {name!r}; it has the columns {found}")
        if count and not _is_plain(schema.field(name).type, numbers=name == optional):
            kind = "strings or numbers" if name == optional else "strings"
            raise UncurseError(f"{path}: the column {name!r} is not a column of {kind}")


def _is_plain(kind: pyarrow.DataType, numbers: bool) -> bool:
    """Whether a column of this type holds strings, or else numbers where they are allowed."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return True
    return numbers and (types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind))


def _check_sizes(metadata: pyarrow.parquet.FileMetaData, path: Path, columns: Sequence[str]) -> None:
    """Refuse a file that is unpacked to far more than it holds: 50 kilobytes can be a gigabyte of spaces."""
    most = MAX_CHUNK + MAX_EXPANSION * path.stat().st_size
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.path_in_schema in columns and chunk.total_uncompressed_size > most:
                raise UncurseError(
                    f"{path} is out of proportion: its column {chunk.path_in_schema!r} would take"
                    f" {chunk.total_uncompressed_size} bytes; for a file of this size the maximum is {most}"
                )
