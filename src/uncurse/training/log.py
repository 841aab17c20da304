"""The history of a training run as CSV, TensorBoard events and a plot."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import final

from torch.utils.tensorboard import SummaryWriter

from uncurse.files import write_whole
from uncurse.training.plot import plot_history

LOG_COLUMNS = (
    "step",
    "epoch",
    "tokens",
    "train_perplexity",
    "dev_perplexity",
    "learning_rate",
    "tokens_per_second",
)


@final
class Log:
    """A line for each evaluation; a resumed run forgets what it will repeat."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / "log.csv"
        self._rows: list[dict[str, str]] = []
        if self._path.exists():
            with self._path.open(newline="", encoding="utf-8") as file:
                self._rows = [row for row in csv.DictReader(file) if int(row["step"]) <= step]
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, *values: float) -> None:
        """Add a line."""
        self._rows.append({name: _written(value) for name, value in zip(LOG_COLUMNS, values, strict=True)})
        for name, value in zip(LOG_COLUMNS[3:], values[3:], strict=True):
            self._events.add_scalar(name, value, int(values[0]))
        self._events.flush()
        lines = [",".join(LOG_COLUMNS), *(",".join(row[name] for name in LOG_COLUMNS) for row in self._rows)]
        write_whole(self._path, ("\n".join(lines) + "\n").encode())
        plot_history(self._path.with_name("perplexity.png"), self._rows)


def _written(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
