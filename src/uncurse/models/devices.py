"""Where a network runs."""

from __future__ import annotations

import torch

KINDS = ("cpu", "cuda", "mps")


def device_of(name: str) -> torch.device:
    """A device by name, such as `cpu` or `cuda:1`; one that cannot be used here is an error."""
    try:
        device = torch.device(name)
        if device.type not in KINDS:
            raise RuntimeError(f"it is none of {', '.join(KINDS)}")
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from error
    return device
