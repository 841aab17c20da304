"""Text files, line by line."""

from __future__ import annotations

from pathlib import Path


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file."""
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not valid UTF-8") from None
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
