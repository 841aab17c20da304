"""What reads a file, with whole files for it and the ways to damage them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np
from fuzz.mutations import Damage
from fuzz.sandbox import Outcome, Sandbox, Verdict
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

Files = dict[str, bytes]


@final
@dataclass(frozen=True)
class Reader:
    """A reader, whole files for it, and how each of them can be damaged."""

    name: str
    files: Files
    damage: dict[str, tuple[Damage, ...]]
    read: Callable[[Path], str]  # what the folder says, or a digest of it
    checksummed: bool = False  # if anything can be read, it is what was written
    repair: Callable[[Files], Files] = field(default=lambda files: files)  # of checksums, to get past them

    def damaged(self, draw: DrawFn) -> Files:
        """Whole files but for one, which can also be missing."""
        name = draw(st.sampled_from(sorted(self.damage)))
        how = draw(st.sampled_from(self.damage[name]))
        if not draw(st.integers(0, 40)):
            return {each: content for each, content in self.files.items() if each != name}
        return self.repair({**self.files, name: how(draw, self.files[name])})

    def verdict(self, sandbox: Sandbox, files: Files) -> Verdict:
        """What the reader makes of files; something else is a fault if they carry checksums."""
        with _written(files) as folder:
            verdict = sandbox.tried(folder, self.expected)
        if verdict.outcome is Outcome.OTHER and self.checksummed:
            return Verdict(Outcome.FAULT, "read as something else, and no checksum noticed")
        return verdict

    @cached_property
    def expected(self) -> str:
        """What whole files say."""
        with _written(self.files) as folder:
            return self.read(folder)


@contextmanager
def _written(files: Files) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield Path(folder)


def files_in(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def digest(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()


def array_digest(*arrays: Any) -> str:
    return digest(*((each.dtype.str, each.shape, each.tobytes()) for each in map(np.asarray, arrays)))
