"""`uncurse study`: a plan in; traces, tables, figures and a page out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from uncurse.study.opened import Study


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
def run(plan: PlanFile, out: Out, data: Data = Path()) -> None:
    """Decode once for each test set and width. Interrupt it as you like: it goes on where it was."""
    study = _opened(plan, data, out)
    recordings = list(study.recordings())
    total = sum(each.rows(shard) for _, each in recordings for shard in study.store.missing(each))
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("time left"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("decoding", total=total)
        for name, recording in recordings:
            bar.update(task, description=f"{name}, width {recording.width}")
            start, done = time.perf_counter(), 0
            for shard in study.store.record(study.model, recording):
                bar.advance(task, recording.rows(shard))
                done += 1
            if done and not console.is_terminal:
                typer.echo(f"{name}, width {recording.width}: {time.perf_counter() - start:.0f} s", err=True)
        bar.update(task, description="references and exact searches")
        for _ in study.probes.ask(study.model, tuple(study.materials.values())):
            pass
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


def _opened(plan: Path, data: Path, out: Path) -> Study:
    import torch

    from uncurse.study.opened import open_study
    from uncurse.study.plan import read_plan

    read = read_plan(plan)
    torch.set_num_threads(read.threads)
    return open_study(read, data, out)
