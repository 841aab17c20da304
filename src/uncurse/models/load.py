"""Loading a model by name: the bundled one, a downloaded one, one in a folder, or one on the hub."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from uncurse.errors import UncurseError, nearest
from uncurse.models.download import downloaded_folder
from uncurse.models.hub import hub_folder, is_hub_name
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.pretrained_models import BUNDLED, PRETRAINED, find_pretrained

SELECTION: Final = ("vocabulary_selection", "vocabulary_selector")
TRANSFORMER_ONLY: Final = ("dtype", "without_script", *SELECTION)
EXPORTED: Final = "model"  # the folder that `uncurse train` leaves in that of its run


def load_model(options: ModelOptions) -> LoadedModel:
    """A model of any family, with a length predictor of its own or a given one."""
    loaded = _load_family(options)
    if options.length_predictor is None:
        return loaded
    from uncurse.lengths.predictor_file import load_predictor

    return replace(
        loaded, find_predictor=partial(load_predictor, Path(options.length_predictor), loaded.fingerprint)
    )


def _load_family(options: ModelOptions) -> LoadedModel:
    """A model of any family, each of which is imported only if it is needed."""
    folder = model_folder(options.model) or hub_folder(str(options.model))
    if (folder / "model.json").exists():
        from uncurse.models.lstm.folder import load_folder

        _refuse("an LSTM model", options, (*TRANSFORMER_ONLY, "source_lang", "target_lang", "prompt"))
        return load_folder(folder, options.device)
    if _runs_here(folder):
        from uncurse.models.transformer.folder import load_transformer

        _refuse("a model that is not decoder-only", options, ("prompt",))
        return load_transformer(folder, options)
    if any(folder.glob("model.*.bin")):
        from uncurse.models.bergamot.folder import load_bergamot

        _refuse("a Bergamot model", options, ("source_lang", "target_lang", "prompt", *SELECTION))
        return load_bergamot(folder, options)
    if not (folder / "config.json").exists():
        raise UncurseError(f"{folder} is not a folder with a model")
    from uncurse.models.huggingface.loading import load_huggingface

    _refuse("a model that runs in transformers", options, TRANSFORMER_ONLY)
    return load_huggingface(folder, options.device, options.source_lang, options.target_lang, options.prompt)


def model_folder(model: Path | str | None) -> Path | None:
    """Where a model is; None if that is on the hub."""
    if model is None or str(model) == BUNDLED.name:
        return BUNDLED
    folder, name = Path(model), str(model)
    if (folder / EXPORTED / "model.json").exists():  # a training run: what its best checkpoint became
        return folder / EXPORTED
    if (folder / "best.safetensors").exists():
        raise UncurseError(f"{folder} is a training run that has not ended: finish it with uncurse train")
    if folder.is_dir():
        return folder
    if find_pretrained(name) is not None:
        downloaded = downloaded_folder(name)
        if downloaded is None:
            raise UncurseError(f"{name} is not downloaded yet: run uncurse models get {name}")
        return downloaded
    if isinstance(model, str) and is_hub_name(name):
        return None
    known = nearest(name, [BUNDLED.name, *(model.name for model in PRETRAINED)])
    raise UncurseError(
        f"{name} is neither a folder with a model nor owner/name on the hub nor a known model{known}"
    )


def extra_of(model: Path | str | None) -> str:
    """The extra that a model needs, found without importing anything that an extra brings."""
    folder = Path(model or BUNDLED)
    if not folder.is_dir():
        return "huggingface" if is_hub_name(str(model)) else "translate"
    for_transformers = any((folder / name).exists() for name in ("config.json", "tokenizer_config.json"))
    own = any((folder / name).exists() for name in ("model.json", "source.spm"))
    return "huggingface" if for_transformers and not own else "translate"


def _runs_here(folder: Path) -> bool:
    """Whether the Transformer runtime here can run a model."""
    from uncurse.models.transformer.folder import ctranslate2_weights
    from uncurse.models.transformer.huggingface_file import CONFIG, is_supported

    if ctranslate2_weights(folder) is not None:
        return True
    return (folder / CONFIG).exists() and is_supported(folder)


def _refuse(what: str, options: ModelOptions, names: tuple[str, ...]) -> None:
    """Options that cannot act are errors."""
    for name in names:
        given, default = getattr(options, name), getattr(ModelOptions(), name)
        if given != default:
            only = f"{what} runs in {default}" if name == "dtype" else f"{what} does not take it"
            raise UncurseError(f"{name} = {given!r} is not allowed: {only}")
