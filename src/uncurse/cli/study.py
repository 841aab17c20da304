"""`uncurse study`: a plan in; traces, tables, figures and a page out."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from uncurse.cli.options import Engine, Workers, use_threads
from uncurse.cli.progress import line_progress
from uncurse.errors import UncurseError, needs_extra

if TYPE_CHECKING:
    from uncurse.executors.local import Executor
    from uncurse.models.loaded_model import TranslationModel
    from uncurse.study.plan import Plan
    from uncurse.study.study import Study


class Baseline(StrEnum):
    """Systems to compare with."""

    PHRASE_BASED = "phrase-based"


study_app = typer.Typer(help="Compare scores, stopping rules and beam sizes on a test set.", rich_markup_mode=None)
PlanFile = Annotated[Path, typer.Argument(help="A TOML plan; see studies/.")]
Out = Annotated[Path, typer.Option(help="The folder of the study.")]
Data = Annotated[Path, typer.Option(help="Folder of the plan's text files.")]


@study_app.callback(invoke_without_command=True)
def study(context: typer.Context) -> None:
    """Compare scores, stopping rules and beam sizes on a test set."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@study_app.command()
def plan(plan: PlanFile, out: Out, data: Data = Path()) -> None:
    """Show what will be decoded and how long it will take."""
    with _needs_extras("study", plan):
        from uncurse.study.forecast import forecast

        for study in _studies(plan, data, out):
            Console().print(forecast(study))


@study_app.command()
def run(
    context: typer.Context,
    plan: PlanFile,
    out: Out,
    data: Data = Path(),
    engine: Engine = None,
    workers: Workers = 0,
) -> None:
    """Decode once for each test set and beam size; an interrupted run continues where it stopped."""
    if workers and not engine:
        raise UncurseError("--workers needs --engine ray")
    with _needs_extras("ray" if engine else "study", plan):
        failures = sum(_run_one(study, engine, workers) for study in _studies(plan, data, out))
    if failures:
        typer.echo(f"uncurse: {failures} parts are missing; run the command again to decode them", err=True)
        raise typer.Exit(1)
    next_command = _command(_plugins(context), "report", str(plan), str(data), str(out))
    typer.echo(f"everything is decoded; now: {next_command}")


def _plugins(context: typer.Context) -> list[str]:
    """What the command was given as --plugin, which comes before the subcommand."""
    return context.find_root().params.get("plugin") or []


def _command(plugins: Iterable[str], subcommand: str, plan: str, data: str, out: str) -> str:
    """A command as it is typed in a shell."""
    loaded = [word for plugin in plugins for word in ("--plugin", plugin)]
    return shlex.join(["uncurse", *loaded, "study", subcommand, plan, "--data", data, "--out", out])


def _run_one(study: Study, engine: str | None, workers: int) -> int:
    """Decode what is missing of a study, here or on Ray; how many parts have failed."""
    from uncurse.executors.local import LocalExecutor
    from uncurse.executors.ray_cluster import executor_of
    from uncurse.study.run import LoadStepModel

    executor = executor_of(engine, workers, study.plan.threads, "cpu") if engine else LocalExecutor()
    options = study.plan.model_options.with_absolute_paths()
    return _run(study, executor, LoadStepModel(options) if engine else partial(_model_of, study))


def _model_of(study: Study) -> TranslationModel[Any]:
    return study.model


