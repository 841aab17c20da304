"""`uncurse explain`: one sentence, seen through every score and stopping rule."""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from uncurse.cli.options import Language, in_utf8
from uncurse.explaining import Explanation, standard_scores
from uncurse.rescoring import SCORES
from uncurse.stopping import RULES


def explain(
    sentence: Annotated[str, typer.Argument(callback=in_utf8, help="The sentence to translate.")],
    model: Annotated[str | None, typer.Option(help="A name from `uncurse models`, or a folder.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="The width of the beam.")] = 20,
    max_length: Annotated[str | None, typer.Option(help="The most tokens, as for `uncurse translate`.")] = None,
    reward: Annotated[float, typer.Option(help="r of the scores that need one.")] = 1.0,
    ratio: Annotated[float | None, typer.Option(help="Expect so many target tokens per source piece.")] = None,
    candidates: Annotated[int, typer.Option(min=1, help="How many finished candidates to show.")] = 10,
    source_lang: Language = None,
    target_lang: Language = None,
) -> None:
    """Show what a search finished, which score picks what, and what each stopping rule costs and loses."""
    from uncurse.length import parse_limit
    from uncurse.loading import load
    from uncurse.search import record
    from uncurse.translator import TWO_WAYS, Task, recorded_in_vain

    limit = None if max_length is None else parse_limit(max_length)
    translator = load(model, source_lang=source_lang, target_lang=target_lang)
    task = Task(limit=limit, ratio=ratio)
    asked = translator.sentence(sentence, task)
    expected = asked.predicted
    if expected is None:
        raise ValueError(f"an expected length is needed: {TWO_WAYS}")
    (trace,) = record(translator.model, [asked], beam)
    again = translator.wider(asked, task) if recorded_in_vain(trace) else None
    if again is not None:  # as `uncurse translate` does
        asked = again
        (trace,) = record(translator.model, [asked], beam)
    explanation = Explanation(trace, expected, standard_scores(reward, translator.model.attends))
    shown = explanation.candidates(candidates)
    if not shown:
        raise ValueError("nothing finished within the limit: give a higher --max-length")
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(
        f"{len(asked.source)} source pieces · predicted length {expected:.1f} · limit {asked.limit}"
        f" · beam {beam} · {len(trace.finished_sums)} finished",
        highlight=False,
    )
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    names = [SCORES.name(score) for score in explanation.scores]
    table = Table(title="Finished candidates; ● is what a score picks", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("", "n", "log p", *names[1:]):
        table.add_column(column, justify="right")
    table.add_column("text")
    for index, candidate in enumerate(shown):
        cells = [
            f"{'● ' if score in candidate.chosen_by else ''}{value:.2f}"
            for score, value in zip(explanation.scores, candidate.scores, strict=True)
        ]
        text = translator.text(candidate.tokens)
        table.add_row(letters[index % 26], str(len(candidate.tokens)), *cells, Text(text or "(nothing)"))
    console.print(table)
    console.print(_plot([(len(each.tokens), each.log_prob) for each in shown], letters, expected))
    console.print(_verdicts(explanation))


def _plot(points: list[tuple[int, float]], letters: str, predicted: float) -> Text:
    """Length against log-probability, with the predicted length as a line."""
    width, height = 60, 12
    longest = max(max(length for length, _ in points), int(predicted) + 1) + 1
    high, low = max(value for _, value in points), min(value for _, value in points)
    rows = [[" "] * (width + 1) for _ in range(height)]
    line = round(predicted / longest * width)
    for row in rows:
        row[line] = "┊"
    for index, (length, value) in reversed(list(enumerate(points))):  # where two meet, the first is seen
        down = 0 if high == low else round((high - value) / (high - low) * (height - 1))
        rows[down][round(length / longest * width)] = letters[index % 26]
    label = f"log p {high:.1f} … {low:.1f} (down), length 0 … {longest} (across), ┊ predicted length"
    return Text("\n".join([label, *("│" + "".join(row) for row in rows), "└" + "─" * (width + 1), ""]))


def _verdicts(explanation: Explanation) -> Table:
    names = [entry.name for entry in RULES]
    table = Table(
        title="Stopping: step, model rows, and what is lost against the whole beam", box=box.SIMPLE_HEAD,
        title_justify="left",
    )  # fmt: skip
    table.add_column("score")
    for name in names:
        table.add_column(name, justify="right")
    verdicts = iter(explanation.verdicts())
    for score in explanation.scores:
        cells = []
        for _ in names:
            verdict = next(verdicts)
            lost = f" −{verdict.loss:.2f}" if verdict.loss > 0 else ""
            cells.append(f"{verdict.result.steps} · {verdict.result.rows}{lost}")
        table.add_row(SCORES.spec(score), *cells)
    return table
