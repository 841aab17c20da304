"""The one thread that owns the model, and the sentences that wait for it.

Sentences of all requests are searched for together where their orders allow it. They join between steps and leave
when they are proved; what is past its deadline is cancelled between two steps and answered with the best so far.
No result depends on what shares its search, but for the last bits that neighbours in a batch always move.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, final

from uncurse.decoding import Sentence
from uncurse.result import Result
from uncurse.serving.options import Limits
from uncurse.serving.orders import Answer, Order, Refused, Searching, TooLate
from uncurse.trace import Trace
from uncurse.translator import Translator

LOG: Final = logging.getLogger("uncurse.serving")
CROWD: Final = 8  # newcomers join when there is one for each so many sentences that are searched for …
PATIENCE: Final = 4  # … or when they have waited for so many steps
LONGEST_RETRY: Final = 60  # seconds


class Busy(Exception):  # noqa: N818
    """There is no room for another request; it may be tried again after so many seconds."""

    def __init__(self, retry_after: int) -> None:
        Exception.__init__(self, f"try again in {retry_after} s")
        self.retry_after = retry_after


class Closed(Exception):  # noqa: N818
    """The service takes no more requests."""


class Failed(Exception):  # noqa: N818
    """The search failed through no fault of the request; the log says why."""


class Watcher(Protocol):
    """Someone who counts what a worker does."""

    def stepped(self, sentences: int, seconds: float) -> None:
        """A search took a step with so many sentences."""
        ...

    def ended(self, found: Result | Trace, in_time: bool) -> None:
        """The search for a sentence has ended."""
        ...


@final
@dataclass(eq=False)
class _Request:
    """A request under way."""

    order: Order[Any]
    due: float  # on the monotonic clock
    answers: list[Answer | None]
    future: Future[list[Answer]] = field(default_factory=Future)

    def is_over(self, now: float) -> bool:
        return self.future.done() or self.due <= now

    def answer(self, place: int, answer: Answer) -> None:
        self.answers[place] = answer
        whole = [each for each in self.answers if each is not None]
        if len(whole) == len(self.answers):
            with suppress(InvalidStateError):  # whoever asked has gone
                self.future.set_result(whole)

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@final
@dataclass(eq=False)
class _Job:
    """A sentence of a request."""

    request: _Request
    place: int
    line: str
    pieces: tuple[int, ...] | None = None  # until it is looked at
    sentence: Sentence | None = None
    earlier: tuple[Sentence, Any] | None = None  # a search in vain, after which a wider one was begun


@final
@dataclass(eq=False)
class _Shared:
    """A search with the sentences it searches for."""

    search: Searching[Any]
    jobs: dict[int, _Job] = field(default_factory=dict)  # by ticket


@final
class Worker:
    """A translator that is asked by many at once."""

    def __init__(
        self, translator: Translator, limits: Limits, watcher: Watcher, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._translator = translator
        self._limits = limits
        self._watcher = watcher
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._searches: dict[Hashable, _Shared] = {}
        self._steps_waited = 0
        self._pace = 0.1  # seconds that a sentence takes, smoothed
        self._since_ended = 0.0
        self._ended_now = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="uncurse-worker", daemon=True)

    @property
    def translator(self) -> Translator:
        """What the worker owns; others may look at what never changes."""
        return self._translator

    @property
    def waiting(self) -> int:
        """How many sentences wait."""
        return len(self._waiting)

    @property
    def searching(self) -> int:
        """How many sentences are being searched for."""
        return sum(len(shared.jobs) for shared in tuple(self._searches.values()))

    @property
    def healthy(self) -> bool:
        """Whether requests are taken and answered."""
        return self._thread.is_alive() and not self._closing

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, order: Order[Any], lines: Sequence[str], seconds: float | None) -> Future[list[Answer]]:
        """Ask for the answers to lines, in their order; who cancels the future is no longer worked for."""
        due = self._clock() + (self._limits.deadline if seconds is None else seconds)
        request = _Request(order, due, [None] * len(lines))
        with self._changed:
            if not self.healthy:
                raise Closed
            if len(self._waiting) + len(lines) > self._limits.waiting:
                raise Busy(self._retry_after())
            self._waiting.extend(_Job(request, place, line) for place, line in enumerate(lines))
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Take no more requests, and return when all that were taken are answered."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _retry_after(self) -> int:
        return max(1, min(LONGEST_RETRY, math.ceil(len(self._waiting) * self._pace)))

    def _run(self) -> None:
        try:
            while self._has_work():
                began, self._ended_now = self._clock(), 0
                self._let_go()
                self._admit()
                self._advance()
                self._keep_pace(self._clock() - began)
        finally:  # with nothing left to do, unless the worker itself is broken
            self._closing = True
            searched = [job for shared in self._searches.values() for job in shared.jobs.values()]
            for job in [*self._waiting, *searched]:
                job.request.fail(Failed())

    def _has_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._searches or self._closing)
            return bool(self._waiting or self._searches)

    def _keep_pace(self, seconds: float) -> None:
        self._since_ended += seconds
        if self._ended_now:
            self._pace += 0.2 * (self._since_ended / self._ended_now - self._pace)
            self._since_ended = 0.0

    def _let_go(self) -> None:
        """End what nobody waits for any more and what is past its deadline."""
        now = self._clock()
        with self._changed:
            over = [job for job in self._waiting if job.request.is_over(now)]
            if over:
                self._waiting = deque(job for job in self._waiting if not job.request.is_over(now))
        for job in over:
            self._reply(job, partial(job.request.order.answer_too_late, job.line))
        for key, shared in list(self._searches.items()):
            self._guarded(key, shared, self._cancel)

    def _cancel(self, shared: _Shared) -> None:
        now = self._clock()
        tickets = [ticket for ticket, job in shared.jobs.items() if job.request.is_over(now)]
        if not tickets:
            return
        for ticket, found in shared.search.cancel_all(tickets).items():
            self._ended(shared, shared.jobs[ticket], found, in_time=False)
            del shared.jobs[ticket]  # only now: if something fails, those who are there are told

    def _admit(self) -> None:
        """Let those who wait join, first come, first served, as far as there is room.

        Joining moves the state of all who are there, so a few join together; nobody waits for them for long.
        """
        there = [job for shared in self._searches.values() for job in shared.jobs.values()]
        room = self._limits.batch_tokens - sum(len(job.pieces or ()) for job in there)
        coming: list[_Job] = []
        with self._changed:
            queue = tuple(self._waiting)
        for job in queue:
            needed = len(self._pieces(job))
            if needed > room and (there or coming):
                break
            coming.append(job)
            room -= needed
        if len(coming) < len(there) // CROWD and self._steps_waited < PATIENCE:
            return
        self._steps_waited = 0
        with self._changed:
            for _ in coming:  # no other thread takes from it
                self._waiting.popleft()
        alike: dict[Order[Any], list[_Job]] = {}
        for job in coming:
            if job.pieces and not job.request.future.done():
                alike.setdefault(job.request.order, []).append(job)
        newcomers: dict[Hashable, list[_Job]] = {}
        for order, jobs in alike.items():
            newcomers.setdefault(order.shared, []).extend(self._prepared(order, jobs))
        for key, jobs in newcomers.items():
            if jobs:
                self._join(key, jobs)

    def _pieces(self, job: _Job) -> tuple[int, ...]:
        """The pieces of a sentence that is worth searching for; the others are answered at once."""
        if job.pieces is None:
            order = job.request.order
            try:
                job.pieces = order.pieces(self._translator, job.line, job.place, self._limits)
            except Exception as error:
                self._fail(job, error)
                job.pieces = ()
            else:
                if not job.pieces:
                    self._reply(job, partial(order.answer_to_nothing, job.line))
        return job.pieces

    def _prepared(self, order: Order[Any], jobs: list[_Job]) -> list[_Job]:
        """Those that can be searched for; the others are told why not."""
        try:
            sentences = order.sentences(self._translator, [job.pieces or () for job in jobs], self._limits)
        except Exception as error:
            if len(jobs) > 1:  # whose fault it is shows when they are looked at one by one
                return [each for job in jobs for each in self._prepared(order, [job])]
            self._fail(jobs[0], error)
            return []
        for job, sentence in zip(jobs, sentences, strict=True):
            job.sentence = sentence
        return jobs

    def _join(self, key: Hashable, jobs: list[_Job]) -> None:
        try:
            shared = self._searches.get(key)
            if shared is None:
                shared = _Shared(jobs[0].request.order.search(self._translator.model))
            tickets = shared.search.join([job.sentence for job in jobs if job.sentence is not None])
        except Exception as error:
            for job in jobs:
                self._fail(job, error)
            return
        shared.jobs.update(zip(tickets, jobs, strict=True))
        self._searches[key] = shared

    def _advance(self) -> None:
        """A step with every search in turn."""
        self._steps_waited += bool(self._waiting)
        for key, shared in list(self._searches.items()):
            if shared.jobs:
                self._guarded(key, shared, self._step)
            if not shared.jobs:
                self._searches.pop(key, None)

    def _step(self, shared: _Shared) -> None:
        began, count = self._clock(), len(shared.jobs)
        ended = shared.search.advance()
        self._watcher.stepped(count, self._clock() - began)
        for ticket, found in ended:
            self._ended(shared, shared.jobs[ticket], found, in_time=True)
            del shared.jobs[ticket]

    def _ended(self, shared: _Shared, job: _Job, found: Any, in_time: bool) -> None:  # noqa: ANN401
        order, sentence = job.request.order, job.sentence
        assert sentence is not None  # it was prepared before it joined
        if in_time and order.in_vain(sentence, found):
            wider = self._translator.wider(sentence, order.task)
            if wider is not None:
                job.sentence, job.earlier = wider, (sentence, found)
                (ticket,) = shared.search.join([wider])
                shared.jobs[ticket] = job
                return
        if not in_time and job.earlier is not None and found.steps <= job.earlier[1].steps:
            sentence, found = job.earlier  # the wider search has not come as far
        self._ended_now += 1
        self._watcher.ended(found, in_time)
        self._reply(job, partial(order.answer, self._translator, job.line, sentence, found, in_time))

    def _guarded(self, key: Hashable, shared: _Shared, act: Callable[[_Shared], None]) -> None:
        """Do something with a search; if it fails, those who are in it are told, and others go on."""
        try:
            act(shared)
        except Exception as error:
            self._searches.pop(key, None)
            for job in shared.jobs.values():
                self._fail(job, error)
            shared.jobs.clear()

    def _reply(self, job: _Job, answer: Callable[[], Answer]) -> None:
        if job.request.future.done():
            return
        try:
            job.request.answer(job.place, answer())
        except Exception as error:
            self._fail(job, error)

    def _fail(self, job: _Job, error: Exception) -> None:
        if isinstance(error, (Refused, TooLate)):
            job.request.fail(error)
        elif not job.request.future.done():
            LOG.error("a search failed", exc_info=error)
            job.request.fail(Failed())
