"""A reader in a process of its own, with little memory and little time: whatever it does, the test goes on."""

from __future__ import annotations

import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn, final

ROOM = 1 << 29  # bytes beyond what the test itself has
SECONDS = 20


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


def tried(read: Callable[[], str], expected: str) -> Verdict:
    """Read in a child; only the errors that the command tells in one line are no fault."""
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork and threads; this child starts none
        child = os.fork()
    if not child:
        _child(read, sender)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Verdict(Outcome.FAULT, f"ended by {signal.Signals(os.WTERMSIG(status)).name}")
    kind, _, words = said.partition(" ")
    if kind == "read":
        return Verdict(Outcome.SAME if words == expected else Outcome.OTHER, words)
    return Verdict(Outcome.REFUSED if kind == "refused" else Outcome.FAULT, words)


def _child(read: Callable[[], str], sender: int) -> NoReturn:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    try:
        said = f"read {read()}"
    except (ValueError, OSError) as error:
        said = f"{'fault' if _for_memory(error) else 'refused'} {error}"
    except BaseException:
        said = f"fault {traceback.format_exc()}"
    os.write(
        sender,
        said.encode("utf-8", "backslashreplace")[-60_000:]
        if said.startswith("fault")
        else said.encode("utf-8", "backslashreplace")[:60_000],
    )
    os._exit(0)


def _for_memory(error: BaseException | None) -> bool:
    """Whether an error came of memory that was asked for and not given."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
