"""Loading a model with its tokenizer from a folder of transformers, or from the hub."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
)

from uncurse.errors import UncurseError
from uncurse.lengths.predictor_file import find_predictor
from uncurse.models.devices import device_of
from uncurse.models.huggingface.folder_checks import auto_class, check_files, check_proportions
from uncurse.models.huggingface.network import fingerprint_of, vocab_size_of
from uncurse.models.huggingface.prompted import prompted_model
from uncurse.models.huggingface.special_tokens import check_tokens, special_tokens_of
from uncurse.models.huggingface.step_model import HuggingFaceStepModel
from uncurse.models.huggingface.tokenizer import HuggingFaceTokenizer, first_line, silence
from uncurse.models.loaded_model import LoadedModel


def load_huggingface(
    name: str | Path,
    device: str = "cpu",
    source_lang: str | None = None,
    target_lang: str | None = None,
    prompt: str | None = None,
) -> LoadedModel:
    """Load an encoder-decoder or a decoder-only model from a folder, or from the hub by name.

    Models of many languages need both languages, and decoder-only models a prompt. The generation config only says
    which tokens start and end an output, which are forced and which are never output; all else is for the options
    of a search to say.
    """
    where = device_of(device)
    try:
        tokenizer, network = _read(name)
    except Exception as error:  # configs and files of others can fail in any way
        place = "" if Path(name).is_dir() else "it is not a folder here, and the hub does not provide it: "
        raise UncurseError(
            f"{name} cannot be loaded as a sequence-to-sequence model: {place}{first_line(error)}"
        ) from error
    if not network.config.is_encoder_decoder:
        if source_lang is not None or target_lang is not None:
            raise UncurseError(f"{name} is a decoder-only model: name the languages in its prompt")
        return prompted_model(Path(name), tokenizer, network.to(where), prompt)
    if prompt is not None:
        raise UncurseError(f"prompt = {prompt!r} is not allowed: {name} is an encoder-decoder")
    try:
        special = special_tokens_of(tokenizer, network.generation_config, source_lang, target_lang)
        inputs: Any = network.get_input_embeddings()
        sizes = int(inputs.weight.shape[0]), vocab_size_of(network)
        check_tokens(*sizes, special, tokenizer.get_vocab().values())
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise UncurseError(f"{name} does not say which special tokens it needs: {first_line(error)}") from error
    fingerprint = fingerprint_of(network, str(special), str(sorted(tokenizer.get_vocab().items())))
    model = HuggingFaceStepModel(network.to(where), special, fingerprint)
    try:
        model.step(model.start([(special.eos,)]), np.array([model.bos]), 1, attention=model.attends)
    except Exception as error:  # some wrong settings only show in a forward
        raise UncurseError(f"{name} cannot be run: {first_line(error)}") from error
    lock = Lock()
    return LoadedModel(
        model=model,
        source=HuggingFaceTokenizer(tokenizer, target=False, lock=lock),
        target=HuggingFaceTokenizer(tokenizer, target=True, lock=lock),
        fingerprint=fingerprint,
        find_predictor=partial(find_predictor, Path(name), fingerprint),
    )


def _read(name: str | Path) -> tuple[Any, Any]:
    """Tokenizer and network. No code that comes with a model is run, and no pickle is opened."""
    folder = Path(name) if Path(name).is_dir() else None
    if folder is not None:
        check_files(folder)
    with silence():
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if folder is not None:
            check_proportions(folder, config)
        tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        # Eager attention is as fast as others for one token at a time, and it shows attention weights.
        implementation = "eager" if config.is_encoder_decoder else None
        loaded: Any = auto_class(config).from_pretrained(
            name,
            dtype=torch.float32,
            attn_implementation=implementation,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    network, report = loaded
    if missing := sorted(report["missing_keys"]):  # transformers would fill them with random numbers
        raise UncurseError(f"its weights lack {missing[0]!r}")
    for weight_name, weight in network.state_dict().items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise UncurseError(f"its {weight_name!r} has a number that is not finite")
    return tokenizer, network
