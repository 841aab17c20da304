"""Checkpoints: tensors and a few numbers in one safetensors file, which is there whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from uncurse.files import write_whole


@final
@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and the facts that go with them."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint under a temporary name and rename it."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    write_whole(path, save(tensors, metadata={"facts": json.dumps(checkpoint.facts)}))


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    return parse_checkpoint(path.read_bytes(), path)


def parse_checkpoint(content: bytes, path: Path) -> Checkpoint:
    """The checkpoint that a file holds."""
    try:
        tensors = load(content)  # which has checked the header: its size, and the JSON it is
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return Checkpoint(tensors, json.loads(header["__metadata__"]["facts"]))
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a whole checkpoint: {error}") from error


def adam_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The state of AdamW by parameter name."""
    state = optimizer.state_dict()["state"]
    return {
        f"adam.{key}.{name}": torch.as_tensor(value)
        for index, name in enumerate(names)
        for key, value in state.get(index, {}).items()
    }


def restore_adam(optimizer: torch.optim.Optimizer, names: list[str], tensors: dict[str, Tensor]) -> None:
    """Give AdamW the state it had."""
    state = {
        index: {key: tensors[f"adam.{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")}
        for index, name in enumerate(names)
        if f"adam.step.{name}" in tensors
    }
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
