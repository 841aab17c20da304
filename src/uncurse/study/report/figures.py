"""The figures of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from uncurse.study.findings import Findings
from uncurse.study.methods import OPTIMAL, RAW, StudyMethod
from uncurse.study.report.gains_figure import gains_figure
from uncurse.study.report.looks import DASHED, DOTTED, SOLID, Look, look_of
from uncurse.study.report.plot_style import (
    GREY,
    legend_below,
    log_axis,
    marked,
    pictures,
    settings,
    stacked,
    write_pictures,
)
from uncurse.study.report.sentence_figure import telling_sentence
from uncurse.study.report.tuning_figure import tuning_figure

Points = Sequence[tuple[float, float]]


def draw_figures(findings: Findings, folder: Path) -> list[Path]:
    """Write every figure that there are findings for; nothing is written unless all can be drawn."""
    drawn: dict[str, dict[str, bytes]] = {}
    with settings():
        for name, draw in FIGURES.items():
            figure = draw(findings)
            if figure is not None:
                drawn[name] = pictures(figure)
    return [path for name, files in drawn.items() for path in write_pictures(folder / name, files)]


def _curse(findings: Findings) -> Figure:
    """The raw score as the beam grows: BLEU falls because outputs shrink."""
    sizes = findings.study.plan.all_beam_sizes
    raw = look_of(next(method for method in findings.methods if method.name == RAW))
    looks = {
        "dev": Look(
            label=f"{raw.label} on dev", colour=raw.colour, marker=raw.marker, line=raw.line, size=raw.size
        ),
        "test": Look(
            label=f"{raw.label} on test", colour=raw.colour, marker=raw.marker, line=SOLID, size=raw.size
        ),
    }
    figure, panels = stacked((1.4, 1.15, 1.35))
    handles = {}
    fields = {"bleu": "BLEU", "brevity_penalty": "brevity penalty", "ratio": "length ratio"}
    for axes, (field, label) in zip(panels, fields.items(), strict=True):
        for name, look in looks.items():
            values = [getattr(findings.at[name][size].measures[RAW], field) for size in sizes]
            (handles[look],) = axes.plot(
                sizes, values, markevery=marked(sizes), **look.style(hollow=name == "dev")
            )
        axes.set_ylabel(label)
        if field == "ratio":
            _mark_one(axes)
    _beam_size_axis(panels[-1])
    legend_below(figure, handles)
    return figure


def _eos_positions(findings: Findings) -> Figure | None:
    """The first three `</s>` as the beam grows."""
    sets = {name: found for name, found in findings.eos_positions.items() if found.sentences}
    if not sets:
        return None
    figure, panels = stacked([1.6] * len(sets))
    first, second = Look("first </s>", "#0072B2", "o"), Look("second </s>", "#D55E00", "s", DASHED)
    handles = {}
    for axes, (name, found) in zip(panels, sets.items(), strict=True):
        for place, look in enumerate((first, second, Look("third </s>", "#000000", "^", DOTTED))):
            means = [positions[place] for positions in found.positions]
            (handles[look],) = axes.plot(
                found.beam_sizes, means, markevery=marked(found.beam_sizes), **look.style()
            )
        axes.set_ylabel("mean position")
        lines = len(findings.study.test_sets[name].lines)
        axes.set_title(f"{name}: {found.sentences:,} of {lines:,} sentences", loc="left")
    _beam_size_axis(panels[-1])
    panels[-1].set_xlabel("beam size (sentences with three </s> at every beam size)")
    legend_below(figure, handles, columns=3)
    return figure


def _compare(
    findings: Findings,
    points_of: Callable[[StudyMethod, str], Points],
    fields: Mapping[str, str],
    methods: Iterable[StudyMethod] | None = None,
    marks: Callable[[int], list[int]] | None = None,
) -> Figure:
    """One line for each method, in one panel for each field; `marks` says which points get a marker."""
    figure, panels = stacked((2.3, 1.7) if len(fields) == 2 else (2.6,))
    handles = {}
    for axes, (field, label) in zip(panels, fields.items(), strict=True):
        highest = 0.0
        for turn, method in enumerate(findings.methods if methods is None else methods):
            look, points = look_of(method), points_of(method, field)
            (handles[look],) = axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                markevery=None if marks is None else marks(turn),
                **look.style(),
            )
            highest = max(highest, *(y for _, y in points))
        axes.set_ylabel(label)
        if field == "ratio":
            _mark_one(axes)
        if label.endswith("(%)"):  # from 0, and where there is hardly anything it does not look like much
            most = max(2.0, highest)
            axes.set_ylim(-0.04 * most, 1.06 * most)
    legend_below(figure, handles)
    return figure


def _over_beam_sizes(findings: Findings, name: str, fields: Mapping[str, str]) -> Figure:
    """Measures of every method on one set as the beam grows."""
    labels = {field: label.format(name) for field, label in fields.items()}
    sizes = findings.study.plan.all_beam_sizes

    def points(method: StudyMethod, field: str) -> Points:
        factor = 100.0 if labels[field].endswith("(%)") else 1.0
        found = ((size, findings.at[name][size].measures[method.name]) for size in sizes)
        return [(size, factor * getattr(each, field)) for size, each in found]

    figure = _compare(findings, points, labels, marks=partial(marked, sizes))
    _beam_size_axis(figure.axes[-1])
    return figure


def _deciles(findings: Findings) -> Figure:
    """BLEU and length ratio from the shortest to the longest tenth of the sources."""

    def points(method: StudyMethod, field: str) -> Points:
        return [(each.source_length, getattr(each, field)) for each in findings.deciles(method)]

    figure = _compare(findings, points, {"bleu": "BLEU on test", "ratio": "length ratio on test"})
    size = findings.study.plan.display_beam_size
    figure.axes[-1].set_xlabel(f"mean source length of each tenth (beam size {size})")
    return figure


def _cost(findings: Findings) -> Figure:
    """What BLEU costs: rows that the model computes."""
    sizes = findings.study.plan.all_beam_sizes

    def points(method: StudyMethod, field: str) -> Points:
        found = [findings.at["test"][size].measures[method.name] for size in sizes]
        return [(each.model_rows, getattr(each, field)) for each in found]

    figure = _compare(findings, points, {"bleu": "BLEU on test"}, marks=partial(marked, sizes))
    (axes,) = figure.axes
    log_axis(axes)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel(f"model rows per sentence, beam sizes {sizes[0]} to {sizes[-1]}")
    return figure


def _max_lengths(findings: Findings) -> Figure | None:
    """What the maximum length R does to the methods that stop when nothing better can come."""
    cells = [cell for cell in findings.max_length_cells if cell.stop == OPTIMAL]
    if not cells:
        return None
    means = {cell.max_length: cell.mean_max_length for cell in cells}
    names = sorted(means, key=lambda name: means[name])
    measures = {(cell.method, cell.max_length): cell.measures for cell in cells}

    def points(method: StudyMethod, field: str) -> Points:
        return [(place, getattr(measures[method.name, name], field)) for place, name in enumerate(names)]

    methods = [method for method in findings.methods if (method.name, names[0]) in measures]
    figure = _compare(findings, points, {"bleu": "BLEU on dev", "ratio": "length ratio on dev"}, methods)
    labels = [f"{name} ({means[name]:.0f})" for name in names]
    axes = figure.axes[-1]
    axes.set_xticks(range(len(names)), labels, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_xlabel(f"maximum length R and its mean (beam size {findings.study.comparison_beam_size})")
    return figure


def _beam_size_axis(axes: Axes) -> None:
    log_axis(axes)
    axes.set_xlabel("beam size")


def _mark_one(axes: Axes) -> Line2D:
    """A line where outputs are as long as the references."""
    return axes.axhline(1.0, color=GREY, linewidth=0.8, zorder=1)


_QUALITY: Final = {"bleu": "BLEU on {}", "ratio": "length ratio on {}"}
_DEGENERATE: Final = {"empty": "empty outputs on {} (%)", "repeating": "repeating on {} (%)"}
FIGURES: Final[Mapping[str, Callable[[Findings], Figure | None]]] = {
    "curse": _curse,
    "eos-positions": _eos_positions,
    "methods": partial(_over_beam_sizes, name="test", fields=_QUALITY),
    "methods-dev": partial(_over_beam_sizes, name="dev", fields=_QUALITY),
    "deciles": _deciles,
    "cost": _cost,
    "degenerate": partial(_over_beam_sizes, name="test", fields=_DEGENERATE),
    "max-lengths": _max_lengths,
    "tuning": tuning_figure,
    "gains": gains_figure,
    "sentence": telling_sentence,
}
