"""Data-parallel training: every process takes its share of each batch, and rank 0 alone writes files."""

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

from uncurse.errors import UncurseError
from uncurse.models.devices import device_of

TIMEOUT: Final = timedelta(minutes=30)  # the longest wait is for rank 0 to train the tokenizers
STORE_SECONDS: Final = 5.0  # how long a failing process waits for the store to answer
BACKENDS: Final = {"cpu": "gloo", "cuda": "nccl"}


class LostProcessError(ConnectionError):
    """Another process of the run has ended or does not answer."""


@final
@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, seen from one of them. Without a launcher there is one."""

    device: torch.device  # of this process
    rank: int = 0
    size: int = 1

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process reads and writes the run folder."""
        return self.rank == 0

    def share(self, chosen: Sequence[int]) -> Sequence[int]:
        """This process's share of a batch; as batches are sorted by length, all shares have similar lengths."""
        return chosen[self.rank :: self.size]

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors of one dtype by their sums over all processes.

        They are sent as one flat array: each number then has the same place at every step, and its terms are
        added in the same order. DistributedDataParallel regroups gradients after its first step, so that a resumed
        run of three or more processes would round differently.
        """
        if self.size == 1:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors]).to(self.device)
        with _collective():
            dist.all_reduce(flat)
        for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def broadcast_from_rank0(self, content: bytes) -> bytes:
        """Rank 0's bytes, in every process; what the others pass is ignored."""
        if self.size == 1:
            return content
        length = torch.tensor([len(content)], device=self.device)
        with _collective():
            dist.broadcast(length, 0)
            received = torch.empty(int(length), dtype=torch.uint8, device=self.device)
            if self.is_rank_zero:
                received.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            dist.broadcast(received, 0)
        return received.cpu().numpy().tobytes()

    def require_same(self, own: str, what: str) -> None:
        """Refuse a process that differs from rank 0, where the result would be a worse model."""
        if self.broadcast_from_rank0(own.encode()) != own.encode():
            raise UncurseError(f"process {self.rank} and process 0 must have the same {what}")

    def barrier(self) -> None:
        """Wait until every process has come here."""
        self.all_reduce_sum([torch.zeros(1)])


SINGLE_PROCESS: Final = ProcessGroup(torch.device("cpu"))


@contextmanager
def init_distributed(device: str) -> Iterator[ProcessGroup]:
    """Join the process group, if a launcher such as torchrun has started several processes.

    An error ends them all: the first process that fails raises its error, and the others exit without a message.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ProcessGroup(device_of(device))
        return
    store = _connect_store()
    try:
        own = _device_of_process(device, size)
        rank = int(os.environ["RANK"])
        _init_process_group(own, rank, size, store)
        yield ProcessGroup(own, rank, size)
    except Exception:
        if not _failed_first(store):
            raise SystemExit(2) from None
        raise
    dist.destroy_process_group()


def _connect_store() -> Store:
    try:
        store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
    except RuntimeError as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise LostProcessError(f"cannot reach the other processes at {address}: {_first_line(error)}") from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun may keep its store across restarts
    return PrefixStore(f"uncurse-{attempt}", store)


def _device_of_process(device: str, size: int) -> torch.device:
    """Each process of a machine has a GPU of its own."""
    kind = device.partition(":")[0]
    if device == "cuda":
        return device_of(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
    if kind == "cuda":
        raise UncurseError(
            f"device {device!r} is one GPU, but there are {size} processes: write cuda for one each"
        )
    if kind == "mps":
        raise UncurseError(f"device {device!r} cannot be shared by {size} processes: write cpu or cuda")
    return device_of(device)


def _init_process_group(device: torch.device, rank: int, size: int, store: Store) -> None:
    device_id = device if device.type == "cuda" else None
    try:
        dist.init_process_group(
            BACKENDS[device.type], timeout=TIMEOUT, world_size=size, rank=rank, store=store, device_id=device_id
        )
    except RuntimeError as error:
        raise LostProcessError(f"the {size} processes did not find each other: {_first_line(error)}") from error


def _failed_first(store: Store) -> bool:
    """Whether this process is the first to fail; also true if the store does not answer."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a launcher ends all once one has ended; print the error before
    order: list[int] = []

    def ask() -> None:
        with suppress(RuntimeError):
            order.append(store.add("failed", 1))

    asking = Thread(target=ask, daemon=True)  # a store whose process is frozen never answers
    asking.start()
    asking.join(STORE_SECONDS)
    return order in ([], [1])


def _first_line(error: RuntimeError) -> str:
    """A backend's message without its stack trace."""
    return str(error).partition("\n")[0]


@contextmanager
def _collective() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # backends have no type of their own for a lost connection or a timeout
        raise LostProcessError(
            "another process of this run has ended or does not answer; the last checkpoint is intact,"
            " and the same command resumes from it"
        ) from error
