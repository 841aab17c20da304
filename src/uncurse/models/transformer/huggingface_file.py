"""Hugging Face files of Marian models: `config.json` and the weights, in safetensors or as a PyTorch file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES
from uncurse.models.transformer.layers import ACTIVATIONS
from uncurse.models.transformer.positions import MAX_POSITIONS
from uncurse.models.transformer.pytorch_file import read_state_dict
from uncurse.models.transformer.quantization import Weight
from uncurse.models.transformer.weights import EMBEDDINGS, OUTPUT_BIAS, TransformerWeights
from uncurse.storage.atomic import atomic_write, read_regular_file
from uncurse.storage.strict_json import read_json

CONFIG: Final = "config.json"
TENSORS: Final = "model.safetensors"
PICKLED: Final = "pytorch_model.bin"  # read if there are no safetensors
SHARD_INDEX: Final = "model.safetensors.index.json"  # there if the weights are in several files
LINEARS: Final = {  # our linear layers, and those of Hugging Face whose rows they have one after the other
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
NORMS: Final = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
}
REQUIRED: Final = {  # what this runtime implements; a model with other values is refused
    "model_type": "marian",
    "scale_embedding": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
INTEGERS: Final = (
    *(f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "attention_heads")),
    *(f"{token}_token_id" for token in ("decoder_start", "pad", "eos")),
)


def read_config(folder: Path) -> dict[str, Any]:
    """The content of `config.json`."""
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict):
        raise UncurseError(f"{folder / CONFIG} does not describe a model")
    return config


def is_supported(folder: Path) -> bool:
    """Whether this runtime can run a model; others run in transformers."""
    config = read_config(folder)
    in_one_file = (folder / TENSORS).exists() or not (folder / SHARD_INDEX).exists()
    return config.get("model_type") == "marian" and in_one_file and _unsupported(config) is None


def _unsupported(config: dict[str, Any]) -> str | None:
    """What this runtime does not support of a model; None if it supports everything."""
    for name, expected in REQUIRED.items():
        found = config.get(name, expected)
        if found != expected:
            return f"{name} is {found!r}, not {expected!r}"
    heads = [config.get(f"{side}_attention_heads") for side in ("encoder", "decoder")]
    if heads[0] != heads[1]:
        return f"the encoder has {heads[0]} attention heads and the decoder {heads[1]}"
    if (activation := config.get("activation_function")) not in tuple(ACTIVATIONS):
        return f"the activation function {activation!r} is not supported"
    return None


def read_marian(folder: Path) -> TransformerWeights:
    """Read the weights of a folder; an error names what this runtime does not support."""
    config = read_config(folder)
    if (unsupported := _unsupported(config)) is not None:
        raise UncurseError(f"{folder / CONFIG}: {unsupported}")
    for name in INTEGERS:
        if type(config.get(name)) is not int:
            raise UncurseError(f"{folder / CONFIG}: {name} is {config.get(name)!r}, not an integer")
    path = weights_file(folder)
    tensors = _read_tensors(path)
    try:
        return _weights(config, tensors)
    except (SafetensorError, KeyError, IndexError, RuntimeError, ValueError) as error:
        raise UncurseError(f"{path} does not fit {folder / CONFIG}: {error}") from error


def weights_file(folder: Path) -> Path:
    """The weights of a folder: safetensors, or else a PyTorch file."""
    for name in (TENSORS, PICKLED):
        if (folder / name).exists():
            return folder / name
    raise UncurseError(f"{folder / TENSORS} is missing")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if path.name == PICKLED:
        return read_state_dict(path)
    content = read_regular_file(path, MAX_WEIGHT_BYTES)
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise UncurseError(f"{path} is not a safetensors file: {error}") from error


def _weights(config: dict[str, Any], tensors: dict[str, Tensor]) -> TransformerWeights:
    def float32(name: str) -> Tensor:
        if not tensors[name].is_floating_point():
            raise UncurseError(f"{name!r} is of type {tensors[name].dtype}")
        return tensors[name].float()

    matrices, vectors = {}, {}
    for side in ("encoder", "decoder"):
        for index in range(config[f"{side}_layers"]):
            ours, theirs = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
            for part, names in LINEARS.items():
                if side == "encoder" and part.startswith("attention"):
                    continue
                weight = torch.cat([float32(f"{theirs}.{name}.weight") for name in names])
                matrices[f"{ours}/{part}"] = Weight(weight)
                vectors[f"{ours}/{part}/bias"] = torch.cat([float32(f"{theirs}.{name}.bias") for name in names])
            for part, name in NORMS.items():
                if side == "encoder" and part.startswith("attention"):
                    continue
                vectors[f"{ours}/{part}/gamma"] = float32(f"{theirs}.{name}.weight")
                vectors[f"{ours}/{part}/beta"] = float32(f"{theirs}.{name}.bias")
    embeddings, bias = float32("model.shared.weight"), float32("final_logits_bias")[0].clone()
    start, padding = config["decoder_start_token_id"], config["pad_token_id"]
    if not (0 <= start < len(embeddings) and 0 <= padding < len(bias)) or embeddings.ndim != 2:
        raise UncurseError(
            f"decoder_start_token_id = {start} or pad_token_id = {padding} is outside the vocabulary"
        )
    if embeddings[start].any():
        raise UncurseError("the embedding of the start token is not zero")
    if not bias.isfinite().all():
        raise UncurseError("'final_logits_bias' has a value that is not finite")
    bias[padding] = -torch.inf  # padding is never output
    matrices[EMBEDDINGS] = Weight(embeddings)
    vectors[OUTPUT_BIAS] = bias
    heads, activation = config["decoder_attention_heads"], config["activation_function"]
    return TransformerWeights(matrices, vectors, heads, activation, config["eos_token_id"])


def save_marian(folder: Path, weights: TransformerWeights) -> None:
    """Write a folder that Hugging Face reads, in float32; `<pad>` becomes the last token."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / TENSORS, save_tensors(_huggingface_tensors(weights), metadata={"format": "pt"}))
    atomic_write(folder / CONFIG, (json.dumps(_huggingface_config(weights), indent=2) + "\n").encode())


