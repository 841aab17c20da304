"""`uncurse explain`: one sentence, seen through every score and stopping rule."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, final

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from uncurse.cli.options import (
    BeamSize,
    LengthRatio,
    MaxLength,
    Reward,
    Threads,
    in_utf8,
    use_threads,
    with_model_options,
)
from uncurse.errors import UncurseError
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES
from uncurse.search.explain import Candidate, Explanation, standard_scores

LETTERS: Final = string.ascii_letters.swapcase()  # A … Z, then a … z
PLOT_WIDTH, PLOT_HEIGHT = 60, 12
MIN_WIDTH: Final = 80  # columns; a narrower terminal breaks lines itself, so that nothing is cut off
FILE_WIDTH: Final = 160
PADDING: Final = 3  # two spaces of padding and one between columns


@with_model_options
def explain(
    sentence: Annotated[str, typer.Argument(callback=in_utf8, help="The sentence to translate.")],
    model_options: ModelOptions,
    beam_size: BeamSize = DEFAULT_BEAM_SIZE,
    max_length: MaxLength = None,
    reward: Reward = 1.0,
    length_ratio: LengthRatio = None,
    candidates: Annotated[
        int, typer.Option(min=1, max=len(LETTERS), help="How many finished candidates to show.")
    ] = 10,
    threads: Threads = 0,
) -> None:
    """Show what a search finished, which score picks what, and what each stopping rule costs and loses."""
    from uncurse.lengths.limits import parse_max_length
    from uncurse.search.record import record
    from uncurse.translation.options import TranslationOptions
    from uncurse.translation.translator import load_translator

    options = TranslationOptions(
        max_length=None if max_length is None else parse_max_length(max_length), length_ratio=length_ratio
    )
    use_threads(threads)
    translator = load_translator(model_options)
    source = translator.encode(sentence)
    if not source:
        raise UncurseError("the sentence is empty: there is nothing to explain")
    if len(source) > (most := translator.max_source_length):
        raise UncurseError(f"the sentence has {len(source)} tokens; the maximum is {most}")
    (asked,) = translator.sentences([source], options)
    (trace,) = record(translator.model, [asked], beam_size)
    if (again := translator.retry(asked, trace, options)) is not None:
        asked = again
        (trace,) = record(translator.model, [asked], beam_size)
    expected = asked.expected_length
    scores = standard_scores(reward, translator.model.attends, knows_length=expected is not None)
    explanation = Explanation(trace, expected, scores)
    shown = explanation.candidates(candidates)
    if not shown:
        raise UncurseError(f"nothing finished within {asked.max_length} tokens: allow a higher maximum length")
    console = Console()
    width = max(console.width, MIN_WIDTH) if console.is_terminal else FILE_WIDTH
    console = Console(width=width)
    known = "" if expected is None else f" · expected length {expected:.1f}"
    console.print(
        f"{len(source)} source tokens{known} · maximum length {asked.max_length} · beam size {beam_size}"
        f" · {len(trace.finished_sums)} finished",
        highlight=False,
    )
    console.print(_candidates(shown, [translator.decode(each.tokens) for each in shown]))
    grid = _Grid("Their scores; ● marks what a score picks", _score_cells(explanation, shown))
    console.print(*grid.tables(console.width), sep="\n")
    console.print(_plot([(len(each.tokens), each.log_prob) for each in shown], expected))
    grid = _Grid("Stopping: steps · model rows, and what is lost against the whole beam", _stop_cells(explanation))
    console.print(*grid.tables(console.width), sep="\n")


@final
@dataclass(frozen=True)
class _Grid:
    """A table of short cells, [rows][columns], that is split by columns where a console is too narrow for it."""

    title: str
    cells: list[list[str]]  # with a header row, and a name in the first column of every row

    def tables(self, width: int) -> Iterator[Table]:
        """As many tables as it takes, each with the names; nothing is cut or folded."""
        widths = [max(map(cell_len, column)) + PADDING for column in zip(*self.cells, strict=True)]
        first, title = 1, self.title
        while first < len(widths):
            last, used = first + 1, widths[0] + widths[first]
            while last < len(widths) and used + widths[last] <= width:
                used += widths[last]
                last += 1
            table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, show_edge=False)
            for number, name in enumerate((self.cells[0][0], *self.cells[0][first:last])):
                table.add_column(Text(name), justify="right" if number else "left", no_wrap=True)
            for row in self.cells[1:]:
                table.add_row(*map(Text, (row[0], *row[first:last])))
            yield table
            first, title = last, ""


def _candidates(shown: Sequence[Candidate], texts: Sequence[str]) -> Table:
    table = Table(
        title="Finished candidates", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, show_edge=False
    )
    for name in ("", "n", "log p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("text", overflow="fold")
    for index, (each, text) in enumerate(zip(shown, texts, strict=True)):
        table.add_row(LETTERS[index], str(len(each.tokens)), f"{each.log_prob:.2f}", Text(text or "(nothing)"))
    return table


def _score_cells(explanation: Explanation, shown: Sequence[Candidate]) -> list[list[str]]:
    rows = [["score", *(LETTERS[index] for index in range(len(shown)))]]
    for place, score in enumerate(explanation.scores):
        cells = [f"{'● ' if score in each.chosen_by else ''}{each.scores[place]:.2f}" for each in shown]
        rows.append([SCORES.spec(score), *cells])
    return rows


def _stop_cells(explanation: Explanation) -> list[list[str]]:
    rows = [["score", *(RULES.spec(rule) for rule in explanation.rules)]]
    outcomes = iter(explanation.outcomes())
    for score in explanation.scores:
        cells = []
        for _ in explanation.rules:
            outcome = next(outcomes)
            lost = f" −{outcome.loss:.2f}" if outcome.loss > 0 else ""
            cells.append(f"{outcome.result.steps} · {outcome.result.model_rows}{lost}")
        rows.append([SCORES.spec(score), *cells])
    return rows


def _plot(points: list[tuple[int, float]], expected_length: float | None) -> Text:
    """Length against log-probability, with the expected length as a line."""
    longest = max(*(length for length, _ in points), int(expected_length or 0) + 1) + 1
    high, low = max(value for _, value in points), min(value for _, value in points)
    rows = [[" "] * (PLOT_WIDTH + 1) for _ in range(PLOT_HEIGHT)]
    if expected_length is not None:
        for row in rows:
            row[round(expected_length / longest * PLOT_WIDTH)] = "┊"
    for index, (length, value) in reversed(list(enumerate(points))):  # where two meet, the first is seen
        down = 0 if high == low else round((high - value) / (high - low) * (PLOT_HEIGHT - 1))
        rows[down][round(length / longest * PLOT_WIDTH)] = LETTERS[index]
    line = "" if expected_length is None else ", ┊ expected length"
    label = f"log p {high:.1f} … {low:.1f} (down), length 0 … {longest} (across){line}"
    return Text("\n".join([label, *("│" + "".join(row) for row in rows), "└" + "─" * (PLOT_WIDTH + 1), ""]))
