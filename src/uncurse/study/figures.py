"""The figures of a study, from what its page shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from uncurse.study.drawing import (
    DASHED,
    DOTTED,
    GREY,
    WIDTH,
    Choice,
    Look,
    beside,
    heat_map,
    label_choices,
    legend_below,
    length_lines,
    log_axis,
    look_of,
    marked,
    pictures,
    settings,
    stacked,
    write_pictures,
)

Data: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Mapping[str, Any]]
PERCENT: Final = 100.0


def draw_figures(data: Data, folder: Path) -> list[Path]:
    """Write every figure that the data has something for; nothing is written unless all can be drawn."""
    drawn: dict[str, dict[str, bytes]] = {}
    with settings():
        for name, draw in FIGURES.items():
            figure = draw(data)
            if figure is not None:
                drawn[name] = pictures(figure)
    return [path for name, files in drawn.items() for path in write_pictures(folder / name, files)]


def draw_sentence(data: Data, index: int, path_without_suffix: Path) -> list[Path]:
    """Write the figure of one test sentence; the first is 0."""
    if not 0 <= index < len(data["sentences"]):
        raise ValueError(f"sentence {index} does not exist: there are 0 to {len(data['sentences']) - 1}")
    with settings():
        files = pictures(_sentence(data, index))
    return write_pictures(path_without_suffix, files)


def _curse(data: Data) -> Figure | None:
    """The raw score as the beam widens: BLEU falls because outputs shrink."""
    sets = {name: rows for name, each in data["curves"].items() if (rows := each.get("raw"))}
    if not sets:
        return None
    figure, panels = stacked((1.4, 1.15, 1.35))
    fields = (("bleu", "BLEU"), ("brevity_penalty", "brevity penalty"), ("ratio", "length ratio"))
    for axes, (field, label) in zip(panels, fields, strict=True):
        for name, rows in sets.items():
            widths = [row["width"] for row in rows]
            style = look_of("raw").style(hollow=name == "dev")
            if name == "test":
                style["linestyle"] = "-"
            values = [row[field] for row in rows]
            axes.plot(widths, values, markevery=marked(widths), label=f"raw score on {name}", **style)
        axes.set_ylabel(label)
        if field == "ratio":
            _mark_one(axes)
    _width_axis(panels[-1])
    legend_below(figure, _labelled(panels[0]))
    return figure


def _ends(data: Data) -> Figure | None:
    """Where the first three `</s>` come as the beam widens."""
    sets = {name: ends for name, ends in data["ends"].items() if ends["sentences"] and ends["widths"]}
    if not sets:
        return None
    figure, panels = stacked([1.6] * len(sets))
    first, second = Look("first </s>", "#0072B2", "o"), Look("second </s>", "#D55E00", "s", DASHED)
    looks = (first, second, Look("third </s>", "#000000", "^", DOTTED))
    for axes, (name, ends) in zip(panels, sets.items(), strict=True):
        for place, look in enumerate(looks):
            means = [positions[place] for positions in ends["positions"]]
            axes.plot(ends["widths"], means, markevery=marked(ends["widths"]), label=look.label, **look.style())
        axes.set_ylabel("mean position")
        count, lines = ends["sentences"], data["sets"][name]["lines"]
        axes.set_title(f"{name}: {count:,} of {lines:,} sentences", loc="left")
    _width_axis(panels[-1])
    panels[-1].set_xlabel("beam width (sentences with three </s> at every width)")
    legend_below(figure, _labelled(panels[0]), columns=3)
    return figure


def _compare(data: Data, rows_of: Mapping[str, Rows], across: str, fields: Mapping[str, str]) -> Figure | None:
    """One line for each method, in one panel for each field; fields have labels, shares are in percent."""
    found = {method["name"]: rows for method in data["methods"] if (rows := rows_of.get(method["name"]))}
    if not found:
        return None
    figure, panels = stacked((2.3, 1.7) if len(fields) == 2 else (2.6,))
    for axes, (field, label) in zip(panels, fields.items(), strict=True):
        factor = PERCENT if label.endswith("(%)") else 1.0
        for turn, (name, rows) in enumerate(found.items()):
            places = marked([row["width"] for row in rows], turn) if "width" in rows[0] else None
            values = [factor * row[field] for row in rows]
            look = _look(data, name)
            axes.plot([row[across] for row in rows], values, markevery=places, label=look.label, **look.style())
        axes.set_ylabel(label)
        if field == "ratio":
            _mark_one(axes)
        if factor == PERCENT:  # from 0, and where there is hardly anything it does not look like much
            most = max(2.0, *(factor * row[field] for rows in found.values() for row in rows))
            axes.set_ylim(-0.04 * most, 1.06 * most)
    legend_below(figure, _labelled(panels[0]))
    return figure


def _over_widths(data: Data, name: str, fields: Mapping[str, str]) -> Figure | None:
    """Measures of every method on one set as the beam widens."""
    labels = {field: label.format(name) for field, label in fields.items()}
    figure = _compare(data, data["curves"].get(name, {}), "width", labels)
    if figure is not None:
        _width_axis(figure.axes[-1])
    return figure


def _deciles(data: Data) -> Figure | None:
    """BLEU and length ratio from the shortest to the longest tenth of the sources."""
    fields = {"bleu": "BLEU on test", "ratio": "length ratio on test"}
    figure = _compare(data, data["deciles"], "source_length", fields)
    if figure is not None:
        figure.axes[-1].set_xlabel(f"mean source length of each tenth (beam width {data['focus']})")
    return figure


def _speed(data: Data) -> Figure | None:
    """What BLEU costs: rows that the model computes."""
    figure = _compare(data, data["curves"].get("test", {}), "rows", {"bleu": "BLEU on test"})
    if figure is not None:
        (axes,) = figure.axes
        log_axis(axes)
        axes.grid(visible=True, axis="x")
        widths = data["widths"]
        axes.set_xlabel(f"model rows per sentence, beam widths {widths[0]} to {widths[-1]}")
    return figure


def _limits(data: Data) -> Figure | None:
    """What the limit R does to the methods that stop when nothing better can come."""
    cells = [cell for cell in data["limits"] if cell["stop"] == "optimal"]
    means = {cell["limit"]: cell["mean_limit"] for cell in cells}
    limits = sorted(means, key=lambda limit: means[limit])
    rows_of: dict[str, list[Mapping[str, Any]]] = {}
    for cell in sorted(cells, key=lambda cell: limits.index(cell["limit"])):
        row = {"place": limits.index(cell["limit"]), **cell["measures"]}
        rows_of.setdefault(cell["method"], []).append(row)
    figure = _compare(data, rows_of, "place", {"bleu": "BLEU on dev", "ratio": "length ratio on dev"})
    if figure is not None:
        labels = [f"{limit} ({means[limit]:.0f})" for limit in limits]
        axes = figure.axes[-1]
        axes.set_xticks(range(len(limits)), labels, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_xlabel(f"limit R and its mean in tokens (beam width {data['limits_width']})")
    return figure


def _tuning(data: Data) -> Figure | None:
    """What dev says about r, α and β, for small and for large beams."""
    groups = {
        group: {curve["name"]: curve for curve in found["curves"]} for group, found in data["tuning"].items()
    }
    if not any(groups.values()):
        return None
    maps = [curves["gnmt"] for curves in groups.values() if "gnmt" in curves]
    figure = Figure(figsize=(WIDTH, 3.9 if maps else 2.1), layout="constrained")
    panels = figure.subplots(2 if maps else 1, len(groups), squeeze=False, sharey="row")
    for axes, (group, curves) in zip(panels[0], groups.items(), strict=True):
        rewards = [curve for name, curve in curves.items() if name != "gnmt"]
        _reward_curves(axes, data, rewards, data["tuning"][group]["perceptron"])
        widths = data["groups"][group]
        axes.set_title(f"{group} beams ({min(widths)}–{max(widths)})", loc="left")
    panels[0, 0].set_ylabel("BLEU on dev")
    if maps:
        _gnmt(figure, panels[1], maps)
    dot = Look("", GREY, "o", "")
    best = Line2D([], [], label="best of the grid", **dot.style())
    other = Line2D([], [], label="found by the perceptron", **dot.style(hollow=True))
    legend_below(figure, [*_labelled(panels[0, 0]), best, other])
    return figure


def _reward_curves(axes: Axes, data: Data, curves: Rows, perceptron: Mapping[str, float]) -> None:
    for curve in curves:
        look = _look(data, curve["name"])
        values = [value for (value,) in curve["values"]]
        best = [values.index(curve["best"][0])]
        axes.plot(values, curve["bleu"], markevery=best, label=look.label, **look.style())
        found = perceptron.get(curve["name"])
        if found is not None and values[0] <= found <= values[-1]:
            axes.plot([found], [np.interp(found, values, curve["bleu"])], **look.style(hollow=True))
    axes.set_xlabel("reward r")


def _gnmt(figure: Figure, panels: Sequence[Axes], curves: Sequence[Mapping[str, Any]]) -> None:
    """GNMT's α and β as heat maps with one scale of colours; a line where there is no attention, hence no β."""
    bleu = [value for curve in curves for value in curve["bleu"]]
    for axes, curve in zip(panels, curves, strict=True):
        if len({beta for _, beta in curve["values"]}) == 1:
            axes.plot([alpha for alpha, _ in curve["values"]], curve["bleu"], **look_of("gnmt").style())
            axes.set_xlabel("GNMT α")
            panels[0].set_ylabel("BLEU on dev")
            continue
        cells = {(alpha, beta): value for (alpha, beta), value in zip(curve["values"], curve["bleu"], strict=True)}
        mesh = heat_map(axes, cells, tuple(curve["best"]), (min(bleu), max(bleu)))
        axes.set_xlabel("GNMT β")
        panels[0].set_ylabel("GNMT α")
        if axes is panels[-1]:
            scale = figure.colorbar(mesh, ax=list(panels), label="BLEU on dev", aspect=14)
            scale.outline.set_visible(False)
            if scale.solids is not None:
                scale.solids.set_edgecolor("face")


