"""The command `uncurse`: one file for each subcommand; errors become one line and exit status 2 here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final, NoReturn

import typer

from uncurse.cli.explain import explain
from uncurse.cli.fit_length import fit_length
from uncurse.cli.methods import methods
from uncurse.cli.models import models_app
from uncurse.cli.score import score
from uncurse.cli.serve import serve
from uncurse.cli.study import study_app
from uncurse.cli.train import train
from uncurse.cli.translate import translate
from uncurse.version import VERSION

# What each extra brings beside `translate`, by the module that is missed.
EXTRAS: Final = {
    "fastapi": "serve",
    "lightning": "train",
    "matplotlib": "study",
    "prometheus_client": "serve",
    "pyarrow": "ray",
    "ray": "ray",
    "sacrebleu": "study",
    "tensorboard": "train",
    "thot": "baseline",
    "transformers": "huggingface",
    "uvicorn": "serve",
}

LONGEST_MESSAGE: Final = 1000  # characters

app = typer.Typer(
    name="uncurse",
    help="Beam search that gets better, not worse, when the beam gets wider.",
    add_completion=False,
    rich_markup_mode=None,
)
app.command()(methods)
app.command()(translate)
app.command()(explain)
app.command()(score)
app.command()(serve)
app.command()(train)
app.command()(fit_length)
app.add_typer(models_app, name="models")
app.add_typer(study_app, name="study")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"uncurse {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Beam search that gets better, not worse, when the beam gets wider."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; what a user did wrong is told in one line."""
    try:
        status = app(args=arguments, standalone_mode=False)  # 130 if interrupted
        sys.stdout.flush()
    except (typer.TyperException, ValueError, OSError) as error:
        _give_up_output()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            return
        said = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        _fail(said or type(error).__name__)
    except MemoryError:
        _fail("there is not enough memory for this")
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0], "translate")
        _fail(f"{error.name} is not installed; this command needs: pip install 'uncurse[{extra}]'")
    if status:
        sys.exit(status)


def _give_up_output() -> None:
    """If standard output takes no more, let go what it was given; else Python would try again at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> NoReturn:
    """Say what is wrong in one line that a terminal can be trusted with, whatever file its words come from."""
    words = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(message.split()))
    line = words if len(words) <= LONGEST_MESSAGE else f"{words[:LONGEST_MESSAGE]} …"
    typer.echo(f"uncurse: {line}", err=True)
    sys.exit(2)
