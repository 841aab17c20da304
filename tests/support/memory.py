"""What a call does to memory, measured in a process of its own that cannot take the machine's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import final

ROOM = 3 << 10  # MB that a process may map beyond its imports before its allocations fail
PROGRAM = """
import re, resource, sys
from pathlib import Path

def status(name):
    return int(re.findall(rf"{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[0]) >> 10

%(imports)s
resource.setrlimit(resource.RLIMIT_AS, ((status("VmSize") + %(room)d) << 20,) * 2)
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = status("VmRSS")
try:
    %(code)s
    said = ""
except Exception as error:
    said = f"{type(error).__name__}: {error}"
print(status("VmHWM") - before, said)
"""


@final
@dataclass(frozen=True)
class Outcome:
    """What became of a call."""

    megabytes: int  # the peak of memory above what the imports take
    error: str  # its class and message; empty if there was none


def measured(imports: str, code: str, timeout: float = 60.0) -> Outcome:
    """Run a statement in a process of its own."""
    program = PROGRAM % {"imports": imports, "room": ROOM, "code": code}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    megabytes, _, error = done.stdout.strip().partition(" ")
    return Outcome(int(megabytes), error)
