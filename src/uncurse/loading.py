"""Loading a translator: the one in the box, or one from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from uncurse.models.directory import load_folder
from uncurse.translator import Translator

BOXED: Final = Path(__file__).parent / "box" / "zh-en-small"


def load(model: Path | str | None = None, device: str = "cpu") -> Translator:
    """A translator from a folder with a model, or the one in the box."""
    folder = load_folder(BOXED if model is None else Path(model), device)
    return Translator(folder.model, folder.source, folder.target, folder.predictor)
