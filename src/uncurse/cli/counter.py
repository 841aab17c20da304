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
    """Lines done, and shards if they are done in such, the rate and, if all lines were counted, the time left."""

    def __init__(self, what: str, done: int, total: int | None, shown: bool = True) -> None:
        console = Console(file=sys.stderr)
        self._bar = Progress(
            TextColumn("{task.description} {task.completed} lines{task.fields[shards]}"),
            _Rate(),
            TimeElapsedColumn() if total is None else TextColumn("time left"),
            *(() if total is None else (TimeRemainingColumn(),)),
            console=console,
            disable=not (shown and console.is_terminal),
        )
        self._shards = 0
        self._task = self._bar.add_task(what, total=total, completed=done, shards="")

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

    def advance_shard(self, lines: int) -> None:
        """One more shard is done."""
        self._shards += 1
        self._bar.update(self._task, advance=lines, shards=f" in {self._shards} shards")
