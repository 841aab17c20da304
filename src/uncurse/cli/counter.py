"""How far a command has come, on standard error and only for someone who watches."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text


@final
class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} lines/s" if task.speed else "")


@final
class Counter:
    """Lines done, and the rate."""

    def __init__(self, what: str, done: int) -> None:
        console = Console(file=sys.stderr)
        self._bar = Progress(
            TextColumn("{task.description} {task.completed} lines"),
            _Rate(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=None, completed=done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self) -> None:
        """One more line is done."""
        self._bar.advance(self._task)
