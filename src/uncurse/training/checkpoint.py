"""Checkpoints: tensors and metadata in one safetensors file, written atomically."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.storage.atomic import atomic_write, read_regular_file
from uncurse.storage.strict_json import in_order, parse_json

MAX_BYTES: Final = 1 << 37  # of a checkpoint: weights and the two moments of Adam


@final
@dataclass(frozen=True)
class Checkpoint:
    """Named tensors, and metadata that JSON can hold."""

    tensors: dict[str, Tensor]
    metadata: dict[str, Any]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint under a temporary name and rename it."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    metadata = json.dumps(checkpoint.metadata)
    header = {"metadata": metadata, "sha256": _checksum(tensors, metadata)}
    atomic_write(path, in_order(save(tensors, metadata=header)))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; a damaged one is an error."""
    return parse_checkpoint(read_regular_file(path, MAX_BYTES), path)


def parse_checkpoint(content: bytes, path: Path) -> Checkpoint:
    """The checkpoint in the bytes of a file; `path` is for the error message."""
    try:
        tensors = load(content)  # checks that the header is JSON of the size it should have
        header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        metadata = parse_json(header["metadata"])
        if not isinstance(metadata, dict):
            raise UncurseError("its metadata is not a JSON object")
        if header["sha256"] != _checksum(tensors, header["metadata"]):
            raise UncurseError("it is damaged: its checksum does not match its content")
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise UncurseError(f"{path} is not a whole checkpoint: {error}") from error
    return Checkpoint(tensors, metadata)


def _checksum(tensors: dict[str, Tensor], metadata: str) -> str:
    digest = sha256(metadata.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def adam_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The state of AdamW by parameter name."""
    state = optimizer.state_dict()["state"]
    return {
        f"adam.{key}.{name}": torch.as_tensor(value)
        for index, name in enumerate(names)
        for key, value in state.get(index, {}).items()
    }


def restore_adam(optimizer: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor]) -> None:
    """Load the state of AdamW, which must match the shapes of the parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {}
    for index, (name, parameter) in enumerate(zip(names, parameters, strict=True)):
        if f"adam.step.{name}" not in tensors:
            continue
        state[index] = {key: tensors.get(f"adam.{key}.{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
        shapes = [None if each is None else each.shape for each in state[index].values()]
        if shapes != [torch.Size(()), parameter.shape, parameter.shape]:
            raise UncurseError(f"the optimizer state of {name!r} does not match its shape")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