def _huggingface_tensors(weights: TransformerWeights) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, matrix in weights.matrices.items():
        side, _, rest = name.partition("/layer_")
        if rest:
            index, _, part = rest.partition("/")
            names = LINEARS[part]
            for theirs, weight, bias in zip(
                names,
                matrix.dequantize().chunk(len(names)),
                weights.vectors[f"{name}/bias"].chunk(len(names)),
                strict=True,
            ):
                tensors[f"model.{side}.layers.{index}.{theirs}.weight"] = weight.contiguous()
                tensors[f"model.{side}.layers.{index}.{theirs}.bias"] = bias.contiguous()
    for name, vector in weights.vectors.items():
        side, _, rest = name.partition("/layer_")
        index, _, part = rest.partition("/")
        norm, _, kind = part.rpartition("/")
        if norm in NORMS:
            theirs = f"model.{side}.layers.{index}.{NORMS[norm]}"
            tensors[f"{theirs}.{'weight' if kind == 'gamma' else 'bias'}"] = vector
    embeddings = weights.matrices[EMBEDDINGS].dequantize()
    tensors["model.shared.weight"] = torch.cat((embeddings, torch.zeros(1, embeddings.shape[1])))
    tensors["final_logits_bias"] = torch.cat((weights.vectors[OUTPUT_BIAS], torch.zeros(1)))[None]
    return tensors


def _huggingface_config(weights: TransformerWeights) -> dict[str, Any]:
    pad, d_model = weights.matrices[EMBEDDINGS].values.shape
    vocab_size = pad + 1
    sides = {
        f"{side}_{what}": value
        for side in ("encoder", "decoder")
        for what, value in {
            "layers": weights.layers(side),
            "attention_heads": weights.heads,
            "ffn_dim": len(weights.matrices[f"{side}/layer_0/ffn/linear_0"].values),
        }.items()
    }
    return {
        **REQUIRED,
        **sides,
        "architectures": ["MarianMTModel"],
        "d_model": d_model,
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "activation_function": weights.activation,
        "max_position_embeddings": MAX_POSITIONS,
        "eos_token_id": weights.eos,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "bos_token_id": None,
        "static_position_embeddings": True,
        "dropout": 0.0,
    }
