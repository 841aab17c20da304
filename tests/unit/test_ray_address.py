"""The address of a Ray cluster and the number of workers are checked before Ray is asked."""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace

import pytest

from uncurse import UncurseError
from uncurse.executors.ray_cluster import executor_of

ADDRESSES = ["127.0.0.1:9", "ray://127.0.0.1:9", "[::1]:9", "127.0.0.1:99999"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_unreachable_cluster_is_one_error_and_ray_says_nothing(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    executor = executor_of(f"ray:{address}", workers=1, threads=1, device="cpu")
    before = "ray" in sys.modules
    with pytest.raises(UncurseError, match="no Ray cluster answers at"):
        list(executor.map(lambda: None, [("a", lambda ready: ready)]))
    assert ("ray" in sys.modules) == before
    assert capfd.readouterr() == ("", "")


def test_what_ray_says_of_a_port_where_something_else_listens_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def init(*arguments: object, **options: object) -> None:
        os.write(2, b"W gcs_client.cc:210: Failed to get cluster ID\n")
        raise ConnectionError("there is no cluster")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with socket.create_server(("127.0.0.1", 0)) as other:
        executor = executor_of(f"ray:127.0.0.1:{other.getsockname()[1]}", workers=1, threads=1, device="cpu")
        with pytest.raises(UncurseError, match=r"no Ray cluster answers at .*: there is no cluster"):
            list(executor.map(lambda: None, [("a", lambda ready: ready)]))
    assert capfd.readouterr() == ("", "")
    os.write(2, b"there")
    assert capfd.readouterr().err == "there"


@pytest.mark.parametrize("workers", [-1, 1025, 99_999_999])
def test_more_workers_than_ray_can_start_are_refused(workers: int) -> None:
    with pytest.raises(UncurseError, match=rf"workers = {workers} is not allowed: it must be in 0 … 1024"):
        executor_of("ray", workers=workers, threads=1, device="cpu")
