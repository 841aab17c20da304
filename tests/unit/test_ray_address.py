"""The address of a Ray cluster is tried before Ray is."""

from __future__ import annotations

import sys

import pytest

from uncurse import UncurseError
from uncurse.executors.ray_cluster import executor_of


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "[::1]:9", "127.0.0.1:99999"])
def test_an_unreachable_cluster_is_one_error_and_ray_says_nothing(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    executor = executor_of(f"ray:{address}", workers=1, threads=1, device="cpu")
    before = "ray" in sys.modules
    with pytest.raises(UncurseError, match="no Ray cluster answers at"):
        list(executor.map(lambda: None, [("a", lambda ready: ready)]))
    assert ("ray" in sys.modules) == before
    assert capfd.readouterr() == ("", "")
