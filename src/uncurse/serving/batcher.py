"""The one thread that runs the model, and the queue of sentences that wait for it (continuous batching).

Sentences of all requests that decode in the same way share a search. They join between steps and leave when they
are proved; one whose deadline passes is cancelled between two steps and answered with the best so far. No result
depends on what shares its search, up to the last bits, which any neighbour in a batch can change.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, final

from uncurse.serving.errors import BusyError, ClosedError, SearchFailedError
from uncurse.serving.jobs import Answer, Job
from uncurse.serving.limits import ServiceLimits
from uncurse.serving.pending import PendingRequest, PendingSentence
from uncurse.serving.search_pool import SearchObserver, SearchPool
from uncurse.translation.translator import Translator

JOIN_FRACTION: Final = 8  # sentences join when they are at least an eighth of those in searches …
MAX_STEPS_WAITED: Final = 4  # … or when they have waited for so many steps
MAX_RETRY_AFTER: Final = 60  # seconds
SMOOTHING: Final = 0.2  # weight of the newest measurement of the pace


@final
class Batcher:
    """Runs the searches of all requests together, in a thread of its own."""

    def __init__(
        self,
        translator: Translator,
        limits: ServiceLimits,
        observer: SearchObserver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._translator = translator
        self._limits = limits
        self._clock = clock
        self._changed = threading.Condition()  # guards the queue and `_closing`
        self._queue: deque[PendingSentence] = deque()
        self._pool = SearchPool(translator, observer, clock)
        self._steps_waited = 0
        self._pace = 0.1  # seconds that a sentence takes, smoothed
        self._seconds_since_end = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="uncurse-batcher", daemon=True)

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
        return len(self._pool)

    @property
    def healthy(self) -> bool:
        """Whether requests are taken and answered."""
        return self._thread.is_alive() and not self._closing

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job[Any], lines: Sequence[str], deadline: float | None) -> Future[list[Answer]]:
        """Queue the lines of a request; cancelling the future ends the work on them.

        The answers come in the order of the lines, within `deadline` seconds.
        """
        due = self._clock() + (self._limits.deadline if deadline is None else deadline)
        request = PendingRequest(job, due, [None] * len(lines))
        with self._changed:
            if not self.healthy:
                raise ClosedError
            if len(self._queue) + len(lines) > self._limits.waiting:
                raise BusyError(self._retry_after())
            self._queue.extend(PendingSentence(request, index, line, job) for index, line in enumerate(lines))
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Take no more requests, and return when all that were taken are answered."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _retry_after(self) -> int:
        return max(1, min(MAX_RETRY_AFTER, math.ceil(len(self._queue) * self._pace)))

    def _run(self) -> None:
        try:
            while self._has_work():
                began, ended_before = self._clock(), self._pool.ended
                self._drop_overdue()
                self._pool.cancel_overdue()
                self._admit()
                self._steps_waited += bool(self._queue)
                self._pool.advance()
                self._measure_pace(self._clock() - began, self._pool.ended - ended_before)
        finally:  # nothing is left to do, unless the batcher itself has failed
            self._closing = True
            for pending in [*self._queue, *self._pool.pending()]:
                pending.request.fail(SearchFailedError())

    def _has_work(self) -> bool:
        """Wait for work; False when there is none left and the batcher closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or len(self._pool) or self._closing)
            return bool(self._queue or len(self._pool))

    def _measure_pace(self, seconds: float, ended: int) -> None:
        self._seconds_since_end += seconds
        if ended:
            self._pace += SMOOTHING * (self._seconds_since_end / ended - self._pace)
            self._seconds_since_end = 0.0

    def _drop_overdue(self) -> None:
        """Take requests that are over out of the queue, and answer those whose deadline has passed."""
        now = self._clock()
        with self._changed:
            overdue = [each for each in self._queue if each.request.is_over(now)]
            if overdue:
                self._queue = deque(each for each in self._queue if not each.request.is_over(now))
        for each in overdue:
            each.reply(partial(each.job.answer_late, each.line))

    def _admit(self) -> None:
        """Let waiting sentences join searches, in the order of the queue, as far as there is room.

        To join copies the state of the whole search. So sentences wait for others to join with, but not for long.
        """
        searching = self._pool.pending()
        room = self._limits.batch_tokens - sum(len(each.tokens or ()) for each in searching)
        joining: list[PendingSentence] = []
        with self._changed:
            queue = tuple(self._queue)
        for each in queue:
            needed = len(self._encoded(each))
            if needed > room and (searching or joining):
                break
            joining.append(each)
            room -= needed
        if len(joining) < len(searching) // JOIN_FRACTION and self._steps_waited < MAX_STEPS_WAITED:
            return
        self._steps_waited = 0
        with self._changed:
            for _ in joining:  # no other thread takes from the queue
                self._queue.popleft()
        by_job: dict[Job[Any], list[PendingSentence]] = {}
        for each in joining:
            if each.tokens and not each.request.future.done():
                by_job.setdefault(each.job, []).append(each)
        self._pool.join(each for job, group in by_job.items() for each in self._prepared(job, group))

    def _encoded(self, pending: PendingSentence) -> tuple[int, ...]:
        """The source tokens of a sentence; one that is empty or invalid is answered at once and has none."""
        if pending.tokens is None:
            job = pending.job
            try:
                pending.tokens = job.encode(self._translator, pending.line, pending.index, self._limits)
            except Exception as error:
                pending.fail(error)
                pending.tokens = ()
            else:
                if not pending.tokens:
                    pending.reply(partial(job.answer_empty, pending.line))
        return pending.tokens

    def _prepared(self, job: Job[Any], group: list[PendingSentence]) -> list[PendingSentence]:
        """Those of a group that can be searched for; the others are answered with an error."""
        try:
            sentences = job.sentences(self._translator, [each.tokens or () for each in group], self._limits)
        except Exception as error:
            if len(group) > 1:  # one by one, to see which sentence is at fault
                return [found for each in group for found in self._prepared(job, [each])]
            group[0].fail(error)
            return []
        for each, sentence in zip(group, sentences, strict=True):
            each.sentence = sentence
        return group
