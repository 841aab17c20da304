"""Lines of a stream, and whether the next one is there already or would have to be waited for."""

from __future__ import annotations

import os
import select
from typing import Any, BinaryIO, Final, final

from uncurse.text.lines import LONGEST_LINE

CHUNK: Final = 1 << 16  # bytes; a pipe holds as many


@final
class ArrivingLines:
    """A pipe, a terminal or a file, read line by line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: Any = stream  # the type of binary streams lacks read1
        self._buffer = bytearray()
        self._ended = False

    def readline(self, max_bytes: int) -> bytes:
        """The next line with its line break, or so many bytes of it; nothing at the end."""
        while not self._has_line():
            self._read()
        newline = self._buffer.find(b"\n", 0, max_bytes)
        size = newline + 1 if newline >= 0 else max_bytes
        line = bytes(self._buffer[:size])
        del self._buffer[:size]
        return line

    def is_idle(self) -> bool:
        """Whether the next line has not arrived; a file is never idle."""
        while not self._has_line():
            if not self._is_readable():
                return True
            self._read()
        return False

    def _has_line(self) -> bool:
        return self._ended or b"\n" in self._buffer or len(self._buffer) > LONGEST_LINE

    def _read(self) -> None:
        chunk = self._stream.read1(CHUNK)  # what is there; it waits only if there is nothing
        self._buffer += chunk
        self._ended = not chunk

    def _is_readable(self) -> bool:
        try:
            return bool(select.select([self._stream.fileno()], [], [], 0)[0])
        except OSError:  # no descriptor to ask about, or Windows, where only sockets can be asked
            return not (os.name == "nt" and self._stream.isatty())
