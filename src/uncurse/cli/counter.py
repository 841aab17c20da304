"""How far a command has come, on standard error and only for someone who watches."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text


@final
class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} lines/s" if task.speed else "")


@final
class Counter:
    """Lines done, the rate and, where the number of lines is known, the time left."""

    def __init__(self, what: str, done: int, total: int | None, shown: bool = True) -> None:
        console = Console(file=sys.stderr)
        self._bar = Progress(
            TextColumn("{task.description} {task.completed} lines"),
            _Rate(),
            TimeElapsedColumn() if total is None else TextColumn("time left"),
            *(() if total is None else (TimeRemainingColumn(),)),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        self._task = self._bar.add_task(what, total=total, completed=done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, lines: int = 1) -> None:
        """More lines are done."""
        self._bar.advance(self._task, lines)
