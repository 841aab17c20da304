"""The threads that run the model, and the queue of sentences that wait for them (continuous batching).

Sentences of all requests that decode in the same way share searches. They join between steps and leave when they
are proved; one whose deadline passes is cancelled between two steps and answered with the best so far. No result
depends on what shares its search, up to the last bits, which any neighbour in a batch can change.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, final

from uncurse.serving.errors import BusyError, ClosedError
from uncurse.serving.jobs import Answer, Job
from uncurse.serving.limits import ServiceLimits
from uncurse.serving.pending import PendingRequest, PendingSentence
from uncurse.serving.search_pool import SearchObserver
from uncurse.serving.search_thread import SearchThread
from uncurse.serving.waiting_queue import WaitingQueue
from uncurse.translation.translator import Translator

MAX_SEARCH_THREADS: Final = 2  # while one of them is in Python, the other computes
MAX_RETRY_AFTER: Final = 60  # seconds


@final
class Batcher:
    """Runs the searches of all requests together, in threads of its own.

    With several CPU threads there are two that search, each with its part of the CPU threads: products for a step
    of a beam are small, and two steps beside each other take less time than one after the other on all of them.
    """

    def __init__(
        self,
        translator: Translator,
        limits: ServiceLimits,
        observer: SearchObserver,
        clock: Callable[[], float] = time.monotonic,
        cpu_threads: int = 1,
    ) -> None:
        self._translator = translator
        self._limits = limits
        self._clock = clock
        self._cpu_threads = cpu_threads
        self._queue = WaitingQueue(limits.waiting)
        count = min(cpu_threads, MAX_SEARCH_THREADS)
        self._searches = [
            SearchThread(
                translator=translator,
                limits=limits,
                observer=observer,
                clock=clock,
                queue=self._queue,
                batch_tokens=max(1, limits.batch_tokens // count),
            )
            for _ in range(count)
        ]
        self._threads = [
            threading.Thread(
                target=search.run, args=(self._share, self._divide_cpu), name="uncurse-search", daemon=True
            )
            for search in self._searches
        ]

    @property
    def translator(self) -> Translator:
        """The translator; other threads may use what does not run the model."""
        return self._translator

    @property
    def waiting(self) -> int:
        """How many sentences wait in the queue."""
        return len(self._queue)

    @property
    def searching(self) -> int:
        """How many sentences are being searched for."""
        return sum(search.searching for search in self._searches)

    @property
    def healthy(self) -> bool:
        """Whether requests are taken and answered."""
        return not self._queue.closed and all(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job[Any], lines: Sequence[str], deadline: float | None) -> Future[list[Answer]]:
        """Queue the lines of a request; cancelling the future ends the work on them.

        The answers come in the order of the lines, within `deadline` seconds.
        """
        due = self._clock() + (self._limits.deadline if deadline is None else deadline)
        request = PendingRequest(job, due, [None] * len(lines))
        if not self.healthy:
            raise ClosedError
        if not self._queue.put([PendingSentence(request, index, line, job) for index, line in enumerate(lines)]):
            raise BusyError(self._retry_after())
        return request.future

    def close(self) -> None:
        """Take no more requests, and return when all that were taken are answered."""
        self._queue.close()
        for thread in self._threads:
            thread.join()

    def _retry_after(self) -> int:
        pace = 1 / sum(1 / max(search.pace, 1e-3) for search in self._searches)  # of all threads together
        return max(1, min(MAX_RETRY_AFTER, math.ceil(len(self._queue) * pace)))

    def _share(self) -> int:
        """How many sentences a thread should have at most, for all to have as many."""
        return math.ceil((self.waiting + self.searching) / len(self._searches))

    def _divide_cpu(self) -> None:
        """Let the calling thread use its part of the CPU threads, or all of them if no other searches."""
        if len(self._searches) > 1:
            import torch

            busy = sum(1 for search in self._searches if search.searching)
            torch.set_num_threads(self._cpu_threads // max(busy, 1))
