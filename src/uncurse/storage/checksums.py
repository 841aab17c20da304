"""JSON files that carry a checksum of what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from uncurse.errors import UncurseError

CHECKSUM: Final = "checksum"  # the key


def dump_checksummed(content: Mapping[str, Any]) -> bytes:
    """A table as JSON, with a checksum of its other keys and values."""
    return (json.dumps({**content, CHECKSUM: _checksum(content)}, indent=1, allow_nan=False) + "\n").encode()


def load_checksummed(content: object) -> dict[str, Any]:
    """A table that was read from JSON, without its checksum, which must be there and be right."""
    if not isinstance(content, dict):
        raise UncurseError("it is not a table")
    table = {name: value for name, value in content.items() if name != CHECKSUM}
    if content.get(CHECKSUM) != _checksum(table):
        raise UncurseError("it is damaged: its checksum does not match")
    return table


def _checksum(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
