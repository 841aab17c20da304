"""What dev says about the parameters of the scores, for small and for large beams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from uncurse.study.findings import Findings
from uncurse.study.methods import StudyMethod
from uncurse.study.plan import GROUPS
from uncurse.study.report.looks import Look, look_of
from uncurse.study.report.plot_style import GREY, WIDTH, heat_map, legend_below

GRID: Final = Look("best of the grid", GREY, "o", "")
PERCEPTRON: Final = Look("by the perceptron", GREY, "o", "")


def tuning_figure(findings: Findings) -> Figure | None:
    """A row of curves for each parameter that is tuned alone, and of heat maps for each two tuned together."""
    alone: dict[str, list[StudyMethod]] = {}
    together = []
    for method in findings.methods:
        if method.tuned:
            varied = findings.tuning[GROUPS[0]].curves[method.name].varied
            if len(varied.parameters) == 1:
                alone.setdefault(varied.parameters[0], []).append(method)
            elif len(varied.parameters) == 2:
                together.append(method)
    count = len(alone) + len(together)
    if not count:
        return None
    figure = Figure(figsize=(WIDTH, 0.3 + 1.8 * count), layout="constrained")
    panels = figure.subplots(count, len(GROUPS), squeeze=False, sharey="row")
    handles: dict[Look, Line2D] = {}
    for row, (parameter, methods) in zip(panels, alone.items(), strict=False):
        row[0].set_ylabel("BLEU on dev")
        for axes, group in zip(row, GROUPS, strict=True):
            axes.set_xlabel(parameter)
            handles |= _curves(axes, findings, methods, group)
    for row, method in zip(panels[len(alone) :], together, strict=True):
        _heat_maps(figure, row, findings, method)
    for axes, group in zip(panels[0], GROUPS, strict=True):
        sizes = findings.study.plan.beam_sizes_of(group)
        span = f"{min(sizes)}–{max(sizes)}" if len(sizes) > 1 else str(sizes[0])
        axes.set_title(f"{group} beams ({span})", loc="left")
    if handles:
        handles[GRID] = Line2D([], [], **GRID.style())
        handles[PERCEPTRON] = Line2D([], [], **PERCEPTRON.style(hollow=True))
        legend_below(figure, handles)
    return figure


def _curves(axes: Axes, findings: Findings, methods: Sequence[StudyMethod], group: str) -> dict[Look, Line2D]:
    handles = {}
    tuning = findings.tuning[group]
    for method in methods:
        curve, look = tuning.curves[method.name].varied, look_of(method)
        values = [value for (value,) in curve.values]
        best = [values.index(curve.best[0])]
        (handles[look],) = axes.plot(values, curve.bleu, markevery=best, **look.style())
        reward = tuning.perceptron.get(method.name)
        if reward is not None and values[0] <= reward <= values[-1]:
            axes.plot([reward], [np.interp(reward, values, curve.bleu)], **look.style(hollow=True))
    return handles


def _heat_maps(figure: Figure, panels: Sequence[Axes], findings: Findings, method: StudyMethod) -> None:
    """Two parameters of a method, with one scale of colours."""
    curves = [findings.tuning[group].curves[method.name].varied for group in GROUPS]
    bleus = [value for curve in curves for value in curve.bleu]
    for axes, curve in zip(panels, curves, strict=True):
        cells = {(row, column): bleu for (row, column), bleu in zip(curve.values, curve.bleu, strict=True)}
        row, column = curve.best
        mesh = heat_map(axes, cells, (row, column), (min(bleus), max(bleus)))
        axes.set_xlabel(curve.parameters[1])
    panels[0].set_ylabel(f"{method.label}: {curves[0].parameters[0]}")
    scale = figure.colorbar(mesh, ax=list(panels), label="BLEU on dev", aspect=14)
    scale.outline.set_visible(False)
    if scale.solids is not None:
        scale.solids.set_edgecolor("face")
