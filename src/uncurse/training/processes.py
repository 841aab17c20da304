"""Several processes that train as one: each takes its share of every batch, and the first alone writes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from typing import Final, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from uncurse.models.devices import device_of

TIMEOUT: Final = timedelta(minutes=30)  # what the others wait for longest is the first one learning subwords
ASKING_SECONDS: Final = 5.0
BACKENDS: Final = {"cpu": "gloo", "cuda": "nccl"}


class LostProcessError(ConnectionError):
    """Another process of the run has ended or is silent."""


@final
@dataclass(frozen=True)
class Processes:
    """Those that train together, seen from one of them; without a launcher it is alone."""

    device: torch.device  # where this one computes
    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that reads and writes the folder of the run."""
        return self.rank == 0

    def share(self, chosen: Sequence[int]) -> Sequence[int]:
        """What this process does of a batch. Pairs come by length, so every share has long ones and short ones."""
        return chosen[self.rank :: self.count]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one type by their sums over all processes.

        They travel as one array, so that each number has the same place in it at every step and its terms are
        added in the same order. (DistributedDataParallel regroups gradients after its first step: a resumed run of
        three processes or more would round differently.)
        """
        if self.count == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors]).to(self.device)
        with _together():
            dist.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def from_first(self, content: bytes) -> bytes:
        """What the first process gives, in all of them; what the others give does not matter."""
        if self.count == 1:
            return content
        size = torch.tensor([len(content)], device=self.device)
        with _together():
            dist.broadcast(size, 0)
            given = torch.empty(int(size), dtype=torch.uint8, device=self.device)
            if self.first:
                given.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            dist.broadcast(given, 0)
        return given.cpu().numpy().tobytes()

    def wait(self) -> None:
        """Until all have come here."""
        self.add_up([torch.zeros(1)])


ALONE: Final = Processes(torch.device("cpu"))


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Meet the other processes, if a launcher such as torchrun has started several.

    An error ends them all: the first that has one raises it, and the others leave without a word.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes(device_of(device))
        return
    store = _meeting_place()
    try:
        place = _place(device, count)
        rank = int(os.environ["RANK"])
        _connect(place, rank, count, store)
        yield Processes(place, rank, count)
    except Exception:
        if not _speaks(store):
            raise SystemExit(2) from None
        raise
    dist.destroy_process_group()


def _meeting_place() -> Store:
    try:
        store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
    except RuntimeError as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise LostProcessError(f"there is no way to the other processes by {where}: {_reason(error)}") from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun may keep its store when it starts again
    return PrefixStore(f"uncurse-{attempt}", store)


def _place(device: str, count: int) -> torch.device:
    """Each process of a machine has a GPU of its own."""
    kind = device.partition(":")[0]
    if device == "cuda":
        return device_of(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    if kind == "cuda":
        raise ValueError(f"device {device!r} is one GPU, and there are {count} processes: write cuda for one each")
    if kind == "mps":
        raise ValueError(f"device {device!r} cannot be used by {count} processes: write cpu or cuda")
    return device_of(device)


def _connect(place: torch.device, rank: int, count: int, store: Store) -> None:
    own = place if place.type == "cuda" else None
    try:
        dist.init_process_group(
            BACKENDS[place.type], timeout=TIMEOUT, world_size=count, rank=rank, store=store, device_id=own
        )
    except RuntimeError as error:
        raise LostProcessError(f"{count} processes did not find each other: {_reason(error)}") from error


def _speaks(store: Store) -> bool:
    """Whether this process is the first that failed; who cannot find out says what it knows."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a launcher ends all when one has: the line must be out by then
    order: list[int] = []

    def ask() -> None:
        with suppress(RuntimeError):
            order.append(store.add("failed", 1))

    asking = Thread(target=ask, daemon=True)  # a store whose keeper is frozen never answers
    asking.start()
    asking.join(ASKING_SECONDS)
    return order in ([], [1])


def _reason(error: RuntimeError) -> str:
    """What a backend says, without the frames of its stack."""
    return str(error).partition("\n")[0]


@contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # whatever a backend calls a connection that is gone or a time that is up
        raise LostProcessError(
            "another process of this run has ended or is silent; the last checkpoint is whole,"
            " and the same command goes on from it"
        ) from error
