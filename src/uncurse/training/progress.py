"""Progress of a training run, on a terminal as a bar and elsewhere as a line now and then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import final

from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn

from uncurse.bar import Bar

QUIET_SECONDS = 30.0  # between lines when nobody watches


@final
class Progress(Bar):
    """Perplexity, tokens per second and the time left."""

    def __init__(self, total: int, done: int, shown: bool = True) -> None:
        Bar.__init__(self, "training", done, total, shown)
        self._total = total
        self._first = done
        self._began = self._said = time.monotonic()
        self._tokens = 0

    def columns(self, total: int | None) -> Sequence[ProgressColumn]:
        """From left to right."""
        return (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())

    @property
    def speed(self) -> float:
        """Target tokens per second since the run began or was resumed."""
        return self._tokens / max(time.monotonic() - self._began, 1e-9)

    def advance(self, step: int, epoch: int, perplexity: float, tokens: int) -> None:
        """A batch is done."""
        self._tokens += tokens
        text = f"epoch {epoch} · perplexity {perplexity:.1f} · {self.speed:,.0f} tokens/s"
        self._bar.update(self._task, completed=step, description=text)
        now = time.monotonic()
        if self._bar.disable and now - self._said > QUIET_SECONDS:
            self._said = now
            left = (now - self._began) / (step - self._first) * (self._total - step) / 60
            self.say(f"step {step} of {self._total} · {text} · {left:.0f} minutes left")

    def say(self, text: str) -> None:
        """A line for the record."""
        self._console.print(text, highlight=False, soft_wrap=True)
