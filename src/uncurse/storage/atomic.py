"""Files that are there whole or not at all, folders for one process at a time, and files read within bounds."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from uncurse.errors import UncurseError

_PARTIAL: Final = re.compile(r"\..+\.\d+\.part")  # with the number of the process; others' are not ours to remove


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name when it is complete; a failure leaves what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def atomic_write(path: Path, content: bytes | memoryview) -> None:
    """Write a file under a temporary name beside it and rename it; a failure leaves what was there before."""
    with atomic_file(path) as file:
        file.write(content)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Have a folder to oneself; the system frees it when this process ends, however it ends."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: there is nothing that a killed process would free
        yield
        return
    path = folder / ".lock"
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock.fileno()), path.stat()):  # the folder was replaced in between
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            raise UncurseError(f"another process is working in {folder}: wait for it, or end it") from None
        yield


def remove_partial(folder: Path) -> None:
    """Remove what killed writers have left half-written; the caller must hold the folder's lock."""
    for left in folder.glob(".*.part"):
        if _PARTIAL.fullmatch(left.name):
            left.unlink(missing_ok=True)


@contextmanager
def open_regular_file(path: Path, max_bytes: int) -> Iterator[BufferedReader]:
    """A file to read from; a folder, a pipe, a device or more than so many bytes is refused.

    A pipe could block forever, and a device such as /dev/zero never ends.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UncurseError(f"{path} is not a regular file")
    if found.st_size > max_bytes:
        raise UncurseError(f"{path} has more than {max_bytes} bytes")
    with path.open("rb") as file:
        yield file


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """The bytes of a file; see `open_regular_file`."""
    with open_regular_file(path, max_bytes) as file:
        size = path.stat().st_size
        content = file.read(size + 1)  # not max_bytes: `read` allocates what it is asked for
    if len(content) > size:
        raise UncurseError(f"{path} is being written to")
    return content
