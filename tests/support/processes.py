"""Training processes, started as a launcher does, so that tests can watch them and kill them.

They are forked from a server that has imported everything, so that they spend most of their time training.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from uncurse.cli import main
from uncurse.training.checkpoint import load_checkpoint

SECONDS = 300.0  # no process of a test takes longer
Work = Callable[[], None]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["uncurse.training.loop", "uncurse.training.distributed"])


@dataclass(frozen=True)
class StartedProcess:
    """A process, and the files of its standard output and standard error."""

    process: ForkServerProcess
    out: Path
    error: Path

    def wait(self) -> int:
        """Its exit status, negative if a signal killed it; it must end by itself."""
        self.process.join(SECONDS)
        assert self.process.exitcode is not None, f"a process did not end within {SECONDS:.0f} s"
        return self.process.exitcode


@dataclass(frozen=True)
class Command:
    """`uncurse` with arguments."""

    arguments: tuple[str, ...]

    def __call__(self) -> None:
        main(list(self.arguments))


def training(recipe: Path, out: Path, data: Path | None = None) -> Command:
    data = data or recipe.parent
    return Command(("train", str(recipe), "--data", str(data), "--out", str(out), "--threads", "1"))


@contextmanager
def started(folder: Path, work: Sequence[Work], timeout: float = 30.0) -> Iterator[list[StartedProcess]]:
    """One process for each piece of work; their output goes to files in a folder. None outlives the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        processes = []
        for rank, each in enumerate(work):
            out, error = folder / f"out.{rank}", folder / f"error.{rank}"
            environment = _torchrun_environment(rank, len(work), store.port)
            process = _context.Process(target=_run, args=(each, environment, out, error, timeout))
            process.start()
            stack.callback(_end, process)
            processes.append(StartedProcess(process, out, error))
        yield processes


def run(folder: Path, work: Sequence[Work], timeout: float = 30.0) -> list[int]:
    """Run pieces of work side by side to their end: the exit status of each."""
    with started(folder, work, timeout) as processes:
        return [each.wait() for each in processes]


def wait_for_step(folder: Path, step: int) -> None:
    """Wait until a run has saved a step."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        path = folder / "last.safetensors"
        if path.exists() and load_checkpoint(path).metadata["step"] >= step:
            return
        time.sleep(0.002)
    raise AssertionError(f"step {step} was not reached")


def _torchrun_environment(rank: int, count: int, port: int) -> dict[str, str]:
    """The variables that torchrun sets; like torchrun's, the store outlives the processes."""
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    return {**store, "WORLD_SIZE": str(count), "RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}


def _run(work: Work, environment: Mapping[str, str], out: Path, error: Path, timeout: float) -> None:
    from uncurse.training import distributed

    vars(distributed)["TIMEOUT"] = timedelta(seconds=timeout)
    os.environ.update(environment)
    for stream, path in ((sys.stdout, out), (sys.stderr, error)):
        stream.flush()
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), stream.fileno())
    work()


def _end(process: ForkServerProcess) -> None:
    process.kill()
    process.join()
