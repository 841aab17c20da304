"""The software and hardware that a run depends on: with other ones the same steps round differently."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import sentencepiece
import torch

from uncurse.training.precision import Precision
from uncurse.version import VERSION


def current_environment(device: torch.device, precision: Precision) -> dict[str, str]:
    """Versions, device and precision of this process."""
    return {
        "uncurse": VERSION,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "sentencepiece": sentencepiece.__version__,
        "device": device.type,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "precision": precision.value,
    }


def environment_changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed, for a message; empty if nothing has."""
    changed = (name for name in now if before.get(name) != now[name])
    return ", ".join(f"{name} {now[name]} (was {before.get(name, 'unknown')})" for name in changed)
