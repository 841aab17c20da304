"""A reader in a process of its own, with little memory and little time: whatever it does, the test goes on."""

from __future__ import annotations

import os
import resource
import signal
import struct
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self, final

from uncurse import UncurseError

ROOM = 1 << 29  # bytes beyond what the test itself has
SECONDS = 20  # of CPU time, which other processes do not change …
WAIT = 10 * SECONDS  # … and of any time, for a reader that waits
LIFE = 500  # files that one process reads, so that nothing piles up in it
FREE = 1 << 26  # bytes of memory that any folder may take
PER_BYTE = 60  # and so many more for each of its own


class Outcome(Enum):
    """What became of a file."""

    SAME = "read as before"
    OTHER = "read as something else"
    REFUSED = "refused"
    FAULT = "fault"


@final
@dataclass(frozen=True)
class Verdict:
    """What became of a file, and the words for it."""

    outcome: Outcome
    words: str


@final
class Sandbox:
    """A child that reads one folder after the other; one that ends before its time is replaced."""

    def __init__(self, read: Callable[[Path], str]) -> None:
        self._read = read
        self._child = 0
        self._left = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def tried(self, folder: Path, expected: str) -> Verdict:
        """Read a folder; only the errors that the command tells in one line are no fault."""
        if not self._left:
            self._end()
            self._start()
        self._left -= 1
        self._asked.write(f"{folder}\n".encode())
        self._asked.flush()
        size = self._said.read(4)
        if len(size) < 4:
            return Verdict(Outcome.FAULT, f"ended by {self._end()}")
        kind, _, words = self._said.read(*struct.unpack("<I", size)).decode().partition(" ")
        if kind == "read":
            return Verdict(Outcome.SAME if words == expected else Outcome.OTHER, words)
        return Verdict(Outcome.REFUSED if kind == "refused" else Outcome.FAULT, words)

    def _start(self) -> None:
        asked, said = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork and threads; this child starts none
            self._child = os.fork()
        if not self._child:
            os.close(asked[1])
            os.close(said[0])
            _serve(self._read, asked[0], said[1])
        os.close(asked[0])
        os.close(said[1])
        self._asked, self._said = os.fdopen(asked[1], "wb"), os.fdopen(said[0], "rb")
        self._left = LIFE

    def _end(self) -> str:
        """Let the child go and say how it went."""
        if not self._child:
            return "nothing"
        self._asked.close()
        self._said.close()
        _, status = os.waitpid(self._child, 0)
        self._child = self._left = 0
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        return f"status {os.waitstatus_to_exitcode(status)}"


def _serve(read: Callable[[Path], str], asked: int, said: int) -> NoReturn:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(name, signal.SIG_DFL)
    with os.fdopen(asked, "rb") as folders, os.fdopen(said, "wb") as answers:
        for folder in folders:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(WAIT)
            answer = _measured(read, Path(os.fsdecode(folder.removesuffix(b"\n"))))
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
            content = answer.encode("utf-8", "backslashreplace")[:100_000].decode("utf-8", "ignore").encode()
            answers.write(struct.pack("<I", len(content)) + content)
            answers.flush()
    os._exit(0)


def _measured(read: Callable[[Path], str], folder: Path) -> str:
    """The answer, or a fault if memory was taken that is out of all proportion to the files."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    before = _memory("VmRSS")
    answer = _answer(read, folder)
    taken = _memory("VmHWM") - before
    if taken > FREE + PER_BYTE * size:
        return f"fault {taken >> 20} MB were taken for {size} bytes: {answer}"
    return answer


def _memory(name: str) -> int:
    """A figure of this process in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"the system does not tell {name}")


def _answer(read: Callable[[Path], str], folder: Path) -> str:
    try:
        return f"read {read(folder)}"
    except (UncurseError, OSError) as error:
        return f"{'fault' if _for_memory(error) else 'refused'} {error}"
    except BaseException:
        return f"fault {traceback.format_exc()[-8000:]}"


def _for_memory(error: BaseException | None) -> bool:
    """Whether an error came of memory that was asked for and not given."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
