"""`uncurse fit-length`: a length predictor for a model that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from uncurse.cli.options import Language, Threads


def fit_length(
    model: Annotated[str, typer.Option(help="A name or a folder; the predictor goes into the folder.")],
    source: Annotated[list[Path], typer.Option(help="Source text; may be given several times.")],
    target: Annotated[list[Path], typer.Option(help="Its translation, line by line; as many times.")],
    test_source: Annotated[Path, typer.Option(help="Source text to report on.")],
    test_target: Annotated[Path, typer.Option(help="Its translation.")],
    pairs: Annotated[int, typer.Option(min=10, help="How many pairs of each text are enough.")] = 60_000,
    threads: Threads = 0,
    source_lang: Language = None,
    target_lang: Language = None,
) -> None:
    """Fit a length predictor to a model and report how far off it is."""
    import torch

    from uncurse.loading import folder_for, open_model
    from uncurse.models.predictors import place_of_predictor, save_predictor
    from uncurse.training.data import Pairs, read_parallel
    from uncurse.training.length import Lengths, joined, report
    from uncurse.training.length import fit_length as fit
    from uncurse.training.recipe import Corpus
    from uncurse.translator import LONGEST

    if threads:
        torch.set_num_threads(threads)
    folder = folder_for(model)
    if folder is None:
        raise ValueError(f"{model} has no folder here to put a predictor into: download it first")
    opened = open_model(folder, source_lang=source_lang, target_lang=target_lang)

    def lengths(one: Path, two: Path) -> Lengths:
        text = read_parallel([Corpus(str(one), (str(two),))], Path())
        return Pairs(text, opened.source, opened.target, LONGEST).lengths(opened.model, pairs)

    if len(source) != len(target):
        raise ValueError(f"{len(source)} texts and {len(target)} translations do not go together")
    train = joined([lengths(one, two) for one, two in zip(source, target, strict=True)])
    test = lengths(test_source, test_target)
    predictor = fit(train)
    save_predictor(place_of_predictor(folder, opened.fingerprint), predictor, opened.fingerprint)
    found = report(predictor, train, test)
    table = Table(
        box=box.SIMPLE_HEAD, title=f"{found.pairs} test pairs of {found.mean_length:.1f} tokens on average"
    )
    for column in ("", "mean error in tokens"):
        table.add_column(column, justify="right")
    for name, error in (
        ("predictor", found.predictor_error),
        ("fixed ratio", found.ratio_error),
        ("straight line", found.linear_error),
    ):
        table.add_row(name, f"{error:.2f}")
    console = Console()
    console.print(table)
    shares = ", ".join(f"q{level:g} {share:.1%}" for level, share in found.calibration.items())
    console.print(f"translations within each quantile, rounded up: {shares}", highlight=False)
