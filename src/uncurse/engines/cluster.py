"""The engine on Ray: a worker for each share of the cluster, replaced when it dies."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from uncurse.engines.local import Engine, Failed, K, O, R

ATTEMPTS: Final = 3  # to do a piece before it is given up


@final
class _Worker:
    """Opens what it works with once."""

    def __init__(self, opening: Callable[[], Any], threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._opened = opening()

    def work(self, piece: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """What comes of a piece."""
        return piece(self._opened)


@final
@dataclass(frozen=True)
class Cluster(Engine):
    """Workers on Ray; without an address a cluster is started here and ended with the work."""

    address: str | None = None
    workers: int = 0  # 0: as many as there is room for
    threads: int = 1  # of each worker
    gpu: bool = False  # a worker needs one

    def done(
        self, opening: Callable[[], O], pieces: Iterable[tuple[K, Callable[[O], R]]]
    ) -> Iterator[tuple[K, R | Failed]]:
        """Give what comes of each piece as it is done.

        A worker has one piece at a time, so that only that one suffers when it dies: it is done again elsewhere.
        """
        ray = self._connected()
        try:
            yield from _Run(ray, self, opening).done(iter(pieces))
        finally:
            ray.shutdown()

    def _connected(self) -> Any:  # noqa: ANN401  (the module ray)
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        cpus = self.workers * self.threads if self.address is None and self.workers else None
        try:
            ray.init(
                self.address or "local",
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ValueError(f"no Ray cluster answers at {self.address}: {error}") from None
        return ray


@final
class _Run:
    """One pass through pieces of work."""

    def __init__(self, ray: Any, cluster: Cluster, opening: Callable[[], Any]) -> None:  # noqa: ANN401
        self._ray = ray
        needs = {"num_cpus": cluster.threads, **({"num_gpus": 1} if cluster.gpu else {})}
        self._kind = ray.remote(**needs)(_Worker)
        self._opening = ray.put(opening)
        self._threads = cluster.threads
        self._running: dict[Any, tuple[Any, Any, Any]] = {}  # by reference to a result: worker, key, piece
        self._attempts: Counter[Any] = Counter()
        self._again: list[tuple[Any, Any]] = []
        self._stillborn = 0  # workers in a row that could not open what they work with
        room = ray.cluster_resources()
        self._most = cluster.workers or max(
            1, int(room.get("GPU", 0)) if cluster.gpu else int(room.get("CPU", 1)) // cluster.threads
        )

    def done(self, pieces: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Give what comes of each piece."""
        idle: list[Any] = []
        while True:
            while len(self._running) < self._most:
                piece = self._again.pop() if self._again else next(pieces, None)
                if piece is None:
                    break
                worker = idle.pop() if idle else self._kind.remote(self._opening, self._threads)
                self._running[worker.work.remote(piece[1])] = worker, *piece
            if not self._running:
                return
            (finished,), _ = self._ray.wait(list(self._running), num_returns=1)
            worker, key, piece = self._running.pop(finished)
            try:
                result = self._ray.get(finished)
            except Exception as error:
                if self._alive(error):
                    idle.append(worker)
                if (failed := self._failed(key, piece, error)) is not None:
                    yield key, failed
                continue
            self._stillborn = 0
            idle.append(worker)
            yield key, result

    def _alive(self, error: Exception) -> bool:
        return not isinstance(error, self._ray.exceptions.RayActorError)

    def _failed(self, key: Any, piece: Any, error: Exception) -> Failed | None:  # noqa: ANN401
        """Put a piece back, or give it up."""
        if isinstance(error, ValueError):
            raise ValueError(str(getattr(error, "cause", error))) from None
        if isinstance(error, self._ray.exceptions.ActorDiedError) and "__init__" in str(error):
            self._stillborn += 1
            if self._stillborn >= ATTEMPTS:
                raise ValueError(f"no worker can start: {_last_line(error)}") from None
        self._attempts[key] += 1
        if self._attempts[key] < ATTEMPTS:
            self._again.append((key, piece))
            return None
        return Failed(_last_line(error))


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def found_anywhere(model: str) -> str:
    """The name of a model, or the whole path of its folder: workers need not be where this process is."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def engine_of(name: str, workers: int, threads: int, device: str) -> Engine:
    """An engine by its name: `ray`, or `ray:` and the address of a cluster."""
    kind, _, address = name.partition(":")
    if kind != "ray":
        raise ValueError(f"engine {name!r} is not known: write ray or ray:ADDRESS")
    return Cluster(address or None, workers, max(1, threads), not device.startswith("cpu"))
