"""TOML files and other tables as frozen dataclasses: a field is a key, with its type and its default."""

from __future__ import annotations

import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from uncurse.errors import UncurseError, nearest
from uncurse.storage.atomic import read_regular_file

T = TypeVar("T")
MAX_BYTES: Final = 1 << 20  # of a file that somebody has written by hand


def read_settings(kind: type[T], path: Path) -> T:
    """Read a TOML file; an unknown key is refused, with the nearest that is known."""
    table = read_toml(path)
    try:
        return built(kind, table, "")
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file."""
    content = read_regular_file(path, MAX_BYTES)
    try:
        return tomllib.loads(content.decode("utf-8"))
    except ValueError as error:
        raise UncurseError(f"{path} is not a TOML file: {error}") from error
    except RecursionError:
        raise UncurseError(f"{path} is not a TOML file: it is nested too deeply") from None


def built(kind: type[T], table: object, where: str) -> T:
    """A dataclass from a table of the same shape; `where` names the table in errors."""
    if not isinstance(table, dict):
        raise UncurseError(f"{where or 'the file'} must be a table")
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in fields:
            raise UncurseError(f"unknown key {prefix + key!r}{nearest(key, list(fields))}")
    for name, field in fields.items():
        if name not in table and field.default is field.default_factory is dataclasses.MISSING:
            raise UncurseError(f"the key {prefix + name!r} is missing")
    hints = typing.get_type_hints(kind)
    try:
        return kind(**{key: _value(hints[key], value, prefix + key) for key, value in table.items()})
    except ValueError as error:
        text = str(error)
        raise UncurseError(
            text if where and text.startswith(where) else f"{where}: {text}" if where else text
        ) from None


def _value(hint: Any, value: object, where: str) -> object:  # noqa: ANN401  (a type hint)
    if dataclasses.is_dataclass(hint):
        return built(hint, value, where)  # type: ignore[arg-type]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(value, list) or not value:
            raise UncurseError(f"{where} must be a list with at least one item")
        return tuple(_value(arguments[0], each, where) for each in value)
    if origin is Mapping:
        if not isinstance(value, dict):
            raise UncurseError(f"{where} must be a table")
        return {key: _value(arguments[1], each, f"{where}.{key}") for key, each in value.items()}
    allowed = tuple(each for each in arguments if each is not types.NoneType) or (hint,)
    if allowed[0] is float and type(value) is int:
        return _finite(value, where)
    if type(value) in allowed:
        return _finite(value, where) if type(value) is float else value
    kinds = " or ".join(each.__name__ for each in allowed)
    raise UncurseError(f"{where} = {value!r} must be of type {kinds}")


def _finite(value: float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UncurseError(f"{where} must be a finite number")
    return number
