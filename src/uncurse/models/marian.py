"""Marian models as Hugging Face keeps them: `config.json`, `model.safetensors` and subword models in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from uncurse.files import write_whole
from uncurse.jsonfile import read_json
from uncurse.models.products import Matrix
from uncurse.models.transformer import ACTIVATIONS
from uncurse.models.transformer_weights import TransformerWeights

CONFIG: Final = "config.json"
TENSORS: Final = "model.safetensors"
SEVERAL: Final = "model.safetensors.index.json"  # says which of several files each tensor is in
PLACES: Final = 2048  # for which positions are worked out; they have a formula and no weights
PARTS: Final = {  # ours, and the tensors of theirs that lie one above the other in it
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
REQUIRED: Final = {  # what this runtime does; a model that wants something else is refused
    "model_type": "marian",
    "scale_embedding": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
WHOLE: Final = (
    *(f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "attention_heads")),
    *(f"{token}_token_id" for token in ("decoder_start", "pad", "eos")),
)


def read_config(folder: Path) -> dict[str, Any]:
    """What a folder says of its model."""
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict):
        raise ValueError(f"{folder / CONFIG} does not describe a model")
    return config


def can_be_run(folder: Path) -> bool:
    """Whether a model does what this runtime does; for others there is the library it comes from."""
    config = read_config(folder)
    in_one_file = (folder / TENSORS).exists() or not (folder / SEVERAL).exists()
    return config.get("model_type") == "marian" and in_one_file and _unlike(config) is None


def _unlike(config: dict[str, Any]) -> str | None:
    """What of a model this runtime does not do."""
    for name, expected in REQUIRED.items():
        found = config.get(name, expected)
        if found != expected:
            return f"{name} is {found!r} and not {expected!r}"
    heads = [config.get(f"{side}_attention_heads") for side in ("encoder", "decoder")]
    if heads[0] != heads[1]:
        return f"{heads[0]} heads of the encoder and {heads[1]} of the decoder cannot be run"
    if (activation := config.get("activation_function")) not in tuple(ACTIVATIONS):
        return f"activation {activation!r} cannot be run"
    return None


def read_marian(folder: Path) -> TransformerWeights:
    """The weights of a folder; a model that computes something else is refused by name."""
    config = read_config(folder)
    if (unlike := _unlike(config)) is not None:
        raise ValueError(f"{folder / CONFIG}: {unlike}")
    for name in WHOLE:
        if type(config.get(name)) is not int:
            raise ValueError(f"{folder / CONFIG}: {name} is {config.get(name)!r} and not a whole number")
    try:
        tensors = load_tensors((folder / TENSORS).read_bytes())
        return _weights(config, {name: _floats(name, tensor) for name, tensor in tensors.items()})
    except FileNotFoundError:
        raise ValueError(f"{folder / TENSORS} is missing") from None
    except (SafetensorError, KeyError, IndexError, RuntimeError, ValueError) as error:
        raise ValueError(f"{folder / TENSORS} does not fit {folder / CONFIG}: {error}") from error


def _floats(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        raise ValueError(f"{name!r} has numbers of type {tensor.dtype}")
    return tensor.float()


def _weights(config: dict[str, Any], tensors: dict[str, Tensor]) -> TransformerWeights:
    matrices, vectors = {}, {}
    for side in ("encoder", "decoder"):
        for index in range(config[f"{side}_layers"]):
            ours, theirs = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
            for part, names in PARTS.items():
                if side == "encoder" and part.startswith("attention"):
                    continue
                weight = torch.cat([tensors[f"{theirs}.{name}.weight"] for name in names])
                matrices[f"{ours}/{part}"] = Matrix(weight)
                vectors[f"{ours}/{part}/bias"] = torch.cat([tensors[f"{theirs}.{name}.bias"] for name in names])
            for part, name in NORMS.items():
                if side == "encoder" and part.startswith("attention"):
                    continue
                vectors[f"{ours}/{part}/gamma"] = tensors[f"{theirs}.{name}.weight"]
                vectors[f"{ours}/{part}/beta"] = tensors[f"{theirs}.{name}.bias"]
    embeddings, bias = tensors["model.shared.weight"], tensors["final_logits_bias"][0].clone()
    start, padding = config["decoder_start_token_id"], config["pad_token_id"]
    if not (0 <= start < len(embeddings) and 0 <= padding < len(bias)) or embeddings.ndim != 2:
        raise ValueError(f"token {start}, at which a target starts, or {padding}, padding, has no embedding")
    if embeddings[start].any():
        raise ValueError("the embedding of the start token is not zero")
    if not bias.isfinite().all():
        raise ValueError("'final_logits_bias' has a number that is not finite")
    bias[padding] = -torch.inf  # padding is no output
    matrices["decoder/embeddings"] = Matrix(embeddings)
    vectors["decoder/projection/bias"] = bias
    vectors["decoder/position_encodings"] = sinusoids(PLACES, embeddings.shape[1])
    heads, activation = config["decoder_attention_heads"], config["activation_function"]
    return TransformerWeights(matrices, vectors, heads, activation, config["eos_token_id"])


def sinusoids(places: int, size: int) -> Tensor:
    """Positions as Marian has them: first all sines, then all cosines, [places, size]."""
    rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(places, dtype=torch.float64)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()


def save_marian(folder: Path, weights: TransformerWeights) -> None:
    """Write weights as a folder that Hugging Face reads, in float32; a token of padding comes last."""
    tensors: dict[str, Tensor] = {}
    for name, matrix in weights.matrices.items():
        side, _, rest = name.partition("/layer_")
        if rest:
            index, _, part = rest.partition("/")
            names = PARTS[part]
            for theirs, weight, bias in zip(
                names,
                matrix.floats.chunk(len(names)),
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
    embeddings = weights.matrices["decoder/embeddings"].floats
    size = embeddings.shape[1]
    tensors["model.shared.weight"] = torch.cat((embeddings, torch.zeros(1, size)))
    tensors["final_logits_bias"] = torch.cat((weights.vectors["decoder/projection/bias"], torch.zeros(1)))[None]
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / TENSORS, save_tensors(tensors, metadata={"format": "pt"}))
    vocabulary = len(embeddings) + 1
    sides = {
        f"{side}_{what}": value
        for side in ("encoder", "decoder")
        for what, value in {
            "layers": weights.layers(side),
            "attention_heads": weights.heads,
            "ffn_dim": len(weights.matrices[f"{side}/layer_0/ffn/linear_0"].values),
        }.items()
    }
    config = {
        **REQUIRED,
        **sides,
        "architectures": ["MarianMTModel"],
        "d_model": size,
        "vocab_size": vocabulary,
        "decoder_vocab_size": vocabulary,
        "activation_function": weights.activation,
        "max_position_embeddings": PLACES,
        "eos_token_id": weights.end,
        "pad_token_id": vocabulary - 1,
        "decoder_start_token_id": vocabulary - 1,
        "bos_token_id": None,
        "static_position_embeddings": True,
        "dropout": 0.0,
    }
    write_whole(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
