"""Repeats tests that kill processes at random moments: once, or as often as `make soak` says."""

from __future__ import annotations

import os
from random import Random

import pytest

ROUNDS = int(os.environ.get("UNCURSE_ROUNDS", "1"))
SEED = int(os.environ["UNCURSE_SEED"])  # drawn in conftest.py, before pytest-xdist starts its workers
each_round = pytest.mark.parametrize(
    "chance", [Random(SEED + number) for number in range(ROUNDS)], ids=[f"round {n}" for n in range(ROUNDS)]
)
