"""`uncurse translate`: text in, translations out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncurse.cli.counter import Counter
from uncurse.cli.options import (
    BatchTokens,
    Device,
    Dtype,
    Engine,
    Language,
    Threads,
    WithoutScript,
    Workers,
    in_utf8,
)

if TYPE_CHECKING:
    from uncurse.corpus import Opening
    from uncurse.records import Style
    from uncurse.translator import Task


def translate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Text, .jsonl or .parquet with a field `text`; standard input if none."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A name from `uncurse models`, or a folder.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="The width of the beam.")] = 10,
    score: Annotated[str, typer.Option(help="How hypotheses are scored; see `uncurse methods`.")] = "bp-norm",
    stop: Annotated[str, typer.Option(help="When the search stops; see `uncurse methods`.")] = "optimal",
    n_best: Annotated[
        int,
        typer.Option(min=1, help="How many translations of each line; above 1 as `line ||| text ||| score`."),
    ] = 1,
    slots: Annotated[
        str, typer.Option(help="occupy or refill: what an ended hypothesis costs the beam.")
    ] = "occupy",
    max_length: Annotated[
        str | None,
        typer.Option(help="The most tokens: 100, 2x+10, q0.95 or predicted. Default: q0.8, then 2x+10."),
    ] = None,
    min_length: Annotated[int, typer.Option(min=0, help="The fewest tokens, </s> included.")] = 0,
    ratio: Annotated[
        float | None, typer.Option(help="Expect so many target tokens per source piece instead of predicting.")
    ] = None,
    target_prefix: Annotated[
        str, typer.Option(callback=in_utf8, help="Begin every translation with the pieces of these words.")
    ] = "",
    batch_tokens: BatchTokens = 1500,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    source_lang: Language = None,
    target_lang: Language = None,
    without_script: WithoutScript = None,
    threads: Threads = 0,
    long_lines: Annotated[
        str, typer.Option(help="error or truncate: what to do with a line that is too long.")
    ] = "error",
    json: Annotated[bool, typer.Option("--json", help="A JSON record for each line.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to a file, as its name ends (.jsonl, .parquet); it appears when it is whole."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a file that was not finished.")] = False,
    engine: Engine = None,
    workers: Workers = 0,
) -> None:
    """Translate text, line by line; each translation is proved as far as the stopping rule goes."""
    from uncurse.corpus import Opening
    from uncurse.decoding import Decoding
    from uncurse.length import parse_limit
    from uncurse.records import Style
    from uncurse.text.corpora import Form
    from uncurse.translator import Task

    if long_lines not in ("error", "truncate"):
        raise ValueError(f"--long-lines {long_lines!r} is not allowed: write error or truncate")
    for name, given in (("--resume", resume), ("--engine", engine)):
        if given and out is None:
            raise ValueError(f"{name} needs --out: there is no file to write to")
    if out is not None and out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file")
    if workers and not engine:
        raise ValueError("--workers needs --engine ray")
    task = Task(
        Decoding.of(beam, score, stop, n_best, slots),
        None if max_length is None else parse_limit(max_length),
        ratio,
        min_length,
        target_prefix,
        batch_tokens,
        long_lines == "truncate",
    )
    as_records = json or (out is not None and Form.of(out) is not Form.TEXT)
    style = Style.JSON if as_records else Style.TEXT if n_best == 1 else Style.N_BEST
    opening = Opening(model, device, dtype, source_lang, target_lang, without_script)
    if out is None:
        _to_standard_output(files or [], opening, task, style, threads)
    else:
        _to_file(files or [], opening, task, style, threads, out, resume, engine, workers)


def _to_standard_output(files: list[Path], opening: Opening, task: Task, style: Style, threads: int) -> None:
    from uncurse.shards import LINES, shards_of
    from uncurse.text.corpora import sentences_of

    _use_threads(threads)
    lines, total = sentences_of(files), _total(files)
    translator = opening()
    at_once = 1 if not files and sys.stdin.isatty() else LINES
    with Counter("translated", 0, total, shown=not sys.stdout.isatty()) as counter:
        number = 0
        for shard in shards_of(lines, at_once):
            for translation in translator.shard(shard, task):
                typer.echo(style.line(translation, number))
                number += 1
                counter.advance()


def _to_file(
    files: list[Path],
    opening: Opening,
    task: Task,
    style: Style,
    threads: int,
    out: Path,
    resume: bool,
    engine: str | None,
    workers: int,
) -> None:
    from uncurse.corpus import Work, translate_corpus
    from uncurse.engines.cluster import engine_of, found_anywhere
    from uncurse.engines.local import Local
    from uncurse.parts import Parts
    from uncurse.shards import Shard, shards_of
    from uncurse.text.corpora import Form, sentences_of

    running = engine_of(engine, workers, threads, opening.device) if engine else Local()
    used = _use_threads(threads or int(bool(engine)))
    lines, total = sentences_of(files), _total(files)
    translator = opening()  # of a cluster's workers each has its own; here it is asked for its signature
    signature = translator.signature
    parts = Parts(out, f"{signature} {task} {style.name} {opening.device} threads={used}", resume)
    works = (Work(shard, task, style, signature) for shard in shards_of(lines))
    with Counter("translated", 0, total) as counter:

        def report(shard: Shard) -> None:
            counter.advance_shard(len(shard.lines))

        workers_opening = replace(opening, model=opening.model and found_anywhere(opening.model))
        own = workers_opening if engine else lambda: translator
        failures = translate_corpus(running, own, works, parts, Form.of(out), report)
    for shard, reason in failures:
        last = shard.first + len(shard.lines) - 1
        typer.echo(f"uncurse: lines {shard.first} to {last} failed: {reason}", err=True)
    if failures:
        typer.echo(f"uncurse: what is done is in {parts.folder}; --resume does what is missing", err=True)
        raise typer.Exit(1)


def _use_threads(threads: int) -> int:
    import torch

    if threads:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def _total(files: list[Path]) -> int | None:
    """How many lines there are, if they can be counted."""
    from uncurse.text.corpora import sentences_of

    return sum(1 for _ in sentences_of(files)) if files and all(path.is_file() for path in files) else None
