"""`uncurse study`: a plan in; traces, tables, figures and a page out."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from uncurse.cli.counter import Counter
from uncurse.cli.options import Engine, Workers

if TYPE_CHECKING:
    from uncurse.study.opened import Study


class Baseline(StrEnum):
    """Systems to compare with."""

    PHRASE_BASED = "phrase-based"


study_app = typer.Typer(help="The study of the paper for any model.", no_args_is_help=True)
PlanFile = Annotated[Path, typer.Argument(help="A TOML plan; see studies/.")]
Out = Annotated[Path, typer.Option(help="The folder of the study.")]
Data = Annotated[Path, typer.Option(help="Where the plan's text files are.")]


@study_app.command()
def plan(plan: PlanFile, out: Out, data: Data = Path()) -> None:
    """Show what will be decoded and how long it will take."""
    from uncurse.study.costs import forecast

    study = _opened(plan, data, out)
    Console().print(forecast(study))


@study_app.command()
def run(
    plan: PlanFile,
    out: Out,
    data: Data = Path(),
    engine: Engine = None,
    workers: Workers = 0,
) -> None:
    """Decode once for each test set and width. Interrupt it as you like: it goes on where it was."""
    from uncurse.engines.cluster import engine_of, found_anywhere
    from uncurse.engines.local import Local
    from uncurse.study.running import Opening, open_parts, run_study

    if workers and not engine:
        raise ValueError("--workers needs --engine ray")
    study = _opened(plan, data, out)
    running = engine_of(engine, workers, study.plan.threads, "cpu") if engine else Local()
    opening = Opening(found_anywhere(study.plan.model), study.plan.dtype) if engine else lambda: study.model
    parts = [part for part, _ in open_parts(study)]
    left, failures = Tally(part.name for part in parts), 0
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("time left"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task, start = bar.add_task("decoding", total=sum(part.rows for part in parts)), time.perf_counter()
        for part, reason in run_study(study, running, opening):
            bar.update(task, description=part.name, advance=part.rows)
            left[part.name] -= 1
            if reason:
                failures += 1
                typer.echo(f"uncurse: a part of {part.name} failed: {reason}", err=True)
            elif not left[part.name] and not console.is_terminal:
                typer.echo(f"{part.name}: done after {time.perf_counter() - start:.0f} s", err=True)
    if failures:
        typer.echo(f"uncurse: {failures} parts are missing; run it again to do them", err=True)
        raise typer.Exit(1)
    typer.echo(f"everything is decoded; now: uncurse study report {plan} --data {data} --out {out}")


@study_app.command()
def report(plan: PlanFile, out: Out, data: Data = Path()) -> None:
    """Judge the traces: tables, figures and one page, all in the folder of the study."""
    from uncurse.study.costs import saved
    from uncurse.study.evaluating import evaluate
    from uncurse.study.reporting import write_report

    console = Console(stderr=True)
    with console.status("opening") as status:
        start = time.perf_counter()
        findings = evaluate(_opened(plan, data, out), status.update)
        seconds = time.perf_counter() - start
        status.update("writing")
        commands = [f"uncurse study {each} {plan.name} --data DATA --out FOLDER" for each in ("run", "report")]
        written = write_report(findings, out, commands)
    typer.echo(saved(findings, seconds))
    typer.echo(f"{len(written)} files are in {out}; open {out / 'report.html'}")


@study_app.command()
def baseline(
    kind: Annotated[Baseline, typer.Argument(help="The system to train.")],
    plan: PlanFile,
    out: Out,
    data: Data = Path(),
) -> None:
    """Train another system on the plan's training text and translate its test sets: a row of the main table."""
    from uncurse.study.phrase_based import train_phrase_based, translate_phrase_based
    from uncurse.study.plan import read_plan
    from uncurse.text.lines import read_lines
    from uncurse.training.recipe import Corpus

    read = read_plan(plan)
    if not read.training:
        raise ValueError(f"{plan} names no [[training]] text for the baseline")

    def located(source: str, targets: tuple[str, ...]) -> Corpus:
        return Corpus(str(data / source), tuple(str(data / target) for target in targets))

    folder = out / kind.value
    training = [located(corpus.source, corpus.targets) for corpus in read.training]
    dev = located(read.dev.source, read.dev.references)
    train_phrase_based(training, dev, folder / "model", read.lowercase, lambda text: typer.echo(text, err=True))
    for name, files in (("dev", read.dev), ("test", read.test)):
        lines = read_lines(data / files.source)
        translate = partial(translate_phrase_based, folder / "model", lowercase=read.lowercase)
        with Counter(f"{name}: translated", 0, len(lines)) as counter:
            _translate_shards(
                lines, translate, folder / f"{name}.txt", (folder / "model" / "model.json").read_text(), counter
            )
    typer.echo(f"the translations are in {folder}; uncurse study report shows them beside the others")


def _translate_shards(
    lines: Sequence[str], translate: Callable[[Sequence[str]], Iterable[str]], out: Path, means: str, bar: Counter
) -> None:
    """Translate what an earlier run has not."""
    from uncurse.parts import Parts
    from uncurse.shards import shards_of
    from uncurse.text.corpora import Form, write_corpus

    parts, count = Parts(out, means, resume=True), 0
    for shard in shards_of(lines):
        if not parts.has(shard):
            parts.add(shard, "".join(f"{line}\n" for line in translate(shard.lines)).encode())
        bar.advance_shard(len(shard.lines))
        count += 1
    parts.finish(count, partial(write_corpus, Form.TEXT))


def _opened(plan: Path, data: Path, out: Path) -> Study:
    import torch

    from uncurse.study.opened import open_study
    from uncurse.study.plan import read_plan

    read = read_plan(plan)
    torch.set_num_threads(read.threads)
    return open_study(read, data, out)