def _run(study: Study, executor: Executor, setup: Callable[[], TranslationModel[Any]]) -> int:
    """Decode what is missing of a study; how many parts have failed."""
    from uncurse.study.run import missing_jobs, run_study

    jobs = [job for job, _ in missing_jobs(study)]
    left, failures = Counter(job.name for job in jobs), 0
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("time left"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task, start = bar.add_task("decoding", total=sum(job.rows for job in jobs)), time.perf_counter()
        for job, failure in run_study(study, executor, setup):
            bar.update(task, description=job.name, advance=job.rows)
            left[job.name] -= 1
            if failure is not None:
                failures += 1
                typer.echo(f"uncurse: a part of {job.name} failed: {failure.reason}", err=True)
            elif not left[job.name] and not console.is_terminal:
                typer.echo(f"{job.name}: done after {time.perf_counter() - start:.0f} s", err=True)
    return failures


@study_app.command()
def report(context: typer.Context, plan: PlanFile, out: Out, data: Data = Path()) -> None:
    """Judge the traces and write tables, figures and a page into the folder of the study."""
    with _needs_extras("study", plan):
        _report(plan, data, out, _plugins(context))


def _report(plan: Path, data: Path, out: Path, loaded: Sequence[str]) -> None:
    """Write the report of each study of a plan."""
    from uncurse.study.evaluate import evaluate
    from uncurse.study.forecast import time_saved
    from uncurse.study.report.headline import headline
    from uncurse.study.report.write import write_report

    plugins = [Path(each).name if each.endswith(".py") else each for each in loaded]
    commands = [_command(plugins, each, plan.name, "DATA", "FOLDER") for each in ("run", "report")]
    for study in _studies(plan, data, out):
        with Console(stderr=True).status("judging") as status:
            start = time.perf_counter()
            findings = evaluate(study, status.update)
            seconds = time.perf_counter() - start
            status.update("writing")
            written = write_report(findings, study.folder, commands)
        typer.echo("\n".join([study.plan.title, *headline(findings)]))
        typer.echo(time_saved(findings, seconds))
        typer.echo(f"{len(written)} files are in {study.folder}; open {study.folder / 'report.html'}")


@study_app.command()
@needs_extra("baseline")
def baseline(
    kind: Annotated[Baseline, typer.Argument(help="The system to train.")],
    plan: PlanFile,
    out: Out,
    data: Data = Path(),
) -> None:
    """Train another system on the plan's training text and translate its test sets: a row of the main table."""
    from uncurse.study.plan import read_plans

    plans = {name: each for name, each in read_plans(plan).items() if each.training}
    if not plans:
        raise UncurseError(f"{plan} names no [[training]] text for the baseline")
    for name, each in plans.items():
        _baseline(each, data, out / name / kind.value)


def _baseline(plan: Plan, data: Path, folder: Path) -> None:
    """Train the system of one plan and translate its test sets."""
    from uncurse.storage.atomic import read_regular_file
    from uncurse.storage.strict_json import MAX_BYTES
    from uncurse.study.baseline.phrase_based import train_phrase_based, translate_phrase_based
    from uncurse.text.lines import read_lines
    from uncurse.text.parallel import ParallelFiles

    def located(source: str, targets: tuple[str, ...]) -> ParallelFiles:
        return ParallelFiles(str(data / source), tuple(str(data / target) for target in targets))

    model = folder / "model"
    training = [located(corpus.source, corpus.targets) for corpus in plan.training]
    dev = located(plan.dev.source, plan.dev.references)
    train_phrase_based(training, dev, model, plan.lowercase, lambda text: typer.echo(text, err=True))
    settings = read_regular_file(model / "model.json", MAX_BYTES).decode()
    for name, files in (("dev", plan.dev), ("test", plan.test)):
        lines = read_lines(data / files.source)
        translate = partial(translate_phrase_based, model, lowercase=plan.lowercase)
        with line_progress(f"{name}: translated", len(lines)) as advance:
            _translate_shards(lines, translate, folder / f"{name}.txt", settings, advance)
    typer.echo(f"the translations are in {folder}; uncurse study report shows them beside the others")


def _translate_shards(
    lines: Sequence[str],
    translate: Callable[[Sequence[str]], Iterable[str]],
    out: Path,
    settings: str,
    advance: Callable[[int], None],
) -> None:
    """Translate what an earlier run has not."""
    from uncurse.text.corpus_formats import CorpusFormat
    from uncurse.translation.resumable_output import ResumableOutput
    from uncurse.translation.shards import shards_of
    from uncurse.translation.write_output import write_corpus

    with ResumableOutput(out, {"model": settings}, resume=True) as output:
        count = 0
        for shard in shards_of(lines):
            if not output.has(shard):
                output.add(shard, "".join(f"{line}\n" for line in translate(shard.lines)).encode())
            advance(len(shard.lines))
            count += 1
        output.finish(count, partial(write_corpus, CorpusFormat.TEXT))


@contextmanager
def _needs_extras(extra: str, plan: Path) -> Iterator[None]:
    """Say at once what is missing for a study and for the models of its plan."""
    from uncurse.models.load import extra_of
    from uncurse.study.plan import read_plans

    with ExitStack() as extras:
        for needed in (*(extra_of(read.model) for read in read_plans(plan).values()), extra):
            extras.enter_context(needs_extra(needed))
        yield


def _studies(plan: Path, data: Path, out: Path) -> Iterator[Study]:
    """The study of each plan of a file; one that has a name has a folder of its own in `out`."""
    from uncurse.study.plan import read_plans
    from uncurse.study.study import load_study

    for name, read in read_plans(plan).items():
        use_threads(read.threads)
        yield load_study(read, data, out / name)
