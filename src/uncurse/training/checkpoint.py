"""Checkpoints: tensors and a few numbers in one safetensors file, which is there whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from uncurse.files import write_whole
from uncurse.jsonfile import in_order, parse_json


@final
@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and the facts that go with them."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint under a temporary name and rename it."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    facts = json.dumps(checkpoint.facts)
    said = {"facts": facts, "sha256": _checksum(tensors, facts)}
    write_whole(path, in_order(save(tensors, metadata=said)))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; one that is not what was written is an error."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    return parse_checkpoint(path.read_bytes(), path)


def parse_checkpoint(content: bytes, path: Path) -> Checkpoint:
    """The checkpoint that a file holds."""
    try:
        tensors = load(content)  # which has checked the header: its size, and the JSON it is
        said = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
        facts = parse_json(said["facts"])
        if not isinstance(facts, dict):
            raise ValueError("its facts are no table")
        if said["sha256"] != _checksum(tensors, said["facts"]):
            raise ValueError("it is damaged, its checksum is not that of what it holds")
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} is not a whole checkpoint: {error}") from error
    return Checkpoint(tensors, facts)


def _checksum(tensors: dict[str, Tensor], facts: str) -> str:
    digest = sha256(facts.encode())
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
    """Give AdamW the state it had, which must fit its parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {}
    for index, (name, parameter) in enumerate(zip(names, parameters, strict=True)):
        if f"adam.step.{name}" not in tensors:
            continue
        state[index] = {key: tensors.get(f"adam.{key}.{name}") for key in ("step", "exp_avg", "exp_avg_sq")}
        shapes = [None if each is None else each.shape for each in state[index].values()]
        if shapes != [torch.Size(()), parameter.shape, parameter.shape]:
            raise ValueError(f"the state of the optimizer does not fit {name!r}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
