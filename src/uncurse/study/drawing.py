"""How the figures of a study look, and how they become files."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import matplotlib
import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation
from PIL import Image

from uncurse.files import write_whole

WIDTH: Final = 3.5  # inches: a column of a paper
LINE: Final = 0.13  # inches from one line of text to the next
GAP: Final = 0.08  # between blocks of them
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

Dashes: TypeAlias = str | tuple[float, tuple[float, ...]]


@final
@dataclass(frozen=True)
class Look:
    """How a method is drawn, in every figure."""

    label: str  # short enough for two columns
    colour: str
    marker: str
    line: Dashes = "-"
    size: float = 4.4  # of the marker

    def style(self, hollow: bool = False) -> dict[str, Any]:
        """The keywords of a line; a white edge keeps markers apart that lie on each other."""
        edge = {"markeredgewidth": 0.9, "fillstyle": "none"} if hollow else {"markeredgecolor": "white"}
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "markersize": self.size,
            **edge,
        }


DASHED: Final[Dashes] = (0, (4, 1.5))
DOTTED: Final[Dashes] = (0, (1.2, 1.2))
MIXED: Final[Dashes] = (0, (5, 1.2, 1.2, 1.2))
# Colours of Okabe and Ito (2008) and Tol (2021), which the colour-blind tell apart; what reads the predicted
# length is solid.
LOOKS: Final[Mapping[str, Look]] = {
    "raw": Look("raw score", "#000000", "o", DOTTED),
    "length-norm": Look("length norm", "#56B4E9", "s", DASHED, 4.2),
    "length-norm-optimal": Look("length norm, optimal", "#0072B2", "D", MIXED, 4.2),
    "gnmt": Look("GNMT", "#CC79A7", "^", DASHED, 5.2),
    "word-reward": Look("word reward", "#117733", "v", (0, (2.5, 1.2)), 5.2),
    "bounded-ratio": Look("bounded, fixed ratio", "#E69F00", "P", MIXED, 5.8),
    "bounded": Look("bounded, predicted", "#D55E00", "X", size=5.8),
    "adaptive": Look("adaptive reward", "#009E73", "p", size=5.4),
    "bp-norm": Look("BP-Norm", "#882255", "*", size=7.4),
    "f1-norm": Look("F1-Norm", "#332288", "h", size=5.4),
}


def look_of(name: str, label: str | None = None) -> Look:
    """How a method is drawn; one that is not known here is grey."""
    return LOOKS.get(name) or Look(label or name, GREY, "h", DOTTED)


def settings() -> AbstractContextManager[None]:
    """The settings of matplotlib while a figure is made and saved, whatever those of the user are."""
    return matplotlib.style.context(["default", dict(SETTINGS)])


def stacked(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Panels above each other that share what is across; heights in inches."""
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    found = list(panels[:, 0])
    figure.align_ylabels(found)
    return figure, found


def legend_below(figure: Figure, handles: Sequence[Line2D], columns: int = 2) -> None:
    """A legend under everything, in room of its own."""
    figure.set_figheight(figure.get_figheight() + 0.14 * math.ceil(len(handles) / columns) + 0.08)
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns)


