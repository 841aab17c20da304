"""Loading a translator: the one in the box, one that was fetched, one from a folder, one from a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from uncurse.catalogue import BOXED, CATALOGUE, find, folder_of
from uncurse.models.opened import OpenModel
from uncurse.registry import nearest
from uncurse.translator import Translator

TRAINED: Final = "model"  # the folder that `uncurse train` leaves in that of its run


def load(
    model: Path | str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    source_lang: str | None = None,
    target_lang: str | None = None,
    without_script: str | None = None,
) -> Translator:
    """A translator by the name of its model or its folder; without a name the one in the box.

    `without_script="cjk"`, say, leaves the pieces with such letters out of the output of a Marian model.
    """
    opened = open_model(model, device, dtype, source_lang, target_lang, without_script)
    return Translator(opened.model, opened.source, opened.target, opened.predictor)


def open_model(
    model: Path | str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    source_lang: str | None = None,
    target_lang: str | None = None,
    without_script: str | None = None,
) -> OpenModel:
    """A model of any family, each of which is imported only if it is needed."""
    folder = folder_for(model)
    if folder is not None and (folder / "model.json").exists():
        from uncurse.models.directory import load_folder

        _refuse("an LSTM", dtype, source_lang, target_lang, without_script)
        return load_folder(folder, device)
    if folder is not None and _is_transformer(folder):
        from uncurse.models.products import Numbers
        from uncurse.models.transformer_folder import ctranslate2_weights, load_ctranslate2, load_marian

        if dtype not in list(Numbers):
            raise ValueError(f"dtype {dtype!r} is not known: it is one of {', '.join(Numbers)}")
        _refuse("a Marian model", "float32", source_lang, None, None)
        opened = load_ctranslate2 if ctranslate2_weights(folder) else load_marian
        return opened(folder, device, Numbers(dtype), target_lang, without_script)
    if folder is not None and not (folder / "config.json").exists():
        raise ValueError(f"{folder} is not a folder with a model")
    from uncurse.models.huggingface_folder import load_huggingface

    _refuse("a model that transformers runs", dtype, None, None, without_script)
    return load_huggingface(str(model) if folder is None else folder, device, source_lang, target_lang)


def folder_for(model: Path | str | None) -> Path | None:
    """Where a model is; None if that is on a hub."""
    if model is None or str(model) == BOXED.name:
        return BOXED
    folder, name = Path(model), str(model)
    if (folder / TRAINED / "model.json").exists():  # a training run: what its best checkpoint became
        return folder / TRAINED
    if (folder / "best.safetensors").exists():
        raise ValueError(f"{folder} is a training run that has not ended: uncurse train goes on with it")
    if folder.is_dir():
        return folder
    if find(name) is not None:
        fetched = folder_of(name)
        if fetched is None:
            raise ValueError(f"{name} is not here yet: uncurse models get {name}")
        return fetched
    if isinstance(model, str) and name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return None
    known = nearest(name, [BOXED.name, *(entry.name for entry in CATALOGUE)])
    raise ValueError(
        f"{name} is not a folder with a model and not owner/name on a hub, and no model has this name{known}"
    )


def _is_transformer(folder: Path) -> bool:
    from uncurse.models.marian import CONFIG, can_be_run
    from uncurse.models.transformer_folder import ctranslate2_weights

    if ctranslate2_weights(folder) is not None:
        return True
    return (folder / CONFIG).exists() and can_be_run(folder)


def _refuse(
    what: str, dtype: str, source_lang: str | None, target_lang: str | None, without_script: str | None
) -> None:
    if dtype != "float32":
        raise ValueError(f"dtype {dtype!r} is not allowed: {what} runs in float32")
    for option, given in (("--source-lang", source_lang), ("--target-lang", target_lang)):
        if given:
            raise ValueError(f"{what} needs no {option}")
    if without_script is not None:
        raise ValueError(f"{what} cannot leave out a script: --without-script is for Marian models")
