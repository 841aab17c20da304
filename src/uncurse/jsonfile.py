"""JSON on disk: read strictly, whoever wrote it, and sealed with a checksum where it was written here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NoReturn

from uncurse.files import read_at_most

MOST: Final = 1 << 24  # bytes of a file; the largest vocabularies have a tenth of it
LARGEST: Final = 1 << 63  # no count, size or id comes near
SEAL: Final = "seal"


def read_json(path: Path) -> Any:  # noqa: ANN401  (JSON)
    """What a file says; a `ValueError` names it."""
    try:
        return parse_json(read_at_most(path, MOST))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON that can be used: {error}") from error


def parse_json(text: bytes | str) -> Any:  # noqa: ANN401  (JSON)
    """What a text says; no number in it is none or out of all proportion, and no key is there twice."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(
            text,
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_table,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def sealed_json(content: Mapping[str, Any]) -> bytes:
    """A table as JSON, with a checksum of what it says."""
    return (json.dumps({**content, SEAL: _seal(content)}, indent=1, allow_nan=False) + "\n").encode()


def unsealed(content: object) -> dict[str, Any]:
    """A table whose checksum is right, without it; one that never had any is taken as it is.

    Who reads it must refuse keys that it does not know: a seal whose name is damaged is such a key.
    """
    if not isinstance(content, dict):
        raise ValueError("it is not a table")
    inside = {name: value for name, value in content.items() if name != SEAL}
    if SEAL in content and content[SEAL] != _seal(inside):
        raise ValueError("it is damaged: its checksum is not that of what it says")
    return inside


def in_order(content: bytes) -> bytes:
    """A safetensors file with its facts in order; the library writes them in another order each time."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    written = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return content[:8] + written.ljust(size) + content[8 + size :]


def _seal(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or not -LARGEST <= int(text) < LARGEST:
        raise ValueError(f"{text[:20]} is too large")
    return int(text)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key is there twice")
    return table
