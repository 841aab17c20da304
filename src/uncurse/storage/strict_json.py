"""JSON, read strictly: no number that is none, no text that is none, nothing out of proportion, no key twice."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Final, NoReturn

from uncurse.errors import UncurseError
from uncurse.storage.atomic import read_regular_file

MAX_BYTES: Final = 1 << 24  # of a file; the largest vocabularies have a tenth of it
MAX_NUMBER: Final = 1 << 63  # no count, size or id comes near
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: Path) -> Any:  # noqa: ANN401  (JSON)
    """What a file says; an `UncurseError` names the file."""
    content = read_regular_file(path, MAX_BYTES)
    try:
        return parse_json(content)
    except UncurseError as error:
        raise UncurseError(f"{path} is not valid JSON: {error}") from error


def parse_json(text: bytes | str) -> Any:  # noqa: ANN401  (JSON)
    """What a text says; an error if Python's parser would have to guess, wrap around or overflow."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        found = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_table,
        )
        if _SURROGATE.search(text):  # most are half of a pair, which Python joins
            _check_unicode(found)
        return found
    except RecursionError:
        raise UncurseError("it is nested too deeply") from None
    except ValueError as error:
        raise UncurseError(str(error)) from error


def in_order(content: bytes) -> bytes:
    """A safetensors file with its metadata sorted by key; the library writes another order each time."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    written = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + written.ljust(size) + content[8 + size :]


def _check_unicode(found: object) -> None:
    try:
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise UncurseError("it contains an unpaired surrogate, so it is not valid Unicode") from None


def _refuse_constant(name: str) -> NoReturn:
    raise UncurseError(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise UncurseError(f"{text[:20]} is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or not -MAX_NUMBER <= int(text) < MAX_NUMBER:
        raise UncurseError(f"{text[:20]} is too large")
    return int(text)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise UncurseError("a key occurs twice")
    return table
