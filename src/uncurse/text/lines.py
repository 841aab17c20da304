"""UTF-8 text files as lists of lines."""

from __future__ import annotations

from pathlib import Path

from uncurse.errors import UncurseError


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UncurseError(f"{path}, line {line}: not valid UTF-8") from None
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
