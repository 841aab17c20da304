"""What a network of transformers tells about itself: positions, vocabulary, attention, a fingerprint."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Literal

from transformers import PreTrainedModel

from uncurse.errors import UncurseError
from uncurse.models.tensors import to_float64

Side = Literal["encoder", "decoder"]


def max_positions(network: PreTrainedModel, side: Side) -> int | None:
    """The most tokens that the encoder or the decoder can be fed; None with relative positions."""
    # An EncoderDecoderModel has a config for each side, and a model of text and images one for text.
    config = getattr(network.config, side, getattr(network.config, "text_config", network.config))
    for name in (f"max_{side}_position_embeddings", "max_position_embeddings"):
        most: int | None = getattr(config, name, None)
        if most is not None and (type(most) is not int or most < 1):
            raise UncurseError(f"{name} = {most!r} is not allowed: it must be a whole number of 1 or more")
        if most is not None:
            # At the last position, dynamic scaling keeps what the longest text before has needed.
            return most - bool(_ropes(network, "dynamic"))
    return None


def rescaled_positions(network: PreTrainedModel) -> int | None:
    """The most tokens of a text before longrope scales all of its positions anew; None without longrope."""
    found = [int(each["original_max_position_embeddings"]) for each in _ropes(network, "longrope")]
    return min(found, default=None)


def check_scale(network: PreTrainedModel, shortest: int, longest: int) -> None:
    """Raise an `UncurseError` if a KV cache would hold keys of two scales.

    The longest text of a forward decides for all of them, and keys keep the scale of their time.
    """
    most = rescaled_positions(network)
    if most is not None and shortest <= most < longest:
        raise UncurseError(
            f"{type(network).__name__} scales positions anew in texts of more than {most} tokens (longrope), and a"
            f" prompt of {shortest} cannot be searched together with a text of {longest}"
        )


def _ropes(network: PreTrainedModel, kind: str) -> list[dict[str, Any]]:
    """The parameters of rotary positions of a kind, which may differ by layer."""
    config: Any = network.config.get_text_config(decoder=True)
    given = getattr(config, "rope_parameters", None) or {}
    by_layer = all(isinstance(each, dict) for each in given.values())
    return [each for each in (given.values() if by_layer else (given,)) if each.get("rope_type") == kind]


def check_positions(network: PreTrainedModel, side: Side, length: int) -> None:
    """Raise an `UncurseError` if a text has more tokens than the model has positions."""
    most, what = max_positions(network, side), "a source" if side == "encoder" else "an output"
    if most is not None and length > most:
        raise UncurseError(
            f"{what} of {length} tokens is too long: this model has {most} positions; set a max_length"
        )


def vocab_size_of(network: PreTrainedModel) -> int:
    """The number of target tokens, which is the number of logits."""
    output_embeddings: Any = network.get_output_embeddings  # transformers declares no type
    return int(output_embeddings().weight.shape[0])


def shows_attention(network: PreTrainedModel) -> bool:
    """Whether the network can return its attention weights: only the eager implementation does."""
    return bool(network.config._attn_implementation == "eager")


def fingerprint_of(network: PreTrainedModel, *facts: str) -> str:
    """Identify a network by its config, some 64 numbers of each tensor, and whatever else decides its output."""
    known = network.config.to_dict().items()
    config = {name: value for name, value in known if name not in ("transformers_version", "_name_or_path")}
    digest = sha256("\n".join((json.dumps(config, sort_keys=True, default=str), *facts)).encode())
    for name, tensor in sorted(network.state_dict().items()):
        sample = tensor.flatten()[:: max(1, tensor.numel() // 64)]
        digest.update(f"{name} {tuple(tensor.shape)}".encode() + to_float64(sample).tobytes())
    return digest.hexdigest()[:16]
