"""UTF-8 text, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from uncurse.errors import UncurseError

T = TypeVar("T")
LONGEST_LINE: Final = 1 << 20  # bytes; a file without a line break would fill the memory


class LineStream(Protocol):
    """What gives bytes line by line, such as a file."""

    def readline(self, max_bytes: int, /) -> bytes:
        """The next line with its line break, or so many bytes of it; nothing at the end."""
        ...


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file."""
    with path.open("rb") as file:
        return list(decode_lines(file, str(path)))


def sample(lines: Sequence[T], count: int | None) -> list[T]:
    """So many lines, evenly spread over the whole: the head of a news test is a few articles only."""
    count = min(count or len(lines), len(lines))
    return [lines[index * len(lines) // count] for index in range(count)]


def decode_lines(stream: LineStream, name: str) -> Iterator[str]:
    """The lines of a UTF-8 stream without their line breaks; errors give its name and the number of the line."""
    for number, raw in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), start=1):
        if len(raw) > LONGEST_LINE:
            raise UncurseError(f"{name}, line {number} has more than {LONGEST_LINE} bytes")
        try:
            yield raw.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError:
            raise UncurseError(f"{name}, line {number}: not valid UTF-8") from None