def log_axis(axes: Axes) -> None:
    """What is across by its ratios, with round numbers at few ticks."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,g}")


def marked(widths: Sequence[int], turn: int = 0) -> list[int]:
    """Which points of a line get a marker: the last and, of those far from the next, every other in turn."""
    places: list[int] = []
    for place in reversed(range(len(widths))):
        if not places or math.log2(widths[places[-1]] / widths[place]) > 0.28:
            places.append(place)
    if len(places) > 8:  # lines that lie on each other show their markers one by one
        places = [places[0], *places[1 + turn % 2 :: 2]]
    return places[::-1]


def heat_map(
    axes: Axes, cells: Mapping[tuple[float, float], float], best: tuple[float, float], span: tuple[float, float]
) -> QuadMesh:
    """Values by what is up and what is across; the best cell has a frame, the span is that of the colours."""
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


def length_lines(axes: Axes, lengths: Mapping[str, float], lines: Mapping[str, Dashes]) -> None:
    """A line at each length, with names above the axes that stand away from each other and from the left edge."""
    blue = "#0072B2"
    for name, length in lengths.items():
        axes.axvline(length, color=blue, linewidth=0.8, linestyle=lines[name], zorder=1)
    low, high = axes.get_xlim()
    last = max(lengths, key=lambda name: lengths[name])
    above = axes.get_xaxis_transform() + ScaledTranslation(0, 0.04, axes.figure.dpi_scale_trans)
    for name, length in lengths.items():
        side = "left" if name == last or length - low < 0.25 * (high - low) else "right"
        axes.text(length, 1, f"{name} {length:g}", ha=side, fontsize=6.5, color=blue, transform=above)


@final
@dataclass(frozen=True)
class Choice:
    """A candidate and the methods that choose it."""

    point: tuple[float, float] | None  # length and log-probability; none where nothing has finished
    looks: tuple[Look, ...]

    @property
    def height(self) -> float:
        """What its names need, in inches."""
        return (len(self.looks) + (self.point is None)) * LINE + GAP


def beside(choices: Sequence[Choice]) -> tuple[Figure, Axes]:
    """Axes with the names of methods on their right; sizes are fixed so that the names are sure to find room."""
    tall = max(2.1, sum(choice.height for choice in choices))
    figure = Figure(figsize=(WIDTH, tall + 0.75))
    across = 0.57 / WIDTH, 1.41 / WIDTH
    up = 0.37 / (tall + 0.75), tall / (tall + 0.75)
    return figure, figure.add_axes((across[0], up[0], across[1], up[1]))


def label_choices(axes: Axes, choices: Sequence[Choice]) -> None:
    """Ring what was chosen and lead from it to the names, which stand in the order of the points."""
    room = axes.get_window_extent().height / axes.figure.dpi
    there = {choice.point: choice for choice in choices if choice.point is not None}
    points = sorted(there, key=lambda point: (-point[1], point[0]))
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        "o",
        color="black",
        fillstyle="none",
        markersize=6,
        markeredgewidth=0.9,
    )
    low, high = axes.get_ylim()
    wanted = [room * (y - low) / (high - low) for _, y in points]
    ordered = [there[point] for point in points] + [choice for choice in choices if choice.point is None]
    wanted += [0.0] * (len(ordered) - len(wanted))
    centres = spread(wanted, [choice.height for choice in ordered], room)
    for choice, centre in zip(ordered, centres, strict=True):
        _names(axes, choice, centre / room, room)


def _names(axes: Axes, choice: Choice, centre: float, room: float) -> None:
    """The names of a choice under each other; the centre is a fraction of the axes."""
    beside_axes = axes.transAxes
    top = centre + (choice.height - GAP) / 2 / room
    bottom = 2 * centre - top
    axes.plot([1.12, 1.12], [bottom, top], color=GREY, linewidth=0.8, transform=beside_axes, clip_on=False)
    if choice.point is not None:
        line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", choice.point, (1.12, centre), textcoords="axes fraction", arrowprops=line)
    names: list[Look | None] = [*([None] if choice.point is None else []), *choice.looks]
    for place, look in enumerate(names):
        y = top - (place + 0.5) * LINE / room
        if look is not None:
            style = {**look.style(), "linestyle": "", "clip_on": False}
            axes.plot([1.19], [y], transform=beside_axes, **style)
        label = "nothing finished:" if look is None else look.label
        axes.text(1.26 if look else 1.16, y, label, transform=beside_axes, va="center", fontsize=6.5)


def spread(centres: Sequence[float], heights: Sequence[float], room: float) -> list[float]:
    """Move blocks, given from top to bottom, so that none overlaps another and all are within 0 … room."""
    found: list[float] = []
    top = room
    for centre, height in zip(centres, heights, strict=True):
        found.append(min(centre, top - height / 2))
        top = found[-1] - height / 2
    bottom = 0.0
    for place in reversed(range(len(found))):
        found[place] = max(found[place], bottom + heights[place] / 2)
        bottom = found[place] + heights[place] / 2
    return found


def pictures(figure: Figure) -> dict[str, bytes]:
    """A figure as the bytes of its files, by suffix; the same figure gives the same bytes."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it has done its work; both files get the same layout
    svg, full, png = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(full, format="png")
    # A palette is a third of the size, and one that covers all colours keeps those of the smallest markers.
    with Image.open(full) as picture:
        picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=3).save(
            png, "PNG", optimize=True, dpi=(150, 150)
        )
    return {".png": png.getvalue(), ".svg": svg.getvalue()}


def write_pictures(path: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write each file whole; the path has no suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, content in files.items():
        written.append(path.with_name(path.name + suffix))
        write_whole(written[-1], content)
    return written
