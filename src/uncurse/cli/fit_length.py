"""`uncurse fit-length`: a length predictor for a model that exists."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from uncurse.cli.options import Device, Language, Prompt, Threads, use_threads
from uncurse.errors import UncurseError

if TYPE_CHECKING:
    from uncurse.training.fit_length import LengthError, LengthReport

FILE_WIDTH: Final = 200  # of lines that do not go to a terminal


def fit_length(
    model: Annotated[str, typer.Option(help="A name from `uncurse models`, or a folder.")],
    source: Annotated[list[Path], typer.Option(help="Source text; may be repeated.")],
    target: Annotated[list[Path], typer.Option(help="Its translation, line by line; repeated as often.")],
    test_source: Annotated[list[Path], typer.Option(help="Source text to report on; may be repeated.")],
    test_target: Annotated[list[Path], typer.Option(help="Its translation; repeated as often.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write. Default: in the model's folder, if that is yours.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=10, help="How many pairs of each text to use at most.")] = 60_000,
    device: Device = "cpu",
    source_lang: Language = None,
    target_lang: Language = None,
    prompt: Prompt = None,
    threads: Threads = 0,
) -> None:
    """Fit a length predictor to a model, and report its error and bias on every test text."""
    from uncurse.lengths.predictor_file import predictor_path, save_predictor
    from uncurse.models.load import load_model
    from uncurse.models.loaded_model import ModelOptions
    from uncurse.text.parallel import ParallelFiles, read_parallel
    from uncurse.training.data import SentencePairs
    from uncurse.training.fit_length import LengthSample, concatenate, report
    from uncurse.training.fit_length import fit_length as fit
    from uncurse.translation.translator import MAX_SOURCE_LENGTH

    for sources, targets in ((source, target), (test_source, test_target)):
        if len(sources) != len(targets):
            raise UncurseError(f"{len(sources)} source texts need as many translations, not {len(targets)}")
    folder = own_folder(model, "--length-predictor") if out is None else None
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UncurseError(f"{out} cannot be written: name a file in a folder that exists")
    use_threads(threads)
    options = ModelOptions(model, device=device, source_lang=source_lang, target_lang=target_lang, prompt=prompt)
    loaded = load_model(options)
    longest = min(MAX_SOURCE_LENGTH, loaded.model.max_source_length or MAX_SOURCE_LENGTH)

    def sample(one: Path, two: Path) -> LengthSample:
        text = read_parallel([ParallelFiles(str(one), (str(two),))], Path())
        return SentencePairs(text, loaded.source, loaded.target, longest).length_sample(loaded.model, pairs)

    train = concatenate([sample(*each) for each in zip(source, target, strict=True)])
    tests = [sample(*each) for each in zip(test_source, test_target, strict=True)]
    predictor = fit(train)
    path = out if folder is None else predictor_path(folder, loaded.fingerprint)
    assert path is not None
    save_predictor(path, predictor, loaded.fingerprint)
    _print(test_source, [report(predictor, train, test) for test in tests])
    how = "" if out is None else f"; use it with uncurse translate --model {model} --length-predictor {out}"
    typer.echo(f"wrote {path}{how}")


def own_folder(model: str, option: str) -> Path:
    """The folder of a model that belongs to the user; bundled and downloaded models stay as they are."""
    from uncurse.models.download import MANIFEST
    from uncurse.models.load import model_folder
    from uncurse.models.pretrained_models import BUNDLED

    folder = model_folder(model)
    if folder is None or folder.resolve() == BUNDLED.resolve() or (folder / MANIFEST).exists():
        raise UncurseError(
            f"{model} is not in a folder of yours: name the file to write with --out, and use it with"
            f" uncurse translate --model {model} {option} FILE"
        )
    return folder


def _print(texts: Sequence[Path], reports: Sequence[LengthReport]) -> None:
    errors = Table(box=box.SIMPLE_HEAD, title="mean absolute error (and bias) of expected lengths, in tokens")
    shares = Table(box=box.SIMPLE_HEAD, title="translations that do not exceed each quantile, rounded up")
    for column in ("", "pairs", "length", "predictor", "fixed ratio", "straight line"):
        errors.add_column(column, justify="right" if column else "left")
    for column in ("", *(f"q{level:g}" for level in reports[0].calibration)):
        shares.add_column(column, justify="right" if column else "left")
    for path, found in zip(texts, reports, strict=True):
        name = "/".join(path.parts[-2:])
        cells = (_cell(each) for each in (found.predictor, found.fixed_ratio, found.straight_line))
        errors.add_row(name, f"{found.pairs:,}", f"{found.mean_length:.1f}", *cells)
        shares.add_row(name, *(f"{share:.1%}" for share in found.calibration.values()))
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    console.print(errors)
    console.print(shares)


def _cell(error: LengthError) -> str:
    return f"{error.absolute:.2f} ({error.bias:+.2f})"
