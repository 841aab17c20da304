"""Where scores that aim at a length help: their gain over length norm by how short its outputs are."""

from __future__ import annotations

from matplotlib.figure import Figure

from uncurse.study.findings import Findings
from uncurse.study.methods import NORM
from uncurse.study.report.looks import look_of
from uncurse.study.report.plot_style import GREY, legend_below, stacked


def gains_figure(findings: Findings) -> Figure | None:
    """Gains on test with their intervals, and how many sentences there are in each bin."""
    bins = findings.gains.get("test", ())
    methods = [method for method in findings.methods if method.aims_at_length]
    if len(bins) < 2 or not methods:
        return None
    figure, (above, below) = stacked((2.4, 0.8))
    above.axhline(0.0, color=GREY, linewidth=0.8, zorder=1)
    handles = {}
    for turn, method in enumerate(methods):
        look = look_of(method)
        shift = 0.5 * ((turn + 0.5) / len(methods) - 0.5)  # intervals stand beside each other
        places = [place + shift for place in range(len(bins))]
        found = [each.gains[method.name] for each in bins]
        low, high = [each.low for each in found], [each.high for each in found]
        above.vlines(places, low, high, look.colour, linewidth=0.8)
        (handles[look],) = above.plot(places, [each.bleu for each in found], **{**look.style(), "linestyle": ""})
    above.set_ylabel(f"BLEU above {findings.label(NORM)}")
    below.bar(range(len(bins)), [each.sentences for each in bins], width=0.6, color=GREY)
    below.set_ylabel("sentences")
    below.set_xticks(range(len(bins)), [each.label for each in bins])
    size = findings.study.plan.display_beam_size
    below.set_xlabel(f"{findings.label(NORM)}'s |y| / expected length L\n(test, beam size {size})")
    legend_below(figure, handles)
    return figure
