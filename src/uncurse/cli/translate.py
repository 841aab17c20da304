"""`uncurse translate`: text in, translations out."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer

from uncurse.cli.options import (
    BatchTokens,
    BeamSize,
    Engine,
    LengthRatio,
    MaxLength,
    Threads,
    Workers,
    in_utf8,
    use_threads,
    with_model_options,
)
from uncurse.cli.progress import line_progress
from uncurse.errors import UncurseError
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE

if TYPE_CHECKING:
    from uncurse.executors.local import Executor
    from uncurse.translation.options import TranslationOptions
    from uncurse.translation.records import Style


@with_model_options
def translate(
    model_options: ModelOptions,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Text, .jsonl or .parquet with a field `text`; standard input if none."),
    ] = None,
    beam_size: BeamSize = DEFAULT_BEAM_SIZE,
    score: Annotated[
        str | None,
        typer.Option(help="See `uncurse methods`. Default: f1-norm if a length is expected, else length-norm."),
    ] = None,
    stop: Annotated[str, typer.Option(help="When the search stops; see `uncurse methods`.")] = "optimal",
    n_best: Annotated[
        int,
        typer.Option(min=1, help="How many translations of each line; above 1 as `line ||| text ||| score`."),
    ] = 1,
    slots: Annotated[
        str, typer.Option(help="occupy or refill: what a hypothesis that ends costs the beam.")
    ] = "occupy",
    max_length: MaxLength = None,
    min_length: Annotated[int, typer.Option(min=0, help="The fewest tokens, </s> included.")] = 0,
    length_ratio: LengthRatio = None,
    target_prefix: Annotated[
        str, typer.Option(callback=in_utf8, help="Begin every translation with these words.")
    ] = "",
    batch_tokens: BatchTokens = 1500,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut lines that are too long for the model; otherwise an error.")
    ] = False,
    threads: Threads = 0,
    json: Annotated[bool, typer.Option("--json", help="A JSON record for each line.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to a file, as its name ends (.jsonl, .parquet); it appears when it is whole."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a file that was not finished.")] = False,
    engine: Engine = None,
    workers: Workers = 0,
) -> None:
    """Translate text, line by line; each translation has a certificate of how good it is."""
    from uncurse.lengths.limits import parse_max_length
    from uncurse.scoring.decoding import Decoding
    from uncurse.text.corpus_formats import CorpusFormat
    from uncurse.translation.options import TranslationOptions
    from uncurse.translation.records import Style

    for name, given in (("--resume", resume), ("--engine", engine)):
        if given and out is None:
            raise UncurseError(f"{name} needs --out: there is no file to write to")
    if out is not None and out.is_dir():
        raise UncurseError(f"--out {out} is a folder: name a file")
    if workers and not engine:
        raise UncurseError("--workers needs --engine ray")
    options = TranslationOptions(
        decoding=Decoding(beam_size, score, stop, n_best, slots),
        max_length=None if max_length is None else parse_max_length(max_length),
        min_length=min_length,
        length_ratio=length_ratio,
        target_prefix=target_prefix,
        batch_tokens=batch_tokens,
        truncate=truncate,
    )
    as_records = json or (out is not None and CorpusFormat.of(out) is not CorpusFormat.TEXT)
    style = Style.JSON if as_records else Style.TEXT if n_best == 1 else Style.N_BEST
    task = _Task(tuple(files or ()), model_options, options, style, threads)
    if out is None:
        _to_standard_output(task)
    else:
        _to_file(task, out, resume, _executor(task, engine, workers))


@final
@dataclass(frozen=True)
class _Task:
    """What is translated, by which model, how, and how it is written."""

    files: tuple[Path, ...]
    model: ModelOptions
    options: TranslationOptions
    style: Style
    threads: int

    @property
    def total(self) -> int | None:
        """How many lines there are, if they can be counted."""
        from uncurse.text.corpus_formats import read_sentences

        countable = self.files and all(path.is_file() for path in self.files)
        return sum(1 for _ in read_sentences(self.files)) if countable else None


def _executor(task: _Task, engine: str | None, workers: int) -> Executor | None:
    """Other processes than this one, if they are asked for."""
    from uncurse.executors.ray_cluster import executor_of

    return executor_of(engine, workers, task.threads, task.model.device) if engine else None


def _to_standard_output(task: _Task) -> None:
    from uncurse.text.corpus_formats import read_sentences
    from uncurse.translation.shards import MAX_LINES, shards_of
    from uncurse.translation.translator import load_translator

    use_threads(task.threads)
    total = task.total
    translator = load_translator(task.model)
    at_once = 1 if not task.files and sys.stdin.isatty() else MAX_LINES
    with line_progress("translated", total, shown=not sys.stdout.isatty()) as advance:
        number = 0
        for shard in shards_of(read_sentences(task.files), at_once):
            for translation in translator.translate_shard(shard, task.options):
                typer.echo(task.style.line(translation, number))
                number += 1
                advance(1)


def _to_file(task: _Task, out: Path, resume: bool, cluster: Executor | None) -> None:
    from uncurse.executors.local import LocalExecutor
    from uncurse.executors.ray_cluster import absolute_model
    from uncurse.text.corpus_formats import CorpusFormat, read_sentences
    from uncurse.translation.resumable_output import ResumableOutput
    from uncurse.translation.shards import shards_of
    from uncurse.translation.translate_corpus import ShardJob, translate_corpus
    from uncurse.translation.translator import load_translator

    threads = use_threads(task.threads or int(cluster is not None))
    total = task.total
    translator = load_translator(task.model)  # on a cluster each worker has its own; this one knows its signature
    signature = translator.signature
    settings = f"{signature} {task.options} {task.style.name} {task.model.device} threads={threads}"
    output = ResumableOutput(out, settings, resume)
    jobs = (
        ShardJob(shard, task.options, task.style, signature) for shard in shards_of(read_sentences(task.files))
    )
    there = replace(task.model, model=task.model.model and absolute_model(task.model.model))
    setup = (lambda: translator) if cluster is None else partial(load_translator, there)
    with line_progress("translated", total) as advance:
        failures = translate_corpus(
            cluster or LocalExecutor(),
            setup,
            jobs,
            output,
            CorpusFormat.of(out),
            lambda shard: advance(len(shard.lines)),
        )
    for shard, reason in failures:
        last = shard.first + len(shard.lines) - 1
        typer.echo(f"uncurse: lines {shard.first} to {last} failed: {reason}", err=True)
    if failures:
        typer.echo(f"uncurse: what is done is in {output.folder}; --resume does what is missing", err=True)
        raise typer.Exit(1)
