"""A bar on standard error that shows how far a task has come, for someone who watches."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import Progress, ProgressColumn


class Bar(ABC):
    """A bar from entry to exit; a subclass says what it shows."""

    def __init__(self, what: str, done: int, total: int | None, shown: bool = True) -> None:
        self._console = Console(file=sys.stderr, quiet=not shown)
        seen = shown and self._console.is_terminal
        self._bar = Progress(*self.columns(total), console=self._console, disable=not seen)
        self._task = self._bar.add_task(what, total=total, completed=done)

    @abstractmethod
    def columns(self, total: int | None) -> Sequence[ProgressColumn]:
        """What it shows, from left to right."""

    @final
    def __enter__(self) -> Self:
        self._bar.start()
        return self

    @final
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
