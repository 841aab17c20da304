"""Length predictors on disk, as safetensors; each is for one model and is refused for any other."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from uncurse.errors import UncurseError
from uncurse.lengths.predictors import MLPLength
from uncurse.storage.atomic import atomic_write, read_regular_file
from uncurse.storage.strict_json import in_order, parse_json

LENGTH: Final = "length.safetensors"
SHIPPED: Final = Path(__file__).parents[1] / "models" / "pretrained" / "lengths"  # by fingerprint of the model
MAX_BYTES: Final = 1 << 28


def predictor_path(folder: Path, fingerprint: str) -> Path:
    """Where a predictor belongs if its folder may hold several, one for each pair of languages."""
    return folder / f"length-{fingerprint}.safetensors"


def find_predictor(folder: Path, fingerprint: str) -> MLPLength | None:
    """The length predictor of a model: the one in its folder, else one that comes with the package."""
    for path in (predictor_path(folder, fingerprint), folder / LENGTH, SHIPPED / f"{fingerprint}.safetensors"):
        if path.exists():
            return load_predictor(path, fingerprint)
    return None


def save_predictor(path: Path, predictor: MLPLength, fingerprint: str) -> None:
    """Write a length predictor with the fingerprint of the model that it was fitted to."""
    arrays = {
        name: np.asarray(value, dtype=np.float32) for name, value in vars(predictor).items() if name != "levels"
    }
    metadata = {"levels": json.dumps(predictor.levels), "model": fingerprint}
    metadata["sha256"] = _checksum(arrays, metadata)
    atomic_write(path, in_order(save_arrays(arrays, metadata=metadata)))


def load_predictor(path: Path, fingerprint: str) -> MLPLength:
    """Read a length predictor, which must have been fitted to the model with this fingerprint."""
    content = read_regular_file(path, MAX_BYTES)
    try:
        arrays = load_arrays(content)
        metadata = _metadata(content)
        if any(array.dtype != np.float32 for array in arrays.values()):
            raise UncurseError("it has arrays that are not float32")
        if metadata.pop("sha256") != _checksum(arrays, metadata):
            raise UncurseError("it is damaged")
        if metadata.keys() != {"levels", "model"}:
            raise UncurseError(f"its metadata has the keys {', '.join(metadata)}; expected levels, model, sha256")
        levels = tuple(parse_json(metadata["levels"]))
        predictor = MLPLength(levels, **{name: array.astype(np.float64) for name, array in arrays.items()})
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UncurseError(f"{path} is not a length predictor: {error}; delete it, or fit another") from error
    if metadata["model"] != fingerprint:
        raise UncurseError(
            f"{path} was fitted to model {metadata['model']}, and this is {fingerprint}; delete it, or fit another"
        )
    return predictor


def _metadata(content: bytes) -> dict[str, str]:
    """The metadata in the header of a safetensors file, which has been parsed once already."""
    size = int.from_bytes(content[:8], "little")
    return dict(parse_json(content[8 : 8 + size])["__metadata__"])


def _checksum(arrays: dict[str, NDArray[np.float32]], metadata: dict[str, str]) -> str:
    digest = sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    for name in sorted(metadata):
        digest.update(f"{name} {metadata[name]} ".encode())
    return digest.hexdigest()
