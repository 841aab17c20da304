"""The command `uncurse`: one file for each subcommand; here errors become one line and an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Final, NoReturn

import typer

from uncurse.cli.env import env
from uncurse.cli.explain import explain
from uncurse.cli.fit_length import fit_length
from uncurse.cli.fit_vocabulary import fit_vocabulary
from uncurse.cli.messages import message_of
from uncurse.cli.methods import methods
from uncurse.cli.models import models_app
from uncurse.cli.options import InterruptedRun
from uncurse.cli.score import score
from uncurse.cli.serve import serve
from uncurse.cli.study import study_app
from uncurse.cli.train import train
from uncurse.cli.translate import translate
from uncurse.errors import UncurseError, missing_extra
from uncurse.plugins import load_plugins, plugin_at_fault
from uncurse.version import VERSION

MAX_MESSAGE: Final = 1000  # characters

app = typer.Typer(
    name="uncurse",
    help="Beam search that gets better, not worse, when the beam gets wider.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(methods)
app.command()(translate)
app.command()(explain)
app.command()(score)
app.command()(serve)
app.command()(train)
app.command()(fit_length)
app.command()(fit_vocabulary)
app.command()(env)
app.add_typer(models_app, name="models")
app.add_typer(study_app, name="study")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"uncurse {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE_OR_MODULE", help="Load scores and stopping rules from a plug-in; repeatable."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Beam search that gets better, not worse, when the beam gets wider."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    else:
        load_plugins(plugin or ())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; what a user got wrong is one line and status 2, and anything else is a bug."""
    try:
        status = app(args=arguments, standalone_mode=False)  # 130 if interrupted
        sys.stdout.flush()
    except (typer.TyperException, UncurseError, OSError) as error:
        _give_up_output()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            return
        _fail(message_of(error) or type(error).__name__)
    except MemoryError:
        _fail("there is not enough memory for this")
    except KeyboardInterrupt:
        status = 130
    except InterruptedRun as stop:
        typer.echo(f"uncurse: interrupted; {stop}", err=True)
        sys.exit(130)
    except Exception as error:
        missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        if missing is not None:
            _fail(str(missing))
        _give_up_output()
        _report_bug(error)
        status = 1
    if status == 130:
        typer.echo("uncurse: interrupted", err=True)
    if status:
        sys.exit(status)


def _report_bug(error: Exception) -> None:
    fault = plugin_at_fault(error)
    if fault is None:
        traceback.print_exception(error)
        typer.echo(
            "uncurse: this is a bug in uncurse: please report it, with the lines above and `uncurse env`",
            err=True,
        )
        return
    name, trace = fault
    if trace is not None:
        traceback.print_tb(trace)
    typer.echo(f"uncurse: the plug-in {name} failed: {type(error).__name__}: {error}", err=True)


def _give_up_output() -> None:
    """If standard output takes no more, drop what it was given; else Python would try again at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> NoReturn:
    """Say what is wrong in one line that is safe for a terminal, whatever file its words come from."""
    words = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(message.split()))
    line = words if len(words) <= MAX_MESSAGE else f"{words[:MAX_MESSAGE]} …"
    typer.echo(f"uncurse: {line}", err=True)
    sys.exit(2)
