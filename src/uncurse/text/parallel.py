"""Parallel text: source lines with one or more translations each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

from uncurse.errors import UncurseError
from uncurse.text.lines import read_lines, sample


@final
@dataclass(frozen=True)
class ParallelFiles:
    """A source file and one or more files that translate it line by line."""

    source: str
    targets: tuple[str, ...]
    lines: int | None = None  # a sample of so many, evenly spread; None: all

    def __post_init__(self) -> None:
        if self.lines is not None and self.lines < 1:
            raise UncurseError(f"lines = {self.lines} is not allowed: it must be at least 1")


@final
@dataclass(frozen=True)
class ParallelText:
    """Source lines, each with its translations."""

    sources: list[str]
    targets: list[tuple[str, ...]]

    @property
    def fingerprint(self) -> str:
        """A checksum of every line."""
        digest = sha256()
        for source, targets in zip(self.sources, self.targets, strict=True):
            digest.update("\n".join((source, *targets, "\n")).encode())
        return digest.hexdigest()


def read_parallel(corpora: Sequence[ParallelFiles], root: Path) -> ParallelText:
    """Read corpora whose files are aligned line by line."""
    sources: list[str] = []
    targets: list[tuple[str, ...]] = []
    for corpus in corpora:
        lines = read_lines(root / corpus.source)
        columns = []
        for name in corpus.targets:
            column = read_lines(root / name)
            if len(column) != len(lines):
                raise UncurseError(
                    f"{root / corpus.source} has {len(lines)} lines and {root / name} has {len(column)}"
                )
            columns.append(column)
        sources.extend(sample(lines, corpus.lines))
        targets.extend(sample(list(zip(*columns, strict=True)), corpus.lines))
    if not sources:
        raise UncurseError(f"there are no lines in {', '.join(corpus.source for corpus in corpora)}")
    return ParallelText(sources, targets)
