"""Hugging Face files of the families here: `config.json` and the weights, in safetensors or as a PyTorch file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES
from uncurse.models.transformer.families.family import Family
from uncurse.models.transformer.families.known import FAMILIES
from uncurse.models.transformer.families.marian import MARIAN
from uncurse.models.transformer.layers import ACTIVATIONS
from uncurse.models.transformer.positions import MAX_POSITIONS
from uncurse.models.transformer.pytorch_file import read_state_dict
from uncurse.models.transformer.quantization import Weight
from uncurse.models.transformer.weights import (
    EMBEDDINGS,
    OUTPUT_BIAS,
    SIDES,
    TransformerWeights,
    embedding_norm,
    final_norm,
)
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
INTEGERS: Final = tuple(f"{side}_{what}" for side in SIDES for what in ("layers", "attention_heads"))
MARIAN_INTEGERS: Final = tuple(f"{token}_token_id" for token in ("decoder_start", "pad", "eos"))


def read_config(folder: Path) -> dict[str, Any]:
    """The content of `config.json`."""
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or not isinstance(config.get("model_type", ""), str):
        raise UncurseError(f"{folder / CONFIG} does not describe a model")
    return config


def family_of(config: dict[str, Any]) -> Family | None:
    """The family of a model; None if it is none of those here."""
    return next((family for family in FAMILIES if family.model_type == config.get("model_type")), None)


def is_supported(folder: Path) -> bool:
    """Whether this runtime can run a model; others run in transformers."""
    config = read_config(folder)
    family = family_of(config)
    in_one_file = (folder / TENSORS).exists() or not (folder / SHARD_INDEX).exists()
    return family is not None and in_one_file and _unsupported(family, config) is None


def _unsupported(family: Family, config: dict[str, Any]) -> str | None:
    """What this runtime does not support of a model; None if it supports everything."""
    for name, expected in family.required.items():
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
    """Read the weights of a Marian model; `<pad>` is never output."""
    config = read_config(folder)
    _check_integers(folder, config, MARIAN_INTEGERS)
    weights = read_transformer(folder, MARIAN, config["eos_token_id"])
    start, padding = config["decoder_start_token_id"], config["pad_token_id"]
    embeddings, bias = weights.matrices[EMBEDDINGS].values, weights.vectors[OUTPUT_BIAS]
    if not (0 <= start < len(embeddings) and 0 <= padding < len(bias)):
        raise UncurseError(
            f"{folder / CONFIG}: decoder_start_token_id = {start} or pad_token_id = {padding}"
            " is outside the vocabulary"
        )
    if embeddings[start].any():
        raise UncurseError(f"{weights_file(folder)}: the embedding of the start token is not zero")
    return weights.without_output([padding])


def read_transformer(folder: Path, family: Family, eos: int) -> TransformerWeights:
    """Read the weights of a folder; an error names what this runtime does not support."""
    config = read_config(folder)
    if (unsupported := _unsupported(family, config)) is not None:
        raise UncurseError(f"{folder / CONFIG}: {unsupported}")
    _check_integers(folder, config, INTEGERS)
    path = weights_file(folder)
    tensors = _read_tensors(path)
    try:
        return _weights(config, tensors, family, eos)
    except (SafetensorError, KeyError, IndexError, RuntimeError, ValueError) as error:
        raise UncurseError(f"{path} does not fit {folder / CONFIG}: {error}") from error


def _check_integers(folder: Path, config: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if type(config.get(name)) is not int:
            raise UncurseError(f"{folder / CONFIG}: {name} is {config.get(name)!r}, not an integer")


def weights_file(folder: Path) -> Path:
    """The weights of a folder: safetensors, or else a PyTorch file."""
    for name in (TENSORS, PICKLED):
        if (folder / name).exists():
            return folder / name
    raise UncurseError(f"{folder} has no weights: neither {TENSORS} nor {PICKLED}")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if path.name == PICKLED:
        return read_state_dict(path)
    content = read_regular_file(path, MAX_WEIGHT_BYTES)
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise UncurseError(f"{path} is not a safetensors file: {error}") from error


def _weights(config: dict[str, Any], tensors: dict[str, Tensor], family: Family, eos: int) -> TransformerWeights:
    architecture = family.architecture_of(config)

    def float32(name: str) -> Tensor:
        if not tensors[name].is_floating_point():
            raise UncurseError(f"{name!r} is of type {tensors[name].dtype}")
        return tensors[name].float()

    matrices, vectors = {}, {}

    def norm(ours: str, theirs: str) -> None:
        vectors[f"{ours}/gamma"] = float32(f"{theirs}.weight")
        vectors[f"{ours}/beta"] = float32(f"{theirs}.bias")

    for side in SIDES:
        if architecture.embedding_norm:
            norm(embedding_norm(side), f"model.{side}.layernorm_embedding")
        if architecture.pre_norm:
            norm(final_norm(side), f"model.{side}.layer_norm")
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
                norm(f"{ours}/{part}", f"{theirs}.{name}")
    embeddings = float32("model.shared.weight")
    if embeddings.ndim != 2:
        raise UncurseError(
            f"'model.shared.weight' has the shape {tuple(embeddings.shape)}; expected two dimensions"
        )
    bias = float32("final_logits_bias")[0] if family.output_bias else torch.zeros(len(embeddings))
    if not bias.isfinite().all():
        raise UncurseError("'final_logits_bias' has a value that is not finite")
    positions = family.positions(config, tensors, embeddings.shape[1])
    return TransformerWeights(
        matrices={**matrices, EMBEDDINGS: Weight(embeddings)},
        vectors={
            **vectors,
            **{f"{side}/position_encodings": table for side, table in positions.items()},
            OUTPUT_BIAS: bias,
        },
        heads=config["decoder_attention_heads"],
        activation=config["activation_function"],
        eos=eos,
        architecture=architecture,
    )


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
        for side in SIDES
        for what, value in {
            "layers": weights.layers(side),
            "attention_heads": weights.heads,
            "ffn_dim": len(weights.matrices[f"{side}/layer_0/ffn/linear_0"].values),
        }.items()
    }
    return {
        "model_type": MARIAN.model_type,
        **MARIAN.required,
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
