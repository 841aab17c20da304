"""How far a command has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from rich.progress import ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from uncurse.bar import Bar


@final
class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f} lines/s" if task.speed else "")


@final
class _Shards(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"in {task.fields['shards']} shards" if "shards" in task.fields else "")


@final
class Counter(Bar):
    """Lines done, and shards if they are done in such, the rate and, if all lines were counted, the time left."""

    def columns(self, total: int | None) -> Sequence[ProgressColumn]:
        """From left to right."""
        times = (TimeElapsedColumn(),) if total is None else (TextColumn("time left"), TimeRemainingColumn())
        return (TextColumn("{task.description} {task.completed} lines"), _Shards(), _Rate(), *times)

    def advance(self) -> None:
        """One more line is done."""
        self._bar.advance(self._task)

    def advance_shard(self, lines: int) -> None:
        """One more shard is done."""
        shards = self._bar.tasks[self._task].fields.get("shards", 0) + 1
        self._bar.update(self._task, advance=lines, shards=shards)
