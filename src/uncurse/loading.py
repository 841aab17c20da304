"""Loading a translator from a folder."""

from __future__ import annotations

from pathlib import Path

from uncurse.models.directory import load_folder
from uncurse.translator import Translator


def load(model: Path | str | None) -> Translator:
    """A translator from a folder with a model."""
    if model is None:
        raise ValueError("no model is given: name a folder with --model")
    folder = load_folder(Path(model))
    return Translator(folder.model, folder.source, folder.target, folder.predictor)
