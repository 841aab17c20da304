"""Where a command writes: nowhere that it also reads from."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from uncurse.errors import UncurseError
from uncurse.text.corpus_formats import STANDARD_INPUT


def check_output(out: Path | None, inputs: Iterable[Path | str | None]) -> None:
    """Refuse a path that cannot be written to, or that a command reads from; None is standard output."""
    if out is not None:
        if not out.absolute().parent.is_dir():
            raise UncurseError(f"--out {out}: there is no folder {out.parent}")
        if out.is_dir():
            raise UncurseError(f"--out {out} is a folder: name a file")
        if out.exists() and not out.is_file():
            raise UncurseError(f"--out {out} is not a regular file: omit --out to write to standard output")
    written = _stream_status(sys.stdout) if out is None else _path_status(out)
    for path in inputs:
        read = None if path is None else _path_status(Path(path))
        if written is not None and read is not None and os.path.samestat(written, read):
            name = f"standard output ({path})" if out is None else f"--out {out}"
            raise UncurseError(f"{name} is also an input: choose another file")


def _path_status(path: Path) -> os.stat_result | None:
    if path == STANDARD_INPUT:
        return _stream_status(sys.stdin)
    try:
        return path.stat()
    except OSError:  # there is none, or its name is too long
        return None


def _stream_status(stream: IO[Any]) -> os.stat_result | None:
    """The file that a stream was redirected to or from, if that is one."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or not a stream of the system
        return None
    return status if stat.S_ISREG(status.st_mode) else None
