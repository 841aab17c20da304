"""`uncurse translate`: text in, translations out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from uncurse.cli.counter import Counter

if TYPE_CHECKING:
    from uncurse.translator import Translation

LONGEST_LINE: Final = 1 << 20  # bytes; a line without an end would fill the memory


def translate(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text, a sentence on each line; standard input if none.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A name from `uncurse models`, or a folder.")] = None,
    beam: Annotated[int, typer.Option(help="The width of the beam.")] = 10,
    score: Annotated[str, typer.Option(help="How hypotheses are scored; see `uncurse methods`.")] = "bp-norm",
    stop: Annotated[str, typer.Option(help="When the search stops; see `uncurse methods`.")] = "optimal",
    n_best: Annotated[
        int, typer.Option(help="How many translations of each line; above 1 as `line ||| text ||| score`.")
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
    target_prefix: Annotated[str, typer.Option(help="Begin every translation with these words.")] = "",
    batch_tokens: Annotated[int, typer.Option(min=1, help="Source pieces searched for together.")] = 1500,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="float32, int8, bfloat16 or float16: what a Transformer computes in.")
    ] = "float32",
    source_lang: Annotated[str | None, typer.Option(help="For models of many languages.")] = None,
    target_lang: Annotated[str | None, typer.Option(help="For models of many languages.")] = None,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves it to PyTorch.")] = 0,
    long_lines: Annotated[
        str, typer.Option(help="error or truncate: what to do with a line that is too long.")
    ] = "error",
    json: Annotated[bool, typer.Option("--json", help="A JSON record for each line.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to a file; it appears when it is whole.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a file that was not finished.")] = False,
) -> None:
    """Translate text, line by line; each translation is proved as far as the stopping rule goes."""
    from uncurse.decoding import Decoding
    from uncurse.length import parse_limit
    from uncurse.records import OutputFile, json_line, n_best_lines, text_line
    from uncurse.translator import WINDOW, Task

    if long_lines not in ("error", "truncate"):
        raise ValueError(f"--long-lines {long_lines!r} is not allowed: write error or truncate")
    if resume and out is None:
        raise ValueError("--resume needs --out: there is no file to go on with")
    task = Task(
        Decoding.of(beam, score, stop, n_best, slots),
        None if max_length is None else parse_limit(max_length),
        ratio,
        min_length,
        target_prefix,
        batch_tokens,
        long_lines == "truncate",
    )
    import torch

    from uncurse.loading import load

    if threads:
        torch.set_num_threads(threads)

    def written(translation: Translation, number: int) -> str:
        if json:
            return json_line(translation)
        return text_line(translation) if n_best == 1 else n_best_lines(translation, number)

    lines = _lines(files)
    total = sum(1 for _ in _lines(files)) if files and all(path.is_file() for path in files) else None
    translator = load(model, device, dtype, source_lang, target_lang)
    if out is None:
        at_once = 1 if not files and sys.stdin.isatty() else WINDOW
        with Counter("translated", 0, total, shown=not sys.stdout.isatty()) as counter:
            for number, translation in enumerate(translator.stream(lines, task, at_once)):
                typer.echo(written(translation, number))
                counter.advance()
        return
    means = f"{translator.signature} {task} json={json} device={device} threads={torch.get_num_threads()}"
    file = OutputFile(out, means, resume)
    file.skip_done(lines)
    with Counter("translated", file.lines_done, total) as counter:
        while window := list(islice(lines, WINDOW)):
            texts = []
            for number, translation in enumerate(translator.stream(window, task), start=file.lines_done):
                texts.append(written(translation, number))
                counter.advance()
            file.add(window, texts)
    file.finish()


def _lines(files: list[Path] | None) -> Iterator[str]:
    if not files:
        yield from _decoded(sys.stdin.buffer, "standard input")
    for path in files or ():
        with path.open("rb") as file:
            yield from _decoded(file, str(path))


def _decoded(file: BinaryIO, name: str) -> Iterator[str]:
    for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
        if len(raw) > LONGEST_LINE:
            raise ValueError(f"{name}, line {number} has more than {LONGEST_LINE} bytes")
        try:
            yield raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise ValueError(f"{name}, line {number}: not valid UTF-8") from None
