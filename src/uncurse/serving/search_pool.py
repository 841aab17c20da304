"""The searches that are under way, each shared by the sentences of many requests."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, final

from uncurse.scoring.decoding import Sentence
from uncurse.scoring.result import Result
from uncurse.search.trace import Trace
from uncurse.serving.jobs import Job, SteppedSearch
from uncurse.serving.pending import PendingSentence
from uncurse.translation.translator import Translator


class SearchObserver(Protocol):
    """Counts what searches do."""

    def observe_step(self, sentences: int, seconds: float) -> None:
        """A search took a step with so many sentences."""
        ...

    def observe_end(self, found: Result | Trace, in_time: bool) -> None:
        """The search for a sentence has ended."""
        ...


@final
@dataclass(eq=False)
class _SharedSearch:
    """A search with the sentences that are in it."""

    search: SteppedSearch[Any]
    pending: dict[int, PendingSentence] = field(default_factory=dict)  # by ticket


@final
class SearchPool:
    """One search for each way of decoding that is asked for; if one fails, the others go on."""

    def __init__(self, translator: Translator, observer: SearchObserver, clock: Callable[[], float]) -> None:
        self._translator = translator
        self._observer = observer
        self._clock = clock
        self._searches: dict[Hashable, _SharedSearch] = {}
        self.ended = 0  # sentences, so far

    def __len__(self) -> int:
        """How many sentences are being searched for; other threads may ask."""
        return sum(len(shared.pending) for shared in tuple(self._searches.values()))

    def pending(self) -> list[PendingSentence]:
        """The sentences that are being searched for."""
        return [each for shared in self._searches.values() for each in shared.pending.values()]

    def join(self, newcomers: Iterable[PendingSentence]) -> None:
        """Begin to search for prepared sentences; those that decode in the same way join one search."""
        by_key: dict[Hashable, list[PendingSentence]] = {}
        for each in newcomers:
            by_key.setdefault(each.job.search_key, []).append(each)
        for key, group in by_key.items():
            self._join(key, group)

    def advance(self) -> None:
        """Take a step with every search in turn."""
        for key, shared in list(self._searches.items()):
            if shared.pending:
                self._guarded(key, shared, self._step)
            if not shared.pending:
                self._searches.pop(key, None)

    def cancel_overdue(self) -> None:
        """End the searches of requests that are over; a deadline is answered with the best so far."""
        for key, shared in list(self._searches.items()):
            self._guarded(key, shared, self._cancel)

    def _join(self, key: Hashable, group: Sequence[PendingSentence]) -> None:
        try:
            shared = self._searches.get(key)
            if shared is None:
                shared = _SharedSearch(group[0].job.search(self._translator.model))
            tickets = shared.search.join([each.sentence for each in group if each.sentence is not None])
        except Exception as error:
            for each in group:
                each.fail(error)
            return
        shared.pending.update(zip(tickets, group, strict=True))
        self._searches[key] = shared

    def _step(self, shared: _SharedSearch) -> None:
        began, count = self._clock(), len(shared.pending)
        ended = shared.search.advance()
        self._observer.observe_step(count, self._clock() - began)
        for ticket, found in ended:
            self._end(shared, shared.pending[ticket], found, in_time=True)
            del shared.pending[ticket]  # only now: if something fails, all that are in the search are told

    def _cancel(self, shared: _SharedSearch) -> None:
        now = self._clock()
        tickets = [ticket for ticket, each in shared.pending.items() if each.request.is_over(now)]
        if not tickets:
            return
        for ticket, found in shared.search.cancel_all(tickets).items():
            self._end(shared, shared.pending[ticket], found, in_time=False)
            del shared.pending[ticket]

    def _end(self, shared: _SharedSearch, pending: PendingSentence, found: Result | Trace, in_time: bool) -> None:
        """Answer a sentence, or search for it again if its maximum length or its list was too short."""
        job, sentence = pending.job, pending.sentence
        assert sentence is not None  # it was prepared before it joined
        if in_time:
            wider = self._translator.retry(sentence, found, job.options)
            if wider is not None:
                pending.sentence, pending.first_search = wider, (sentence, found)
                (ticket,) = shared.search.join([wider])
                shared.pending[ticket] = pending
                return
            longer = self._longer(pending, sentence, found)
            if longer is not None:
                pending.job, pending.first_search = longer, (sentence, found)
                self._join(longer.search_key, [pending])
                return
        elif pending.first_search is not None and found.steps <= pending.first_search[1].steps:
            sentence, found = pending.first_search  # the second search has not come as far
        self.ended += 1
        self._observer.observe_end(found, in_time)
        pending.reply(partial(job.answer, self._translator, pending.line, sentence, found, in_time))

    def _longer(self, pending: PendingSentence, sentence: Sentence, found: Result | Trace) -> Job[Any] | None:
        """The job with which to search for a longer list; a failure to decode is this request's error alone."""
        try:
            return pending.job.with_longer_list(self._translator, sentence, found)
        except Exception as error:
            pending.fail(error)
            return None

    def _guarded(self, key: Hashable, shared: _SharedSearch, act: Callable[[_SharedSearch], None]) -> None:
        """Do something with a search; if it fails, answer all that are in it with an error and drop it."""
        try:
            act(shared)
        except Exception as error:
            self._searches.pop(key, None)
            for pending in shared.pending.values():
                pending.fail(error)
            shared.pending.clear()
