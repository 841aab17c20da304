"""A training run becomes a model that translates."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from uncurse.errors import UncurseError
from uncurse.lengths.predictor_file import LENGTH, save_predictor
from uncurse.models.lstm.folder import load_folder, save_model
from uncurse.models.lstm.network import AttentionalLSTM
from uncurse.training.checkpoint import load_checkpoint
from uncurse.training.fit_length import fit_length
from uncurse.training.run_folder import BEST, RunFolder
from uncurse.training.training_data import TrainingData

LENGTH_PAIRS: Final = 60_000  # more do not improve a length predictor


def export_model(folder: RunFolder, network: AttentionalLSTM, data: TrainingData) -> Path:
    """Write the best weights as a model folder, with a length predictor fitted to them."""
    path = folder.path / BEST
    best = load_checkpoint(path)
    try:
        network.load_weights(best.tensors)
    except UncurseError as error:
        raise UncurseError(f"{path} is not a checkpoint of this run: {error}") from error
    save_model(folder.model, network, data.source, data.target, data.train.length_ratio, torch.float16)
    loaded = load_folder(folder.model)
    predictor = fit_length([data.train.length_sample(loaded.model, LENGTH_PAIRS)])
    save_predictor(folder.model / LENGTH, predictor, loaded.fingerprint)
    return folder.model
