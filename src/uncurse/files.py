"""Files that are there whole or not at all, and no more of them in memory than makes sense."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file under a temporary name beside it and rename it; a failure leaves what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Have a folder to oneself; it is free again when this process ends, however it ends."""
    import fcntl  # not on every system, and not everyone who writes a file holds a folder

    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is at work in {folder}: wait for it, or end it") from None
        yield


def sweep(folder: Path) -> None:
    """Remove what writers that were killed have left half-written; only for who has the folder to himself."""
    for left in folder.glob(".*.part"):
        left.unlink(missing_ok=True)


def read_at_most(path: Path, most: int) -> bytes:
    """The bytes of a file; one with more, or without an end, is refused before they fill the memory."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path} has more than {most} bytes")
    return content
