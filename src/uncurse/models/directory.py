"""A translator on disk: a folder with weights, subword models, a description and perhaps a length predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from uncurse.files import write_whole
from uncurse.jsonfile import parse_json, sealed_json, unsealed
from uncurse.length import FixedRatio
from uncurse.models.devices import device_of
from uncurse.models.lstm import AttentionalLSTM, LSTMShape, loaded_network
from uncurse.models.lstm_steps import LSTMStepModel
from uncurse.models.opened import OpenModel
from uncurse.models.predictors import find_predictor
from uncurse.settings import built
from uncurse.text.subwords import Subwords, read_subwords

FORMAT: Final = "uncurse model 1"
FAMILY: Final = "lstm"
DESCRIPTION: Final = "model.json"
WEIGHTS: Final = "weights.safetensors"
SOURCE: Final = "source.spm"
TARGET: Final = "target.spm"
FILES: Final = (WEIGHTS, SOURCE, TARGET)


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
    description = {"format": FORMAT, "family": FAMILY, "ratio": ratio, "shape": shape, "sha256": checksums}
    write_whole(folder / DESCRIPTION, sealed_json(description))


def load_folder(folder: Path, device: str = "cpu") -> OpenModel:
    """Read a model; a file that is not the one that was saved is an error."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder with a model")
    description = _description(folder)
    contents = {name: _content(folder / name) for name in FILES}
    checksums = {name: sha256(content).hexdigest() for name, content in contents.items()}
    for name, checksum in checksums.items():
        if description.sha256[name] != checksum:
            raise ValueError(f"{folder / name} is damaged: its checksum is not that of {folder / DESCRIPTION}")
    fingerprint = sha256("".join(checksums.values()).encode()).hexdigest()[:16]
    source, target = read_subwords(folder / SOURCE), read_subwords(folder / TARGET)
    shape = description.shape
    if (len(source), len(target)) != (shape.source_vocabulary, shape.target_vocabulary):
        raise ValueError(f"{folder / DESCRIPTION} does not fit the {len(source)} and {len(target)} subwords")
    try:
        network = loaded_network(shape, load_tensors(contents[WEIGHTS]))
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{folder / WEIGHTS} does not fit {folder / DESCRIPTION}: {error}") from error
    model = LSTMStepModel(network.to(device_of(device)), f"lstm-{fingerprint}")
    predictor = find_predictor(folder, fingerprint)
    return OpenModel(model, source, target, fingerprint, lambda: predictor, description.ratio)


@final
@dataclass(frozen=True)
class _Description:
    """What `model.json` says."""

    format: str
    family: str
    shape: LSTMShape
    sha256: Mapping[str, str]  # of each of the other files
    ratio: float | None = None

    def __post_init__(self) -> None:
        if (self.format, self.family) != (FORMAT, FAMILY):
            raise ValueError(f"the format is {self.format!r}, the family {self.family!r}")
        if self.sha256.keys() != set(FILES):
            raise ValueError(f"it has checksums of {', '.join(self.sha256)} and not of {', '.join(FILES)}")
        if self.ratio is not None:
            FixedRatio(self.ratio)


def _description(folder: Path) -> _Description:
    try:
        return built(_Description, unsealed(parse_json(_content(folder / DESCRIPTION))), "")
    except ValueError as error:
        raise ValueError(f"{folder / DESCRIPTION} does not describe a model: {error}") from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
