"""Small sets of named arrays with metadata, in a safetensors file with a checksum."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from uncurse.errors import UncurseError
from uncurse.storage.atomic import atomic_write, read_regular_file
from uncurse.storage.strict_json import in_order, parse_json

MAX_BYTES: Final = 1 << 28


def save_array_file(path: Path, arrays: dict[str, NDArray[Any]], metadata: dict[str, str]) -> None:
    """Write arrays and metadata under a temporary name and rename the file."""
    content = save(arrays, metadata={**metadata, "sha256": _checksum(arrays, metadata)})
    atomic_write(path, in_order(content))


def load_array_file(path: Path, what: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read arrays and metadata; an error says that the file is not `what` it should be."""
    content = read_regular_file(path, MAX_BYTES)
    try:
        arrays = load(content)
        metadata = dict(parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"])
        if metadata.pop("sha256") != _checksum(arrays, metadata):
            raise UncurseError("it is damaged")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UncurseError(f"{path} is not a {what}: {error}; delete it, or fit another") from error
    return arrays, metadata


def _checksum(arrays: dict[str, NDArray[Any]], metadata: dict[str, str]) -> str:
    digest = sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    for name in sorted(metadata):
        digest.update(f"{name} {metadata[name]} ".encode())
    return digest.hexdigest()
