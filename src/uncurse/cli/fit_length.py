"""`uncurse fit-length`: a length predictor for a model that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table


def fit_length(
    model: Annotated[Path, typer.Option(help="The folder of the model; the predictor goes into it.")],
    source: Annotated[Path, typer.Option(help="Source text.")],
    target: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    test_source: Annotated[Path, typer.Option(help="Source text to report on.")],
    test_target: Annotated[Path, typer.Option(help="Its translation.")],
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves it to PyTorch.")] = 0,
) -> None:
    """Fit a length predictor to a model and report how far off it is."""
    import torch

    from uncurse.models.directory import LENGTH, load_folder, save_predictor
    from uncurse.training.data import Pairs, read_parallel
    from uncurse.training.length import fit_length as fit
    from uncurse.training.length import report
    from uncurse.training.recipe import Corpus
    from uncurse.translator import LONGEST

    if threads:
        torch.set_num_threads(threads)
    folder = load_folder(model)
    train, test = (
        Pairs(
            read_parallel([Corpus(str(one), (str(two),))], Path()), folder.source, folder.target, LONGEST
        ).lengths(folder.model)
        for one, two in ((source, target), (test_source, test_target))
    )
    predictor = fit(train)
    save_predictor(model / LENGTH, predictor, folder.fingerprint)
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
