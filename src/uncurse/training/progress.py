"""The progress of a training run: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_SECONDS: Final = 30.0  # between two lines where there is no terminal


@final
class TrainingProgress:
    """Perplexity, tokens per second and the time left, on standard error."""

    def __init__(self, bar: Progress, task: TaskID, first_step: int, total: int) -> None:
        self._bar = bar
        self._task = task
        self._first_step = first_step
        self._total = total
        self._started = self._last_line = time.monotonic()
        self._tokens = 0

    @property
    def speed(self) -> float:
        """Target tokens per second since the run was started or resumed."""
        return self._tokens / max(time.monotonic() - self._started, 1e-9)

    def advance(self, step: int, epoch: int, perplexity: float, tokens: int) -> None:
        """Count a batch as done."""
        self._tokens += tokens
        text = f"epoch {epoch} · perplexity {perplexity:.1f} · {self.speed:,.0f} tokens/s"
        self._bar.update(self._task, completed=step, description=text)
        now = time.monotonic()
        if self._bar.disable and now - self._last_line > LINE_SECONDS:
            self._last_line = now
            left = (now - self._started) / (step - self._first_step) * (self._total - step) / 60
            self.print(f"step {step} of {self._total} · {text} · {left:.0f} minutes left")

    def print(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.console.print(text, highlight=False, soft_wrap=True)


@contextmanager
def training_progress(total: int, step: int, shown: bool) -> Iterator[TrainingProgress]:
    """Show a run of `total` steps that starts or resumes at `step`."""
    console = Console(file=sys.stderr, quiet=not shown)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        yield TrainingProgress(bar, bar.add_task("training", total=total, completed=step), step, total)
