"""What runs jobs: the interface, and the executor that runs them one by one in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar, final

K = TypeVar("K")  # the name of a job
W = TypeVar("W")  # what a worker sets up once, such as a model
R = TypeVar("R")  # the result of a job


@final
@dataclass(frozen=True)
class JobFailure:
    """The result of a job that could not be done."""

    reason: str


class Executor(ABC):
    """Runs jobs with something that each worker sets up once."""

    @abstractmethod
    def map(
        self, setup: Callable[[], W], jobs: Iterable[tuple[K, Callable[[W], R]]]
    ) -> Iterator[tuple[K, R | JobFailure]]:
        """The name and result of each job, in any order; jobs are taken as workers are free.

        An `UncurseError` of a job is raised: what is wrong with it is wrong wherever it runs.
        """


@final
class LocalExecutor(Executor):
    """This process runs one job after the other."""

    def map(
        self, setup: Callable[[], W], jobs: Iterable[tuple[K, Callable[[W], R]]]
    ) -> Iterator[tuple[K, R | JobFailure]]:
        """The results in order."""
        worker: W | None = None
        for name, job in jobs:
            if worker is None:
                worker = setup()
            yield name, job(worker)
