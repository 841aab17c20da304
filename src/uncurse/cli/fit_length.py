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

from uncurse.cli.options import Device, Language, Prompt, Threads, needs_extra_of_model, use_threads
from uncurse.errors import UncurseError

if TYPE_CHECKING:
    from uncurse.models.loaded_model import LoadedModel
    from uncurse.training.fit_length import LengthError, LengthReport, LengthSample

OWN_BEAM_SIZE: Final = 5  # for translations by the model, of which only the length counts
OWN_LINES: Final = 400  # of each text, where they are an addition: enough, and they take longer than all else
FILE_WIDTH: Final = 200  # of lines that do not go to a terminal


@needs_extra_of_model
def fit_length(
    model: Annotated[str, typer.Option(help="A name from `uncurse models`, or a folder.")],
    source: Annotated[list[Path], typer.Option(help="Source text; may be repeated. Each text counts the same.")],
    target: Annotated[
        list[Path] | None, typer.Option(help="Its translation, line by line; repeated as often.")
    ] = None,
    from_model: Annotated[
        bool,
        typer.Option(
            "--from-model",
            help="Take the model's own translations, by length norm; with --target, for half of what is expected.",
        ),
    ] = False,
    test_source: Annotated[
        list[Path] | None,
        typer.Option(help="Source text to report on; may be repeated. Default: a tenth of each source."),
    ] = None,
    test_target: Annotated[
        list[Path] | None, typer.Option(help="Its translation; repeated as often. Default: as for the source.")
    ] = None,
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
    from uncurse.cli.output_path import check_output
    from uncurse.lengths.predictor_file import predictor_path, save_predictor
    from uncurse.models.load import load_model
    from uncurse.models.loaded_model import ModelOptions
    from uncurse.training.fit_length import fit_length as fit
    from uncurse.training.fit_length import report

    texts = _texts(source, target or [], from_model, "--source", "--target")
    tests = _texts(test_source or [], test_target or [], from_model, "--test-source", "--test-target")
    folder = own_folder(model, "--length-predictor") if out is None else None
    if out is not None:
        check_output(out, (each for text in (*texts, *tests) for each in text))
    use_threads(threads)
    options = ModelOptions(model, device=device, source_lang=source_lang, target_lang=target_lang, prompt=prompt)
    loaded = load_model(options)
    train = [_sample(loaded, text, pairs) for text in texts]
    if tests:
        held_out = [_sample(loaded, text, pairs) for text in tests]
    else:
        train, held_out = map(list, zip(*(sample.split() for sample in train), strict=True))
    own: list[LengthSample] = []
    if from_model and target:
        own = [_sample(loaded, (each, None), min(pairs, OWN_LINES)) for each in source]
    predictor = fit(train, own)
    path = out if folder is None else predictor_path(folder, loaded.fingerprint)
    assert path is not None
    save_predictor(path, predictor, loaded.fingerprint)
    _print([each for each, _ in tests or texts], [report(predictor, train, test) for test in held_out])
    how = "" if out is None else f"; use it with uncurse translate --model {model} --length-predictor {out}"
    typer.echo(f"wrote {path}{how}")


def _texts(
    sources: Sequence[Path], targets: Sequence[Path], from_model: bool, source_flag: str, target_flag: str
) -> list[tuple[Path, Path | None]]:
    """Each source with its translation; with None where the model is to translate it."""
    if from_model and not targets:
        return [(source, None) for source in sources]
    if len(sources) != len(targets):
        missing = ", or give --from-model" if not targets else ""
        raise UncurseError(
            f"{len(sources)} texts with {source_flag} need as many with {target_flag}, not {len(targets)}{missing}"
        )
    return list(zip(sources, targets, strict=True))


def _sample(loaded: LoadedModel, text: tuple[Path, Path | None], pairs: int) -> LengthSample:
    """Encoder states and lengths of a text."""
    from uncurse.text.parallel import ParallelFiles, read_parallel
    from uncurse.training.data import SentencePairs
    from uncurse.translation.translator import MAX_SOURCE_LENGTH

    source, target = text
    longest = min(MAX_SOURCE_LENGTH, loaded.model.max_source_length or MAX_SOURCE_LENGTH)
    if target is None:
        return _own_sample(loaded, source, pairs, longest)
    lines = read_parallel([ParallelFiles(str(source), (str(target),))], Path())
    return SentencePairs(lines, loaded.source, loaded.target, longest).length_sample(loaded.model, pairs)


def _own_sample(loaded: LoadedModel, source: Path, pairs: int, longest: int) -> LengthSample:
    """Encoder states of lines, and the lengths of the model's own translations, found by length norm."""
    import numpy as np

    from uncurse.cli.progress import line_progress
    from uncurse.scoring.decoding import Decoding
    from uncurse.text.lines import read_lines
    from uncurse.training.data import length_sample
    from uncurse.translation.options import TranslationOptions
    from uncurse.translation.translator import Translator

    lines = read_lines(source)
    sized = zip(lines, loaded.source.encode(lines), strict=True)
    known = [(line, tokens) for line, tokens in sized if 0 < len(tokens) <= longest]
    chosen = [known[row] for row in np.random.default_rng(0).permutation(len(known))[:pairs]]
    translator = Translator(loaded.model, loaded.source, loaded.target, None)
    options = TranslationOptions(decoding=Decoding(OWN_BEAM_SIZE, "length-norm", "beam-full"))
    found = []
    with line_progress(f"translating {source.name}", len(chosen)) as advance:
        outputs = translator.stream((line for line, _ in chosen), options)
        for (_, tokens), output in zip(chosen, outputs, strict=True):
            advance(1)
            if output.result is not None and output.result.finished:
                found.append((tokens, output.result.hypotheses[0].length))
    if not found:
        raise UncurseError(f"{source} has no line that the model can translate")
    return length_sample(loaded.model, [tokens for tokens, _ in found], np.array([length for _, length in found]))


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
    return f"{error.absolute:.2f} ({error.bias:+.2f}, {100 * error.relative_bias:+.1f} %)"
