"""`uncurse translate`: text in, translations out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    with_model_options,
)
from uncurse.errors import UncurseError, needs_extra
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE


@with_model_options
def translate(
    model_options: ModelOptions,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Text, or .jsonl or .parquet with a field `text`; without files, or for -, standard input."
        ),
    ] = None,
    beam_size: BeamSize = DEFAULT_BEAM_SIZE,
    score: Annotated[
        str | None,
        typer.Option(
            help="Score; see `uncurse methods`. Default: f1-norm if a length is expected, else length-norm."
        ),
    ] = None,
    stop: Annotated[str, typer.Option(help="Stopping rule; see `uncurse methods`.")] = "optimal",
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Translations per line; if more than 1, printed as `line ||| text ||| score`."),
    ] = 1,
    slots: Annotated[
        str, typer.Option(help="occupy: a finished hypothesis takes a place in the beam; refill: it takes none.")
    ] = "occupy",
    max_length: MaxLength = None,
    min_length: Annotated[int, typer.Option(min=0, help="Minimum number of tokens, </s> included.")] = 0,
    length_ratio: LengthRatio = None,
    target_prefix: Annotated[
        str, typer.Option(callback=in_utf8, help="Begin every translation with these words.")
    ] = "",
    only: Annotated[Path | None, typer.Option(help="A file with the translations that are allowed.")] = None,
    ban: Annotated[
        Path | None, typer.Option(help="A file with texts that no translation contains as whole words.")
    ] = None,
    no_repeat_ngram: Annotated[
        int, typer.Option(min=0, help="No translation has so many tokens in a row twice; 0: any may.")
    ] = 0,
    distinct: Annotated[bool, typer.Option("--distinct", help="No text twice in an n-best list.")] = False,
    batch_tokens: BatchTokens = 1500,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate", help="Truncate lines that are too long for the model instead of stopping with an error."
        ),
    ] = False,
    threads: Threads = 0,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON record for each line.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file (text, .jsonl or .parquet); it appears when it is complete."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished --out file.")] = False,
    engine: Engine = None,
    workers: Workers = 0,
) -> None:
    """Translate text line by line; each translation has a certificate that says what is proved about it."""
    from uncurse.cli.output_path import check_output
    from uncurse.cli.translate_task import OutputFile, TranslateTask
    from uncurse.lengths.limits import parse_max_length
    from uncurse.scoring.decoding import Decoding
    from uncurse.text.corpus_formats import Corpus, CorpusFormat
    from uncurse.translation.options import TranslationOptions
    from uncurse.translation.output_constraints import OutputConstraints
    from uncurse.translation.records import Style

    for name, given in (("--resume", resume), ("--engine", engine)):
        if given and out is None:
            raise UncurseError(f"{name} needs --out: there is no file to write to")
    if workers and not engine:
        raise UncurseError("--workers needs --engine ray")
    options = TranslationOptions(
        decoding=Decoding(beam_size=beam_size, score=score, stop=stop, n_best=n_best, slots=slots),
        max_length=None if max_length is None else parse_max_length(max_length),
        min_length=min_length,
        length_ratio=length_ratio,
        target_prefix=target_prefix,
        constraints=OutputConstraints(
            only=None if only is None else _texts("--only", only),
            ban=() if ban is None else _texts("--ban", ban),
            no_repeat_ngram=no_repeat_ngram,
        ),
        distinct=distinct,
        batch_tokens=batch_tokens,
        truncate=truncate,
    )
    as_records = json or (out is not None and CorpusFormat.of(out) is not CorpusFormat.TEXT)
    style = Style.JSON if as_records else Style.TEXT if n_best == 1 else Style.N_BEST
    task = TranslateTask(
        corpus=Corpus(files or ()), model=model_options, options=options, style=style, threads=threads
    )
    predictor, selector = model_options.length_predictor, model_options.vocabulary_selector
    check_output(out, (*task.corpus.files, only, ban, predictor, selector, *_files_of(model_options.model)))
    parquet = any(CorpusFormat.of(path) is CorpusFormat.PARQUET for path in (*task.corpus.files, out or Path()))
    with needs_extra("ray" if engine or parquet else "translate"):
        if out is None:
            task.to_standard_output()
        else:
            task.to_file(OutputFile(out, resume, engine, workers))


def _files_of(model: str | None) -> list[Path]:
    """What is in the folder of a model, if it is in one."""
    folder = Path(model or "")
    return list(folder.iterdir()) if model and folder.is_dir() else []


def _texts(flag: str, path: Path) -> tuple[str, ...]:
    """The lines of a file, but for those that are empty."""
    from uncurse.text.lines import read_lines

    if not path.is_file():
        raise UncurseError(f"{flag}: there is no file {path}")
    texts = tuple(stripped for line in read_lines(path) if (stripped := line.strip()))
    if not texts:
        raise UncurseError(f"{flag} {path}: there is no text in it")
    return texts
