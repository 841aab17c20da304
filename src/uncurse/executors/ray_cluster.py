"""The executor on Ray: as many workers as the cluster has room for, each replaced when it dies."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, final

from uncurse.errors import UncurseError
from uncurse.executors.local import Executor, JobFailure, K, R, W
from uncurse.plugins import load_plugins, loaded_plugins

MAX_ATTEMPTS: Final = 3  # at a job before it is given up
MAX_WORKERS: Final = 1024  # Ray never starts a cluster that is told of a hundred million CPUs
CONNECT_TIMEOUT: Final = 5.0  # seconds


@final
class _RayWorker:
    """Sets up once what its jobs work with, and knows the scores and rules that the driver knows."""

    def __init__(self, setup: Callable[[], Any], threads: int, plugins: tuple[str, ...]) -> None:
        import torch

        torch.set_num_threads(threads)
        load_plugins(plugins)
        self._ready = setup()

    def run(self, job: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """The result of a job."""
        return job(self._ready)


@final
@dataclass(frozen=True)
class RayExecutor(Executor):
    """Workers on Ray; without an address a cluster is started here, and shut down after the work."""

    address: str | None = None
    workers: int = 0  # 0: as many as there is room for
    threads: int = 1  # of each worker
    gpu: bool = False  # a worker needs one

    def __post_init__(self) -> None:
        if not 0 <= self.workers <= MAX_WORKERS:
            raise UncurseError(f"workers = {self.workers} is not allowed: it must be in 0 … {MAX_WORKERS}")

    def map(
        self, setup: Callable[[], W], jobs: Iterable[tuple[K, Callable[[W], R]]]
    ) -> Iterator[tuple[K, R | JobFailure]]:
        """The results as they come.

        A worker has one job at a time, so that only this one is lost when it dies: it is done again elsewhere.
        """
        ray = self._connected()
        try:
            yield from _RayRun(ray, self, setup).results(iter(jobs))
        finally:
            ray.shutdown()

    def _connected(self) -> Any:  # noqa: ANN401  (the module ray)
        if self.address is not None:
            _check_reachable(self.address)
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        cpus = self.workers * self.threads if self.address is None and self.workers else None
        try:
            with _silent_stderr():  # Ray's C++ part warns of every attempt to connect, whatever it is told
                ray.init(
                    self.address or "local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UncurseError(f"no Ray cluster answers at {self.address}: {error}") from None
        return ray


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop what is written to the descriptor of standard error."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _check_reachable(address: str) -> None:
    """Raise an error if nothing listens at `host:port`: Ray would try for minutes, with warnings of its own."""
    found = re.fullmatch(r"(?:ray://)?(.+):(\d{1,5})", address)
    if found is None:  # auto, or a file with an address
        return
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise UncurseError(
            f"no Ray cluster answers at {address}: {getattr(error, 'strerror', None) or error}"
        ) from None


@final
class _RayRun:
    """One pass through jobs."""

    def __init__(self, ray: Any, executor: RayExecutor, setup: Callable[[], Any]) -> None:  # noqa: ANN401
        self._ray = ray
        needs = {"num_cpus": executor.threads, **({"num_gpus": 1} if executor.gpu else {})}
        self._kind = ray.remote(**needs)(_RayWorker)
        self._setup = ray.put(setup)
        self._threads = executor.threads
        self._running: dict[Any, tuple[Any, Any, Any]] = {}  # by reference to a result: worker, name, job
        self._attempts: Counter[Any] = Counter()
        self._retries: list[tuple[Any, Any]] = []
        self._failed_starts = 0  # workers in a row that could not set up
        room = ray.cluster_resources()
        self._max_workers = executor.workers or max(
            1, int(room.get("GPU", 0)) if executor.gpu else int(room.get("CPU", 1)) // executor.threads
        )

    def results(self, jobs: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """The name and result of each job."""
        idle: list[Any] = []
        while True:
            while len(self._running) < self._max_workers:
                job = self._retries.pop() if self._retries else next(jobs, None)
                if job is None:
                    break
                worker = idle.pop() if idle else self._kind.remote(self._setup, self._threads, loaded_plugins())
                self._running[worker.run.remote(job[1])] = worker, *job
            if not self._running:
                return
            (finished,), _ = self._ray.wait(list(self._running), num_returns=1)
            worker, name, job = self._running.pop(finished)
            try:
                result = self._ray.get(finished)
            except Exception as error:
                if self._alive(error):
                    idle.append(worker)
                if (failure := self._failure(name, job, error)) is not None:
                    yield name, failure
                continue
            self._failed_starts = 0
            idle.append(worker)
            yield name, result

    def _alive(self, error: Exception) -> bool:
        return not isinstance(error, self._ray.exceptions.RayActorError)

    def _failure(self, name: Any, job: Any, error: Exception) -> JobFailure | None:  # noqa: ANN401
        """Put a job back, or give it up."""
        if isinstance(error, UncurseError):
            raise UncurseError(str(getattr(error, "cause", error))) from None
        if isinstance(error, self._ray.exceptions.ActorDiedError) and "__init__" in str(error):
            self._failed_starts += 1
            if self._failed_starts >= MAX_ATTEMPTS:
                raise UncurseError(f"no worker can start: {_last_line(error)}") from None
        self._attempts[name] += 1
        if self._attempts[name] < MAX_ATTEMPTS:
            self._retries.append((name, job))
            return None
        return JobFailure(_last_line(error))


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def executor_of(name: str, workers: int, threads: int, device: str) -> Executor:
    """An executor by its name: `ray`, or `ray:` and the address of a cluster."""
    kind, _, address = name.partition(":")
    if kind != "ray":
        raise UncurseError(f"engine = {name!r} is not allowed: it must be ray or ray:ADDRESS")
    return RayExecutor(address or None, workers, max(1, threads), not device.startswith("cpu"))
