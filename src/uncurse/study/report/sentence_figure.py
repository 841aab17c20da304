"""The figure of one sentence: what finished, and which of it each method chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from uncurse.scoring.result import Certificate
from uncurse.study.findings import Findings
from uncurse.study.report.looks import DASHED, SOLID, Dashes, Look, look_of
from uncurse.study.report.plot_style import GREY, WIDTH

LINE: Final = 0.13  # inches from one line of text to the next
GAP: Final = 0.08  # between blocks of them
NAME_LINE: Final = 21  # characters that fit beside the axes
_LENGTHS: Final[Mapping[str, Dashes]] = {"R": SOLID, "L": DASHED}


@final
@dataclass(frozen=True)
class Choice:
    """A candidate and the methods that choose it."""

    point: tuple[float, float] | None  # length and log-probability; none where nothing has finished
    looks: tuple[Look, ...]

    @property
    def height(self) -> float:
        """What its names need, in inches."""
        lines = sum(len(look.label_lines(NAME_LINE)) for look in self.looks)
        return (lines + (self.point is None)) * LINE + GAP


def telling_sentence(findings: Findings) -> Figure:
    """The sentence on which the methods agree least; of several, the one with the most candidates."""
    outputs = [findings.displayed(method) for method in findings.methods]

    def disagreement(index: int) -> tuple[int, int]:
        return len({each.texts[index] for each in outputs}), len(findings.sentences[index].points)

    return sentence_figure(findings, max(range(len(findings.sentences)), key=disagreement))


def sentence_figure(findings: Findings, index: int) -> Figure:
    """The finished candidates of one test sentence, and which of them each method chooses."""
    sentence = findings.sentences[index]
    choices = _choices(findings, index)
    figure, axes = _axes_beside(choices)
    lengths = [length for length, _ in sentence.points]
    axes.plot(lengths, [log_prob for _, log_prob in sentence.points], ".", color=GREY, markersize=3.5)
    named = {"R": float(sentence.max_length)}
    expected = findings.study.test_sets["test"].expected_lengths[index]
    if expected is not None:
        named["L"] = round(expected, 1)
    _length_lines(axes, named)
    _label_choices(axes, choices)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]) if sentence.points else NullLocator())
    axes.set_xlabel("length in tokens")
    axes.set_ylabel("log-probability")
    size = findings.study.plan.display_beam_size
    figure.text(0.02, 0.98, f"test sentence {index + 1:,}, beam size {size}", va="top")
    return figure


def _choices(findings: Findings, index: int) -> list[Choice]:
    chosen: dict[tuple[float, float] | None, list[Look]] = {}
    for method in findings.methods:
        outputs = findings.displayed(method)
        finished = outputs.certificates[index] is not Certificate.TRUNCATED
        point = (float(outputs.lengths[index]), float(outputs.log_probs[index])) if finished else None
        chosen.setdefault(point, []).append(look_of(method))
    return [Choice(point, tuple(looks)) for point, looks in chosen.items()]


def _axes_beside(choices: Sequence[Choice]) -> tuple[Figure, Axes]:
    """Axes with the names of methods on their right; sizes are fixed so that the names are sure to find room."""
    tall = max(2.1, sum(choice.height for choice in choices))
    figure = Figure(figsize=(WIDTH, tall + 0.75))
    across = 0.57 / WIDTH, 1.41 / WIDTH
    up = 0.37 / (tall + 0.75), tall / (tall + 0.75)
    return figure, figure.add_axes((across[0], up[0], across[1], up[1]))


def _length_lines(axes: Axes, lengths: Mapping[str, float]) -> None:
    """A line at each length, with names above the axes that stand away from each other and from the left edge."""
    blue = "#0072B2"
    for name, length in lengths.items():
        axes.axvline(length, color=blue, linewidth=0.8, linestyle=_LENGTHS[name], zorder=1)
    low, high = axes.get_xlim()
    last = max(lengths, key=lambda name: lengths[name])
    above = axes.get_xaxis_transform() + ScaledTranslation(0, 0.04, axes.figure.dpi_scale_trans)
    for name, length in lengths.items():
        side = "left" if name == last or length - low < 0.25 * (high - low) else "right"
        axes.text(length, 1, f"{name} = {length:g}", ha=side, fontsize=6.5, color=blue, transform=above)


def _label_choices(axes: Axes, choices: Sequence[Choice]) -> None:
    """Ring what was chosen and lead from it to the names, which stand in the order of the points."""
    room = axes.get_window_extent().height / axes.figure.dpi
    there = {choice.point: choice for choice in choices if choice.point is not None}
    points = sorted(there, key=lambda point: (-point[1], point[0]))
    rings = {"color": "black", "fillstyle": "none", "markersize": 6, "markeredgewidth": 0.9}
    axes.plot([x for x, _ in points], [y for _, y in points], "o", **rings)  # type: ignore[arg-type]
    low, high = axes.get_ylim()
    wanted = [room * (y - low) / (high - low) for _, y in points]
    ordered = [there[point] for point in points] + [choice for choice in choices if choice.point is None]
    wanted += [0.0] * (len(ordered) - len(wanted))
    centres = spread(wanted, [choice.height for choice in ordered], room)
    for choice, centre in zip(ordered, centres, strict=True):
        _names(axes, choice, centre / room, room)


def _names(axes: Axes, choice: Choice, centre: float, room: float) -> None:
    """The names of a choice below each other; the centre is a fraction of the axes."""
    beside = axes.transAxes
    top = centre + (choice.height - GAP) / 2 / room
    bottom = 2 * centre - top
    axes.plot([1.12, 1.12], [bottom, top], color=GREY, linewidth=0.8, transform=beside, clip_on=False)
    if choice.point is not None:
        line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
        axes.annotate("", choice.point, (1.12, centre), textcoords="axes fraction", arrowprops=line)
    height = top - LINE / 2 / room
    if choice.point is None:
        axes.text(1.16, height, "nothing finished:", transform=beside, va="center", fontsize=6.5)
        height -= LINE / room
    for look in choice.looks:
        axes.plot([1.19], [height], transform=beside, **{**look.style(), "linestyle": "", "clip_on": False})
        for text in look.label_lines(NAME_LINE):
            axes.text(1.26, height, text, transform=beside, va="center", fontsize=6.5)
            height -= LINE / room


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
