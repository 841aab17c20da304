"""`uncurse fit-vocabulary`: a vocabulary selector for a model that exists."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from uncurse.cli.fit_length import FILE_WIDTH, own_folder
from uncurse.cli.options import Device, Dtype, Language, Threads, needs_extra_of_model, use_threads
from uncurse.errors import UncurseError

if TYPE_CHECKING:
    from uncurse.arrays import Ints
    from uncurse.models.loaded_model import LoadedModel
    from uncurse.training.fit_vocabulary import SelectionReport
    from uncurse.training.selection_sample import Translations


@needs_extra_of_model
def fit_vocabulary(
    model: Annotated[str, typer.Option(help="A name from `uncurse models`, or a folder.")],
    source: Annotated[list[Path], typer.Option(help="Source text; may be repeated.")],
    test_source: Annotated[
        list[Path] | None, typer.Option(help="Source text to report on; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write. Default: in the model's folder, if that is yours.")
    ] = None,
    sentences: Annotated[int, typer.Option(min=10, help="How many of each text to use at most.")] = 200,
    recall: Annotated[float, typer.Option(help="Select this share of the likely tokens.")] = 0.998,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    source_lang: Language = None,
    target_lang: Language = None,
    threads: Threads = 0,
) -> None:
    """Fit a vocabulary selector to a model, which translates the source text for it, and report what it misses."""
    from uncurse.cli.output_path import check_output
    from uncurse.models.load import load_model
    from uncurse.models.loaded_model import ModelOptions
    from uncurse.models.vocabulary_selector import HasVotes, save_selector, selector_path
    from uncurse.text.lines import read_lines
    from uncurse.training.fit_vocabulary import fit_vocabulary as fit
    from uncurse.training.fit_vocabulary import report
    from uncurse.training.selection_sample import selection_sample, translations

    if not 0.0 < recall <= 1.0:
        raise UncurseError(f"recall = {recall} is not allowed: it must be in (0, 1]")
    folder = own_folder(model, "--vocabulary-selection --vocabulary-selector") if out is None else None
    if out is not None:
        check_output(out, (*source, *(test_source or ())))
    use_threads(threads)
    options = ModelOptions(model, device=device, dtype=dtype, source_lang=source_lang, target_lang=target_lang)
    loaded = load_model(options)
    network = loaded.model
    if not isinstance(network, HasVotes):
        raise UncurseError(f"{model} cannot select tokens: vocabulary selection is for Marian models")
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bars:

        def progress(name: str) -> Callable[[int, int], None]:
            bar = bars.add_task(name)
            return lambda done, total: bars.update(bar, completed=done, total=total)

        def translated(path: Path) -> Translations:
            return translations(loaded, read_lines(path), sentences, progress(f"translating {path.name}"))

        train = [translated(path) for path in source]
        tests = {"/".join(path.parts[-2:]): [translated(path)] for path in test_source or ()}
        candidates = _candidates(loaded, train)
        samples = {
            name: selection_sample(network, given, candidates, progress(f"votes of {name}"))
            for name, given in {"fitted to": train, **tests}.items()
        }
    always = [loaded.model.eos, *_single_characters(loaded)]
    selector = fit(samples["fitted to"], candidates, always, _continuations(loaded), recall)
    path = out if folder is None else selector_path(folder, loaded.fingerprint)
    assert path is not None
    save_selector(path, selector, loaded.fingerprint)
    _print({name: report(selector, each) for name, each in samples.items()}, loaded.model.vocab_size)
    file = "" if out is None else f" --vocabulary-selector {out}"
    typer.echo(f"wrote {path}; use it with uncurse translate --model {model} --vocabulary-selection{file}")


def _candidates(loaded: LoadedModel, given: Sequence[Translations]) -> Ints:
    """The tokens whose characters all occur in translations: not those that are only for source text."""
    import numpy as np

    texts = [loaded.target.decode([token]) for token in range(loaded.model.vocab_size)]
    needed = np.unique(np.concatenate([target for each in given for target in each.targets]))
    known = {character for token in needed for character in texts[token]}
    return np.array([token for token, text in enumerate(texts) if known.issuperset(text)])


def _continuations(loaded: LoadedModel) -> Ints:
    """The tokens that do not begin a word."""
    import numpy as np

    vocab_size, decode = loaded.model.vocab_size, loaded.target.decode
    return np.array([token for token in range(vocab_size) if " " not in decode([token, token])])


def _single_characters(loaded: LoadedModel) -> Iterator[int]:
    """The tokens that any name or number can be spelt with."""
    for token in range(loaded.model.vocab_size):
        text = loaded.target.decode([token])
        if len(text) == 1 and text.isascii():
            yield token


def _print(reports: Mapping[str, SelectionReport], vocab_size: int) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="what is selected of the model's own translations")
    for column in ("", "recall", "complete translations", f"tokens per sentence, of {vocab_size:,}"):
        table.add_column(column, justify="right" if column else "left")
    for name, found in reports.items():
        table.add_row(name, f"{found.recall:.2%}", f"{found.complete:.1%}", f"{found.tokens:,.0f}")
    Console(width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
