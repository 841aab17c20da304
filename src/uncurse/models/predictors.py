"""Length predictors on disk; each belongs to one model and is refused by any other."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays

from uncurse.files import write_whole
from uncurse.jsonfile import in_order, parse_json
from uncurse.length import MLPLength

LENGTH: Final = "length.safetensors"
SHIPPED: Final = Path(__file__).parents[1] / "box" / "lengths"  # for models that others made, by fingerprint


def place_of_predictor(folder: Path, fingerprint: str) -> Path:
    """Where the predictor of a model belongs whose folder may hold several: of each pair of languages one."""
    return folder / f"length-{fingerprint}.safetensors"


def find_predictor(folder: Path, fingerprint: str) -> MLPLength | None:
    """The length predictor of a model: the one in its folder, else one that comes with the package."""
    places = place_of_predictor(folder, fingerprint), folder / LENGTH, SHIPPED / f"{fingerprint}.safetensors"
    for path in places:
        if path.exists():
            return load_predictor(path, fingerprint)
    return None


def save_predictor(path: Path, predictor: MLPLength, fingerprint: str) -> None:
    """Write a length predictor with the fingerprint of the model it was fitted to."""
    arrays = {
        name: np.asarray(value, dtype=np.float32) for name, value in vars(predictor).items() if name != "levels"
    }
    facts = {"levels": json.dumps(predictor.levels), "model": fingerprint}
    facts["sha256"] = _checksum(arrays, facts)
    write_whole(path, in_order(save_arrays(arrays, metadata=facts)))


def load_predictor(path: Path, fingerprint: str) -> MLPLength:
    """Read a length predictor, which must have been fitted to the model at hand."""
    try:
        with safe_open(path, framework="np") as file:
            facts = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if any(array.dtype != np.float32 for array in arrays.values()):
            raise ValueError("it has numbers that are not float32")
        checksum = facts.pop("sha256")
        if checksum not in (_checksum(arrays, facts), _checksum(arrays, {})):  # once only the arrays were covered
            raise ValueError("it is damaged")
        if facts.keys() != {"levels", "model"}:
            raise ValueError(f"it says {', '.join(facts)}, which is not what a predictor says")
        levels = tuple(parse_json(facts["levels"]))
        predictor = MLPLength(levels, **{name: array.astype(np.float64) for name, array in arrays.items()})
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a length predictor: {error}; delete it, or fit another") from error
    if facts["model"] != fingerprint:
        raise ValueError(
            f"{path} was fitted to model {facts['model']}, and this is {fingerprint}; delete it, or fit another"
        )
    return predictor


def _checksum(arrays: dict[str, NDArray[np.float32]], facts: dict[str, str]) -> str:
    digest = sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    for name in sorted(facts):
        digest.update(f"{name} {facts[name]} ".encode())
    return digest.hexdigest()
