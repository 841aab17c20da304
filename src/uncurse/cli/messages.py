"""What the command says of an error, in one line."""

from __future__ import annotations

import typer
from pydantic import ValidationError

from uncurse.errors import UncurseError, nearest, plain_reason


def message_of(error: typer.TyperException | UncurseError | OSError) -> str:
    """What is wrong: the file first, without the number of a system error, and options with their values."""
    if isinstance(error, OSError) and error.strerror:
        names = " → ".join(
            dict.fromkeys(str(name) for name in (error.filename, error.filename2) if name is not None)
        )
        return f"{names}: {error.strerror}" if names else error.strerror
    if isinstance(error, typer.BadParameter) and isinstance(error.__cause__, ValidationError):
        return _value_message(error, error.__cause__)
    if not isinstance(error, typer.TyperException):
        return str(error)
    message = error.format_message()
    if message.startswith("No such option: --plugin"):
        return "--plugin comes before the subcommand: uncurse --plugin FILE translate …"
    return message


def _value_message(error: typer.BadParameter, cause: ValidationError) -> str:
    """The option as it is typed, its value, and what would be right."""
    found = cause.errors()[0]
    parameter = error.param
    name = "an argument" if parameter is None else max((*parameter.opts, *parameter.secondary_opts), key=len)
    if found["type"] == "value_error":  # one of several names
        listed = str(found["msg"]).rstrip(".").partition(" is not one of ")[2]
        choices = [each.strip(" '") for each in listed.split(",")]
        return f"{name} {found['input']} is not allowed{nearest(str(found['input']), choices)}"
    return f"{name} {found['input']} is not allowed: {plain_reason(found)}"
