"""How each method is drawn, in every figure and on the page: colour and mark follow from its place in the list."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from uncurse.study.methods import StudyMethod

Dashes: TypeAlias = str | tuple[float, tuple[float, ...]]

SOLID: Final[Dashes] = "-"
DASHED: Final[Dashes] = (0, (4, 1.5))
DOTTED: Final[Dashes] = (0, (1.2, 1.2))
SHORT: Final[Dashes] = (0, (2.5, 1.2))
MIXED: Final[Dashes] = (0, (5, 1.2, 1.2, 1.2))
LABEL_LINE: Final = 24  # characters: two columns of a legend fit a figure


@final
@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    label: str
    colour: str
    marker: str
    line: Dashes = SOLID
    size: float = 4.4  # of the marker

    def style(self, hollow: bool = False) -> dict[str, Any]:
        """The keywords of a line; a white edge separates markers that lie on each other."""
        edge = {"markeredgewidth": 0.9, "fillstyle": "none"} if hollow else {"markeredgecolor": "white"}
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            "markersize": self.size,
            **edge,
        }

    def label_lines(self, width: int = LABEL_LINE) -> list[str]:
        """The label, broken after a comma if it has more characters than the width."""
        if len(self.label) <= width:
            return [self.label]
        head, comma, tail = self.label.partition(", ")
        return [line for part in (head + comma.strip(), tail) for line in textwrap.wrap(part, width)]


# Colours of Okabe and Ito (2008) and Tol (2021), which the colour-blind can tell apart.
_PALETTE: Final[tuple[tuple[str, str, float, Dashes], ...]] = (
    ("#000000", "o", 4.4, DOTTED),
    ("#56B4E9", "s", 4.2, DASHED),
    ("#0072B2", "D", 4.2, MIXED),
    ("#CC79A7", "^", 5.2, DASHED),
    ("#117733", "v", 5.2, SHORT),
    ("#E69F00", "P", 5.8, MIXED),
    ("#D55E00", "X", 5.8, DASHED),
    ("#009E73", "p", 5.4, SHORT),
    ("#882255", "*", 7.4, DOTTED),
    ("#332288", "h", 5.4, MIXED),
    ("#AA4499", "<", 5.2, DASHED),
    ("#44AA99", ">", 5.2, SHORT),
    ("#999933", "d", 5.2, DOTTED),
    ("#6699CC", "8", 5.0, MIXED),
)


def look_of(method: StudyMethod) -> Look:
    """The look of a method; the line of one that reads an expected length is solid.

    Where there are more methods than colours, those of one colour have different markers.
    """
    turn = method.place // len(_PALETTE)
    colour, _, _, dashes = _PALETTE[method.place % len(_PALETTE)]
    _, marker, size, _ = _PALETTE[(method.place + 5 * turn) % len(_PALETTE)]
    return Look(
        label=method.label, colour=colour, marker=marker, line=SOLID if method.reads_length else dashes, size=size
    )
