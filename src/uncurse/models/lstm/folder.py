"""LSTM models on disk: weights, two SentencePiece models, `model.json` and perhaps a length predictor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from uncurse.errors import UncurseError
from uncurse.lengths.predictor_file import find_predictor
from uncurse.lengths.predictors import FixedRatio
from uncurse.models.devices import device_of
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES, LoadedModel
from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape, network_of
from uncurse.models.lstm.step_model import LSTMStepModel
from uncurse.models.transformer.native.library import chosen_library
from uncurse.storage.atomic import atomic_write, read_regular_file
from uncurse.storage.strict_json import read_json
from uncurse.storage.toml_config import built
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer, read_sentencepiece

FORMAT: Final = "uncurse model 1"
FAMILY: Final = "lstm"
DESCRIPTION: Final = "model.json"
WEIGHTS: Final = "weights.safetensors"
SOURCE: Final = "source.spm"
TARGET: Final = "target.spm"
FILES: Final = (WEIGHTS, SOURCE, TARGET)


@final
@dataclass(frozen=True)
class LSTMDescription:
    """The content of `model.json`."""

    format: str
    family: str
    shape: LSTMShape
    sha256: Mapping[str, str]  # of each of the other files
    length_ratio: float | None = None  # target tokens per source token in the training text

    def __post_init__(self) -> None:
        if (self.format, self.family) != (FORMAT, FAMILY):
            raise UncurseError(f"its format is {self.format!r} and its family {self.family!r}")
        if self.sha256.keys() != set(FILES):
            raise UncurseError(f"it has checksums of {', '.join(self.sha256)}; expected {', '.join(FILES)}")
        if self.length_ratio is not None:
            FixedRatio(self.length_ratio)


def save_model(
    folder: Path,
    network: AttentionalLSTM,
    source: SentencePieceTokenizer,
    target: SentencePieceTokenizer,
    length_ratio: float,
    dtype: torch.dtype,
) -> None:
    """Write a model; `model.json` is written last, so a folder without it is incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().to(dtype).contiguous() for name, value in network.named_parameters()}
    contents = {WEIGHTS: save_tensors(tensors), SOURCE: source.model, TARGET: target.model}
    for name, content in contents.items():
        atomic_write(folder / name, content)
    checksums = {name: sha256(content).hexdigest() for name, content in contents.items()}
    description = LSTMDescription(
        format=FORMAT, family=FAMILY, shape=network.shape, sha256=checksums, length_ratio=length_ratio
    )
    atomic_write(folder / DESCRIPTION, (json.dumps(asdict(description), indent=1) + "\n").encode())


@final
@dataclass(frozen=True, eq=False)
class SavedLSTM:
    """What the folder of a model holds, but for the length predictor."""

    network: AttentionalLSTM
    source: SentencePieceTokenizer
    target: SentencePieceTokenizer
    fingerprint: str
    length_ratio: float | None


def load_folder(folder: Path, device: str = "cpu") -> LoadedModel:
    """Read a model that is ready to translate."""
    saved = read_lstm(folder)
    library = chosen_library() if device_of(device).type == "cpu" else None
    kernels = "" if library is None else f"-{library.instruction_set}"
    network = saved.network.to(device_of(device))
    predictor = find_predictor(folder, saved.fingerprint)
    return LoadedModel(
        model=LSTMStepModel(network, f"lstm-{saved.fingerprint}{kernels}", library),
        source=saved.source,
        target=saved.target,
        fingerprint=saved.fingerprint,
        find_predictor=lambda: predictor,
        length_ratio=saved.length_ratio,
    )


def read_lstm(folder: Path) -> SavedLSTM:
    """Read weights and tokenizers; a file that is not the one that was saved is an error."""
    if not folder.is_dir():
        raise UncurseError(f"{folder} is not a folder with a model")
    for name in (DESCRIPTION, *FILES):
        if not (folder / name).exists():
            raise UncurseError(f"{folder / name} is missing")
    description = _read_description(folder)
    contents = {name: read_regular_file(folder / name, MAX_WEIGHT_BYTES) for name in FILES}
    checksums = {name: sha256(content).hexdigest() for name, content in contents.items()}
    for name, checksum in checksums.items():
        if description.sha256[name] != checksum:
            raise UncurseError(f"{folder / name} is damaged: its SHA-256 is not the one in {folder / DESCRIPTION}")
    fingerprint = sha256("".join(checksums.values()).encode()).hexdigest()[:16]
    source, target = read_sentencepiece(folder / SOURCE), read_sentencepiece(folder / TARGET)
    shape = description.shape
    if (len(source), len(target)) != (shape.source_vocab_size, shape.target_vocab_size):
        raise UncurseError(
            f"{folder / DESCRIPTION} does not fit the tokenizers of {len(source)} and {len(target)} tokens"
        )
    try:
        network = network_of(shape, load_tensors(contents[WEIGHTS]))
    except (SafetensorError, KeyError, UncurseError) as error:
        raise UncurseError(f"{folder / WEIGHTS} does not fit {folder / DESCRIPTION}: {error}") from error
    return SavedLSTM(
        network=network,
        source=source,
        target=target,
        fingerprint=fingerprint,
        length_ratio=description.length_ratio,
    )


def _read_description(folder: Path) -> LSTMDescription:
    path = folder / DESCRIPTION
    table = read_json(path)
    try:
        return built(LSTMDescription, table, "")
    except UncurseError as error:
        raise UncurseError(f"{path} does not describe a model: {error}") from error
