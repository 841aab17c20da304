"""How the figures of a study look, and how they become files."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, NullLocator
from PIL import Image

from uncurse.storage.atomic import atomic_write
from uncurse.study.report.looks import Look

WIDTH: Final = 3.5  # inches: a column of a paper
GREY: Final = "#8a8a8a"
# Text stays text in SVG and the salt makes its ids the same each time; DejaVu comes with matplotlib.
SETTINGS: Final[Mapping[str, Any]] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 7.5,
    "figure.dpi": 150,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 7.0,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "legend.columnspacing": 1.2,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.labelspacing": 0.35,
    "lines.linewidth": 1.1,
    "lines.markeredgewidth": 0.4,
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "uncurse",
    "xtick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 7.0,
    "ytick.major.width": 0.6,
}


def settings() -> AbstractContextManager[None]:
    """The settings of matplotlib while a figure is made and saved, whatever those of the user are."""
    return matplotlib.style.context(["default", dict(SETTINGS)])


def stacked(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Panels above each other that share an x axis; heights in inches."""
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    found = list(panels[:, 0])
    figure.align_ylabels(found)
    return figure, found


def legend_below(figure: Figure, handles: Mapping[Look, Line2D], columns: int = 2) -> None:
    """A legend below everything, in room of its own."""
    looks = list(handles)
    per_column = math.ceil(len(looks) / columns)
    lines = [
        sum(len(look.label_lines()) for look in looks[start : start + per_column])
        for start in range(0, len(looks), per_column)
    ]
    figure.set_figheight(figure.get_figheight() + 0.14 * max(lines) + 0.08)
    labels = ["\n".join(look.label_lines()) for look in looks]
    figure.legend(handles=list(handles.values()), labels=labels, loc="outside lower center", ncols=columns)


def log_axis(axes: Axes) -> None:
    """A logarithmic x axis for what is drawn, with round numbers at few ticks."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), range(1, 10)):  # a short axis takes more
        ticks = [float(tick) for tick in np.outer(decades, steps).ravel() if low <= tick <= high]
        if len(ticks) > 2:
            break
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,g}")


def marked(beam_sizes: Sequence[int], turn: int = 0) -> list[int]:
    """Which points of a line get a marker: the last and, of those far from the next, every other in turn."""
    places: list[int] = []
    for place in reversed(range(len(beam_sizes))):
        if not places or math.log2(beam_sizes[places[-1]] / beam_sizes[place]) > 0.28:
            places.append(place)
    if len(places) > 8:  # lines that lie on each other show their markers one by one
        places = [places[0], *places[1 + turn % 2 :: 2]]
    return places[::-1]


def heat_map(
    axes: Axes, cells: Mapping[tuple[float, float], float], best: tuple[float, float], span: tuple[float, float]
) -> QuadMesh:
    """Values by row and column; the best cell has a frame, and the colours span the given values."""
    up, across = (sorted({key[place] for key in cells}) for place in (0, 1))
    values = np.array([[cells.get((row, column), np.nan) for column in across] for row in up])
    colours = matplotlib.colormaps["cividis"].resampled(24)  # few, for the SVG draws each of the scale
    # Edges in the colours of the cells cover the hairlines that viewers of SVG leave between them.
    mesh = axes.pcolormesh(values, cmap=colours, norm=Normalize(*span), edgecolors="face", linewidth=0.4)
    axes.set_xticks(np.arange(len(across)) + 0.5, [f"{each:g}" for each in across])
    axes.set_yticks(np.arange(len(up)) + 0.5, [f"{each:g}" for each in up])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    corner = (across.index(best[1]), up.index(best[0]))
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=1.6, clip_on=False))
    return mesh


def pictures(figure: Figure) -> dict[str, bytes]:
    """A figure as the bytes of its files, by suffix; the same figure gives the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # both files get the same layout
    svg, full, png = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(full, format="png")
    # With a palette the file is a third of the size; one that covers all colours keeps those of small markers.
    with Image.open(full) as picture:
        picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3).save(
            png, "PNG", optimize=True, dpi=(150, 150)
        )
    return {".png": png.getvalue(), ".svg": svg.getvalue()}


def write_pictures(path: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write each file; the path has no suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, content in files.items():
        written.append(path.with_name(path.name + suffix))
        atomic_write(written[-1], content)
    return written