def _telling(data: Data) -> Figure | None:
    """The sentence on which the methods agree least; of several, the one with the most candidates."""
    sentences = data["sentences"]
    if not sentences:
        return None

    def disagreement(index: int) -> tuple[int, int]:
        each = sentences[index]
        return len({choice["text"] for choice in each["choices"].values()}), len(each["points"])

    return _sentence(data, max(range(len(sentences)), key=disagreement))


def _sentence(data: Data, index: int) -> Figure:
    """The finished candidates of one sentence, and which of them each method chooses."""
    sentence = data["sentences"][index]
    chosen: dict[tuple[int, float] | None, list[Look]] = {}
    for method in data["methods"]:
        choice = sentence["choices"].get(method["name"])
        if choice is not None:
            log_prob = choice["log_prob"]
            point = None if log_prob is None else (choice["length"], log_prob)
            chosen.setdefault(point, []).append(_look(data, method["name"]))
    choices = [Choice(point, tuple(looks)) for point, looks in chosen.items()]
    figure, axes = beside(choices)
    points = sentence["points"]
    axes.plot([x for x, _ in points], [y for _, y in points], ".", color=GREY, markersize=3.5)
    lengths = {"limit": sentence["limit"]}
    if sentence["predicted"] is not None:
        lengths["predicted"] = round(sentence["predicted"], 1)
    length_lines(axes, lengths, {"limit": "-", "predicted": DASHED})
    label_choices(axes, choices)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]) if points else NullLocator())
    axes.set_xlabel("length (tokens)")
    axes.set_ylabel("model score (log-probability)")
    figure.text(0.02, 0.98, f"test sentence {index + 1:,}, beam width {data['focus']}", va="top")
    return figure


def _look(data: Data, name: str) -> Look:
    labels = {method["name"]: method["label"] for method in data["methods"]}
    return look_of(name, labels.get(name))


def _labelled(axes: Axes) -> list[Line2D]:
    return [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]


def _width_axis(axes: Axes) -> None:
    log_axis(axes)
    axes.set_xlabel("beam width")


def _mark_one(axes: Axes) -> None:
    """A line where outputs are as long as the references."""
    axes.axhline(1.0, color=GREY, linewidth=0.8, zorder=1)


_QUALITY: Final = {"bleu": "BLEU on {}", "ratio": "length ratio on {}"}
_FAULTS: Final = {"empty": "empty outputs on {} (%)", "repeating": "repeating on {} (%)"}
FIGURES: Final[Mapping[str, Callable[[Data], Figure | None]]] = {
    "curse": _curse,
    "ends": _ends,
    "methods": partial(_over_widths, name="test", fields=_QUALITY),
    "methods-dev": partial(_over_widths, name="dev", fields=_QUALITY),
    "deciles": _deciles,
    "speed": _speed,
    "faults": partial(_over_widths, name="test", fields=_FAULTS),
    "limits": _limits,
    "tuning": _tuning,
    "sentence": _telling,
}
