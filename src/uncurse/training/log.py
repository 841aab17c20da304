"""The history of a training run as CSV, TensorBoard events and a plot."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from torch.utils.tensorboard import SummaryWriter

from uncurse.errors import UncurseError
from uncurse.storage.atomic import atomic_write, read_regular_file
from uncurse.training.plot import plot_history

MAX_BYTES: Final = 1 << 26  # a row has a hundred
LOG_COLUMNS: Final = (
    "step",
    "epoch",
    "tokens",
    "train_perplexity",
    "dev_perplexity",
    "learning_rate",
    "tokens_per_second",
)


def read_log(path: Path) -> list[dict[str, str]]:
    """The rows of a run's log."""
    try:
        text = read_regular_file(path, MAX_BYTES).decode("utf-8")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = list(reader)
        if tuple(reader.fieldnames or ()) != LOG_COLUMNS:
            raise UncurseError(f"its columns are not {', '.join(LOG_COLUMNS)}")
        for row in rows:
            if None in row or not all(math.isfinite(float(each)) for each in row.values()):
                raise UncurseError(f"{row} is not a row of it")
            int(row["step"])
    except (ValueError, TypeError, csv.Error) as error:
        raise UncurseError(f"{path} is damaged; remove it, and the run can go on: {error}") from error
    return rows


@final
class TrainingLog:
    """One row for each evaluation; a resumed run drops the rows that it will repeat."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / "log.csv"
        history = read_log(self._path) if self._path.exists() else []
        self._rows = [row for row in history if int(row["step"]) <= step]
        events = folder / "tensorboard"
        for path in events.glob("events.out.tfevents.*"):
            path.unlink()  # TensorBoard reads files in the order of their times, and a clock may be set back
        self._events = SummaryWriter(str(events))
        for row in self._rows:
            self._add_events(row)

    def write(self, *values: float) -> None:
        """Add a row."""
        self._rows.append({name: _formatted(value) for name, value in zip(LOG_COLUMNS, values, strict=True)})
        self._add_events(self._rows[-1])
        lines = [",".join(LOG_COLUMNS), *(",".join(row[name] for name in LOG_COLUMNS) for row in self._rows)]
        atomic_write(self._path, ("\n".join(lines) + "\n").encode())
        plot_history(self._path.with_name("perplexity.png"), self._rows)

    def _add_events(self, row: Mapping[str, str]) -> None:
        for name in LOG_COLUMNS[3:]:
            self._events.add_scalar(name, float(row[name]), int(row["step"]))
        self._events.flush()


def _formatted(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
