"""A translator on disk: a folder with weights, subword models, a description and perhaps a length predictor."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from uncurse.files import write_whole
from uncurse.models.devices import device_of
from uncurse.models.lstm import AttentionalLSTM, LSTMShape
from uncurse.models.lstm_steps import LSTMStepModel
from uncurse.models.opened import OpenModel
from uncurse.models.predictors import find_predictor
from uncurse.text.subwords import Subwords

FORMAT: Final = "uncurse model 1"
DESCRIPTION: Final = "model.json"
WEIGHTS: Final = "weights.safetensors"
SOURCE: Final = "source.spm"
TARGET: Final = "target.spm"


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


def load_folder(folder: Path, device: str = "cpu") -> OpenModel:
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
    model = LSTMStepModel(network.to(device_of(device)), f"lstm-{fingerprint}")
    ratio = float(description["ratio"]) if "ratio" in description else None
    return OpenModel(model, source, target, fingerprint, find_predictor(folder, fingerprint), ratio)


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
