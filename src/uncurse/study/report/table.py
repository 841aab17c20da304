"""A table as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from uncurse.errors import UncurseError
from uncurse.evaluation.bootstrap import Difference

_LATEX: Final = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "--",
    "⌈": r"$\lceil$",
    "⌉": r"$\rceil$",
    "<": r"$<$",
    ">": r"$>$",
    "Σ": r"$\Sigma$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "…": r"\ldots{}",
}


@final
@dataclass(frozen=True)
class Table:
    """Rows of text under a title; `strong` cells are the best of their column."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    strong: frozenset[tuple[int, int]] = frozenset()  # row and column

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise UncurseError(f"{self.name}: {row} does not have one cell for each of {self.columns}")

    def markdown(self) -> str:
        """For a page of documentation."""
        lines = [
            f"**{self.title}**",
            "",
            "| " + " | ".join(map(_markdown, self.columns)) + " |",
            "|" + "|".join("---" if column == 0 else "--:" for column in range(len(self.columns))) + "|",
        ]
        for number, row in enumerate(self.rows):
            cells = [
                f"**{_markdown(cell)}**" if (number, column) in self.strong else _markdown(cell)
                for column, cell in enumerate(row)
            ]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines + (["", self.note] if self.note else [])) + "\n"

    def latex(self) -> str:
        """For a paper, with booktabs."""
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            r"\toprule",
            " & ".join(map(_latex, self.columns)) + r" \\",
            r"\midrule",
        ]
        for number, row in enumerate(self.rows):
            cells = [
                rf"\textbf{{{_latex(cell)}}}" if (number, column) in self.strong else _latex(cell)
                for column, cell in enumerate(row)
            ]
            lines.append(" & ".join(cells) + r" \\")
        caption = f"{self.title}. {self.note}".strip()
        lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{_latex(caption)}}}", r"\end{table}"]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """For a spreadsheet."""
        content = io.StringIO()
        writer = csv.writer(content, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return content.getvalue()


def _markdown(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _latex(cell: str) -> str:
    return "".join(_LATEX.get(character, character) for character in cell)


def pair(bleu: float, ratio: float) -> str:
    """BLEU with its length ratio."""
    return f"{bleu:.2f} ({ratio:.3f})"


def interval(difference: Difference) -> str:
    """A difference with its interval."""
    return f"{difference.bleu:+.2f} ({difference.low:+.2f} … {difference.high:+.2f})"


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def rows_of(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The rows of a table, as tuples."""
    return tuple(tuple(row) for row in rows)
