"""A plot of a training run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from uncurse.storage.atomic import atomic_write


def plot_history(path: Path, rows: Sequence[dict[str, str]]) -> None:
    """Perplexity against target tokens seen, on training and development text."""
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    tokens = [float(row["tokens"]) / 1e6 for row in rows]
    for name, label in (("train_perplexity", "training"), ("dev_perplexity", "development")):
        axes.plot(tokens, [float(row[name]) for row in rows], marker="o", markersize=3, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("target tokens seen (millions)")
    axes.set_ylabel("perplexity")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    atomic_write(path, picture.getbuffer())
