"""`uncurse models`: which models there are, and how to get one."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Annotated

import typer

from uncurse.catalogue import BOXED, CATALOGUE, Entry, folder_of, known
from uncurse.catalogue import get as fetched
from uncurse.signals import answered

models_app = typer.Typer(help="The models there are; `get` fetches one.", rich_markup_mode=None)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the models: the one in the box and those that can be fetched."""
    if context.invoked_subcommand is not None:
        return
    if BOXED.is_dir():
        size = sum(path.stat().st_size for path in BOXED.iterdir())
        typer.echo(f"{BOXED.name}: Chinese to English, {_megabytes(size)}\n  comes with uncurse, in {BOXED}")
    for entry in CATALOGUE:
        typer.echo(_description(entry, folder_of(entry.name)))


@models_app.command()
def get(name: Annotated[str, typer.Argument(help="A name from `uncurse models`.")]) -> None:
    """Fetch a model into the user's cache, once, and say where it is."""
    if name == BOXED.name and BOXED.is_dir():
        typer.echo(f"{name} comes with uncurse, in {BOXED}")
        return
    entry = known(name)
    if folder_of(name) is None:
        typer.echo(f"fetching some {_megabytes(entry.source.size)}; this may take minutes", err=True)
    with answered(_leave, signal.SIGTERM, signal.SIGHUP):
        folder = fetched(name)
    typer.echo(f"{name} is in {folder}\n{entry.attribution}\nlicence: {entry.licence}")


def _leave(number: int) -> None:
    """End in order: what was begun is cleared away, and what was started is ended, too."""
    raise SystemExit(128 + number)


def _description(entry: Entry, folder: Path | None) -> str:
    return "\n  ".join(
        (
            f"{entry.name}: {entry.languages}, {_megabytes(entry.size)}",
            f"not fetched; uncurse models get {entry.name}" if folder is None else f"fetched, in {folder}",
            entry.about,
            entry.attribution,
            f"licence: {entry.licence}",
            f"from: {entry.source.project} {entry.source.version} in the package registry",
        )
    )


def _megabytes(size: int) -> str:
    return f"{math.ceil(size / 1e6)} MB"
