"""A thread that searches: it takes waiting sentences, and advances its searches until all are answered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, final

from uncurse.serving.errors import SearchFailedError
from uncurse.serving.jobs import Job
from uncurse.serving.limits import ServiceLimits
from uncurse.serving.pending import PendingSentence
from uncurse.serving.search_pool import SearchObserver, SearchPool
from uncurse.serving.waiting_queue import WaitingQueue
from uncurse.translation.translator import Translator

MAX_STEPS_WAITED: Final = 4  # for others to join with
SMOOTHING: Final = 0.2  # weight of the newest measurement of the pace


@final
class SearchThread:
    """Runs searches, beside other threads that take sentences from the same queue."""

    def __init__(
        self,
        translator: Translator,
        limits: ServiceLimits,
        observer: SearchObserver,
        clock: Callable[[], float],
        queue: WaitingQueue,
        batch_tokens: int,
    ) -> None:
        self._translator = translator
        self._limits = limits
        self._clock = clock
        self._queue = queue
        self._batch_tokens = batch_tokens
        self._pool = SearchPool(translator, observer, clock)
        self._steps_waited = 0
        self._seconds_since_end = 0.0
        self.pace = 0.1  # seconds that a sentence takes, smoothed

    @property
    def searching(self) -> int:
        """How many sentences it searches for."""
        return len(self._pool)

    def run(self, share: Callable[[], int], prepare_step: Callable[[], None]) -> None:
        """Work until the queue is closed and empty.

        `share` says how many sentences this thread should have at most, and `prepare_step` is called before each
        step of its searches.
        """
        try:
            while self._queue.wait(lambda: len(self._pool)):
                began, ended_before = self._clock(), self._pool.ended
                for each in self._queue.take_overdue(began):
                    each.reply(partial(each.job.answer_late, each.line))
                self._pool.cancel_overdue()
                self._admit(share())
                prepare_step()
                self._pool.advance()
                self._measure_pace(self._clock() - began, self._pool.ended - ended_before)
        finally:  # nothing is left to do, unless this thread itself has failed
            self._queue.close()
            for pending in [*self._queue.take_all(), *self._pool.pending()]:
                pending.request.fail(SearchFailedError())

    def _measure_pace(self, seconds: float, ended: int) -> None:
        self._seconds_since_end += seconds
        if ended:
            self.pace += SMOOTHING * (self._seconds_since_end / ended - self.pace)
            self._seconds_since_end = 0.0

    def _admit(self, share: int) -> None:
        """Let waiting sentences join searches, in the order of the queue, as far as there is room."""
        searching = self._pool.pending()
        joining = self._queue.take(
            tokens_of=self._encoded,
            room=self._batch_tokens - sum(len(each.tokens or ()) for each in searching),
            searching=len(searching),
            most=share - len(searching),
            patient=self._steps_waited < MAX_STEPS_WAITED,
        )
        self._steps_waited = 0 if joining or not len(self._queue) else self._steps_waited + 1
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
