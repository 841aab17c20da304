"""`uncurse models`: list the models and download one."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Annotated

import typer

from uncurse.errors import UncurseError
from uncurse.models.download import download, downloaded_folder
from uncurse.models.download import remove as remove_model
from uncurse.models.pretrained_models import BUNDLED, BUNDLED_LICENCE, PRETRAINED, PretrainedModel, get_pretrained
from uncurse.signals import handle_signals

models_app = typer.Typer(help="List the models; `get` downloads one, `remove` deletes it.", rich_markup_mode=None)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the models: the bundled one and those that can be downloaded."""
    if context.invoked_subcommand is not None:
        return
    if BUNDLED.is_dir():
        lines = (
            f"{BUNDLED.name}: Chinese to English, {_megabytes(_size(BUNDLED))}",
            f"comes with uncurse, in {BUNDLED}",
            f"licence: {BUNDLED_LICENCE}",
        )
        typer.echo("\n  ".join(lines))
    for model in PRETRAINED:
        typer.echo(_description(model, downloaded_folder(model.name)))


@models_app.command()
def get(name: Annotated[str, typer.Argument(help="A name from `uncurse models`.")]) -> None:
    """Download a model into the cache, unless it is there, and say where it is."""
    if name == BUNDLED.name and BUNDLED.is_dir():
        typer.echo(f"{name} comes with uncurse, in {BUNDLED}")
        return
    model = get_pretrained(name)
    if downloaded_folder(name) is None:
        typer.echo(f"downloading {_megabytes(model.source.size)}; this may take minutes", err=True)
    with handle_signals(_exit, signal.SIGTERM, signal.SIGHUP):
        folder = download(name)
    typer.echo(f"{name} is in {folder}\n{model.attribution}\nlicence: {model.licence}")


@models_app.command()
def remove(name: Annotated[str, typer.Argument(help="A name from `uncurse models`.")]) -> None:
    """Delete a downloaded model from the cache."""
    if name == BUNDLED.name and BUNDLED.is_dir():
        raise UncurseError(f"{name} comes with uncurse and cannot be removed")
    model = get_pretrained(name)
    typer.echo(f"removed {remove_model(name)}, {_megabytes(model.size)}")


def _exit(number: int) -> None:
    """Exit by an exception, so that temporary files are removed and pip is ended."""
    raise SystemExit(128 + number)


def _description(model: PretrainedModel, folder: Path | None) -> str:
    return "\n  ".join(
        (
            f"{model.name}: {model.languages}, {_megabytes(model.size)}",
            f"not downloaded; uncurse models get {model.name}" if folder is None else f"downloaded, in {folder}",
            model.about,
            model.attribution,
            f"licence: {model.licence}",
            f"from: {model.source.project} {model.source.version} in the package index",
        )
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _megabytes(size: int) -> str:
    return f"{math.ceil(size / 1e6)} MB"
