"""Length predictors on disk, as safetensors; each is for one model and is refused for any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import numpy as np

from uncurse.errors import UncurseError
from uncurse.lengths.predictors import LinearLength
from uncurse.storage.array_file import load_array_file, save_array_file
from uncurse.storage.strict_json import parse_json

LENGTH: Final = "length.safetensors"
SHIPPED: Final = Path(__file__).parents[1] / "models" / "pretrained" / "lengths"  # by fingerprint of the model


def predictor_path(folder: Path, fingerprint: str) -> Path:
    """Where a predictor belongs if its folder may hold several, one for each pair of languages."""
    return folder / f"length-{fingerprint}.safetensors"


def find_predictor(folder: Path, fingerprint: str) -> LinearLength | None:
    """The length predictor of a model: the one in its folder, else one that comes with the package."""
    for path in (predictor_path(folder, fingerprint), folder / LENGTH, SHIPPED / f"{fingerprint}.safetensors"):
        if path.exists():
            return load_predictor(path, fingerprint)
    return None


def save_predictor(path: Path, predictor: LinearLength, fingerprint: str) -> None:
    """Write a length predictor with the fingerprint of the model that it was fitted to."""
    arrays = {
        name: np.asarray(value, dtype=np.float32) for name, value in vars(predictor).items() if name != "levels"
    }
    save_array_file(path, arrays, {"levels": json.dumps(predictor.levels), "model": fingerprint})


def load_predictor(path: Path, fingerprint: str) -> LinearLength:
    """Read a length predictor, which must have been fitted to the model with this fingerprint."""
    arrays, metadata = load_array_file(path, "length predictor")
    try:
        if any(array.dtype != np.float32 for array in arrays.values()):
            raise UncurseError("it has arrays that are not float32")
        if metadata.keys() != {"levels", "model"}:
            raise UncurseError(f"its metadata has the keys {', '.join(metadata)}; expected levels, model, sha256")
        levels = tuple(parse_json(metadata["levels"]))
        predictor = LinearLength(levels, **{name: array.astype(np.float64) for name, array in arrays.items()})
    except (TypeError, ValueError) as error:
        raise UncurseError(f"{path} is not a length predictor: {error}; delete it, or fit another") from error
    if metadata["model"] != fingerprint:
        raise UncurseError(
            f"{path} was fitted to model {metadata['model']}, and this is {fingerprint}; delete it, or fit another"
        )
    return predictor
