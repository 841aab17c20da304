"""A translator on disk: a folder with weights, subword models, a description and perhaps a length predictor."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from uncurse.files import write_whole
from uncurse.length import MLPLength
from uncurse.models.devices import device_of
from uncurse.models.lstm import AttentionalLSTM, LSTMShape
from uncurse.models.lstm_steps import LSTMStepModel
from uncurse.text.subwords import Subwords

FORMAT: Final = "uncurse model 1"
DESCRIPTION: Final = "model.json"
WEIGHTS: Final = "weights.safetensors"
SOURCE: Final = "source.spm"
TARGET: Final = "target.spm"
LENGTH: Final = "length.safetensors"


@final
@dataclass(frozen=True, eq=False)
class ModelFolder:
    """What a folder holds, ready to translate."""

    model: LSTMStepModel
    source: Subwords
    target: Subwords
    ratio: float  # target tokens per source piece in the training text
    predictor: MLPLength | None
    fingerprint: str


def save_model(
    folder: Path, network: AttentionalLSTM, source: Subwords, target: Subwords, ratio: float, dtype: torch.dtype
) -> None:
    """Write a model; the description comes last, so that a folder without it is known to be incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to(dtype).contiguous() for name, value in network.named_parameters()}
    contents = {WEIGHTS: save_tensors(tensors), SOURCE: source.model, TARGET: target.model}
    for name, content in contents.items():
        write_whole(folder / name, content)
    checksums = {name: sha256(content).hexdigest() for name, content in contents.items()}
    shape = asdict(network.shape)
    description = {"format": FORMAT, "family": "lstm", "ratio": ratio, "shape": shape, "sha256": checksums}
    write_whole(folder / DESCRIPTION, (json.dumps(description, indent=2) + "\n").encode())


def load_folder(folder: Path, device: str = "cpu") -> ModelFolder:
    """Read a model; a file that is not the one that was saved is an error."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder with a model")
    description = _description(folder)
    contents = {name: _content(folder / name) for name in (WEIGHTS, SOURCE, TARGET)}
    checksums = {name: sha256(content).hexdigest() for name, content in contents.items()}
    for name, checksum in checksums.items():
        if description.get("sha256", {}).get(name) != checksum:
            raise ValueError(f"{folder / name} is damaged: its checksum is not that of {folder / DESCRIPTION}")
    fingerprint = sha256("".join(checksums.values()).encode()).hexdigest()[:16]
    source, target = Subwords(contents[SOURCE]), Subwords(contents[TARGET])
    try:
        network = AttentionalLSTM(LSTMShape(**description["shape"]))
        network.load_weights(load_tensors(contents[WEIGHTS]))
    except (SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{folder / WEIGHTS} does not fit {folder / DESCRIPTION}: {error}") from error
    predictor = load_predictor(folder / LENGTH, fingerprint) if (folder / LENGTH).exists() else None
    model = LSTMStepModel(network.to(device_of(device)), f"lstm-{fingerprint}")
    return ModelFolder(model, source, target, float(description["ratio"]), predictor, fingerprint)


def save_predictor(path: Path, predictor: MLPLength, fingerprint: str) -> None:
    """Write a length predictor with the fingerprint of the model it was fitted to."""
    arrays = {
        name: np.asarray(value, dtype=np.float32) for name, value in vars(predictor).items() if name != "levels"
    }
    facts = {"levels": json.dumps(predictor.levels), "model": fingerprint, "sha256": _checksum(arrays)}
    write_whole(path, save_arrays(arrays, metadata=facts))


def load_predictor(path: Path, fingerprint: str) -> MLPLength:
    """Read a length predictor, which must have been fitted to the model at hand."""
    try:
        with safe_open(path, framework="np") as file:
            facts = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _checksum(arrays) != facts["sha256"]:
            raise ValueError("it is damaged")
        levels = tuple(json.loads(facts["levels"]))
        predictor = MLPLength(levels, **{name: array.astype(np.float64) for name, array in arrays.items()})
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a length predictor: {error}") from error
    if facts["model"] != fingerprint:
        raise ValueError(f"{path} was fitted to model {facts['model']}, and this is {fingerprint}")
    return predictor


def _checksum(arrays: dict[str, NDArray[np.float32]]) -> str:
    digest = sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].shape} ".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def _description(folder: Path) -> dict[str, Any]:
    try:
        description = json.loads(_content(folder / DESCRIPTION))
        if description["format"] != FORMAT:
            raise ValueError(f"the format is {description['format']!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / DESCRIPTION} does not describe a model: {error}") from error
    return dict(description)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
