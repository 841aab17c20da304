"""The device that a network runs on: CPU, CUDA or MPS."""

from __future__ import annotations

from typing import Final

import torch

from uncurse.errors import UncurseError

DEVICE_TYPES: Final = ("cpu", "cuda", "mps")


def device_of(name: str) -> torch.device:
    """The device of that name, such as `cpu` or `cuda:1`; an error if it cannot be used on this machine."""
    if name.partition(":")[0] not in DEVICE_TYPES:
        raise UncurseError(f"device = {name!r} is not allowed: it must be cpu, cuda, mps, or a GPU such as cuda:1")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UncurseError(f"device {name!r} cannot be used here: {reason}") from error
    return device
