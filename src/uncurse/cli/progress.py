"""How far a command has come, on standard error, for someone who watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def line_progress(what: str, total: int | None, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Show lines, their rate and the time left if the total is known; call what is given with lines done."""
    console = Console(file=sys.stderr)
    columns = [TextColumn("{task.description} {task.completed} lines {task.fields[rate]}"), TimeElapsedColumn()]
    if total is not None:
        columns += [TextColumn("time left"), TimeRemainingColumn()]
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        task, done, start = progress.add_task(what, total=total, rate=""), 0, time.monotonic()

        def advance(lines: int) -> None:
            nonlocal done
            done += lines
            rate = done / max(time.monotonic() - start, 1e-9)
            progress.update(task, advance=lines, rate=f"{rate:.1f} lines/s")

        yield advance
