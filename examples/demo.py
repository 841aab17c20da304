"""What wider beams do to translations, and how to stop it: `make demo`.

The bundled model translates eighty verses with beams of 5, 20 and 80: by the raw log-probability, by length norm
as other toolkits stop it, and by the default of uncurse. OPUS-MT translates half of them, if it can be downloaded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import uncurse
from uncurse.evaluation.bleu import Quality, bleu_of, bleu_statistics, corpus_quality
from uncurse.models.download import download
from uncurse.translation.translator import Translation, Translator

VERSES: Final = Path(__file__).with_name("verses.tsv")
BEAM_SIZES: Final = (5, 20, 80)
OPUS: Final = "opus-mt-zh-en"
UMBRELLA: Final = "外面下雨了，你最好带上雨伞。"
BAR: Final = 40  # characters for the highest BLEU


@final
@dataclass(frozen=True)
class Method:
    """A way to search, with the colour it is shown in."""

    name: str
    colour: str
    score: str | None = None
    stop: str = "optimal"
    slots: str = "occupy"

    def translate(self, translator: Translator, lines: Sequence[str], beam_size: int) -> list[Translation]:
        """Translate by it."""
        return translator.translate(lines, beam_size=beam_size, score=self.score, stop=self.stop, slots=self.slots)


METHODS: Final = (
    Method("raw score", "red", "log-prob"),
    Method("length norm", "yellow", "length-norm", "beam-full", "refill"),
    Method("uncurse", "green"),
)


@final
@dataclass(frozen=True)
class Run:
    """The verses, translated by one method with one beam size."""

    method: Method
    beam_size: int
    texts: tuple[str, ...]
    quality: Quality
    seconds: float


def table_of(runs: Sequence[Run], title: str) -> Table:
    """A row for each run."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in ("beam", "BLEU", "length ratio", "empty", "seconds"):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(
            run.method.name if run.beam_size == BEAM_SIZES[0] else "",
            str(run.beam_size),
            f"{run.quality.bleu:.1f}",
            f"{run.quality.ratio:.2f}",
            str(sum(not text for text in run.texts)),
            f"{run.seconds:.1f}",
            style=run.method.colour,
            end_section=run.beam_size == BEAM_SIZES[-1],
        )
    return table


def run_all(console: Console, translator: Translator, rows: Sequence[Sequence[str]], title: str) -> list[Run]:
    """Translate by every method with every beam size; rows appear as they are done."""
    lines, *references = zip(*rows, strict=True)
    runs: list[Run] = []
    with Live(console=console, transient=True) as live:
        for method in METHODS:
            for beam_size in BEAM_SIZES:
                live.update(Group(table_of(runs, title), Text(f"{method.name}, beam {beam_size} …", style="dim")))
                start = time.perf_counter()
                texts = tuple(each.text for each in method.translate(translator, lines, beam_size))
                seconds = time.perf_counter() - start
                runs.append(Run(method, beam_size, texts, corpus_quality(texts, references, True), seconds))
    console.print(table_of(runs, title))
    console.print(plot_of(runs), "")
    return runs


def plot_of(runs: Sequence[Run]) -> Table:
    """BLEU as bars, a group for each beam size."""
    plot = Table(title="BLEU", title_justify="left", title_style="bold", box=None, pad_edge=False)
    highest = max(run.quality.bleu for run in runs)
    for beam_size in BEAM_SIZES:
        for run in runs:
            if run.beam_size == beam_size:
                bar = "█" * round(BAR * run.quality.bleu / highest)
                plot.add_row(
                    f"b = {beam_size}" if run.method is METHODS[0] else "",
                    Text(f"{bar} {run.quality.bleu:.1f}", style=run.method.colour),
                    run.method.name,
                )
    return plot


def side_by_side(title: str, rows: Sequence[Sequence[str]]) -> Table:
    """Sentences, with a reference and what each method makes of them."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
    for source, *texts in rows:
        table.add_row("", Text(source, style="bold"))
        styles = [("reference", "dim"), *((method.name, method.colour) for method in METHODS)][-len(texts) :]
        for (name, style), text in zip(styles, texts, strict=True):
            table.add_row(name, text or "(nothing at all)", style=style)
        table.add_row()
    return table


def greatest_differences(runs: Sequence[Run], rows: Sequence[Sequence[str]], count: int) -> list[list[str]]:
    """The verses that the raw score cuts most in the widest beam, where the default is closer to a reference.

    At most one of them has an empty output.
    """
    raw, norm, ours = (run.texts for run in runs if run.beam_size == BEAM_SIZES[-1])

    def gain(index: int) -> float:
        references = [[reference] for reference in rows[index][1:]]
        of_raw, of_ours = (bleu_of(bleu_statistics([each[index]], references, True)[0]) for each in (raw, ours))
        return of_ours - of_raw

    better = [index for index in range(len(rows)) if gain(index) > 0]
    cut = sorted((index for index in better if raw[index]), key=lambda each: len(raw[each]) / len(ours[each]))
    empty = sorted((index for index in better if not raw[index]), key=gain)[-1:]
    chosen = [*cut[: count - len(empty)], *empty]
    return [[*rows[index][:2], raw[index], norm[index], ours[index]] for index in chosen]


def main() -> None:
    """Translate and print."""
    console = Console()
    text = VERSES.read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    console.print(
        "A wider beam searches more, so translations should get better. Ranked by their raw log-probability they"
        " get worse: short outputs have high probabilities, and a wide beam finds them. Here is the same search"
        " with three ways to rank and stop: the raw score; length norm, stopped as other toolkits do; and uncurse,"
        " the default of this package: F1-Norm, stopped as soon as nothing better can come.\n",
        highlight=False,
    )
    runs = run_all(console, uncurse.load(), rows, f"{len(rows)} Bible verses, the bundled model, two references")
    widest = BEAM_SIZES[-1]
    console.print(side_by_side(f"Three of them, b = {widest}", greatest_differences(runs, rows, 3)))
    try:
        console.print(f"Now {OPUS}, a model in daily use (75 MB, downloaded once) …", highlight=False)
        download(OPUS)
    except (uncurse.UncurseError, OSError) as error:
        console.print(f"{OPUS} is left out, since it cannot be downloaded: {error}", highlight=False)
    else:
        opus = uncurse.load(OPUS, dtype="int8")
        half = rows[::2]
        run_all(console, opus, half, f"{len(half)} of the verses, {OPUS} in int8")
        outputs = [method.translate(opus, [UMBRELLA], widest)[0].text for method in METHODS]
        console.print(side_by_side(f"An everyday sentence, b = {widest}", [[UMBRELLA, *outputs]]))
    console.print(
        "What to type next:\n"
        f"  .venv/bin/uncurse explain {UMBRELLA}\n"
        "      what every score picks, and what every stopping rule costs\n"
        "  .venv/bin/uncurse serve\n"
        "      a page that shows a search step by step\n"
        "  .venv/bin/uncurse translate --model MODEL FILE\n"
        "      your own text with your own model; docs/models.md says which",
        highlight=False,
    )


if __name__ == "__main__":
    main()
