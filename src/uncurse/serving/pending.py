"""Requests that are not answered yet, and their sentences."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, final

from uncurse.scoring.decoding import Sentence
from uncurse.scoring.result import Result
from uncurse.search.allowed_tokens import ConstraintError
from uncurse.search.trace import Trace
from uncurse.serving.errors import DeadlineError, InvalidFieldError, SearchFailedError
from uncurse.serving.jobs import Answer, Job

LOG: Final = logging.getLogger("uncurse.serving")


@final
@dataclass(eq=False)
class PendingRequest:
    """A request with the answers that it has so far."""

    job: Job[Any]
    due: float  # on the monotonic clock
    answers: list[Answer | None]
    future: Future[list[Answer]] = field(default_factory=Future)

    def is_over(self, now: float) -> bool:
        """Whether it is answered, abandoned by its client, or past its deadline."""
        return self.future.done() or self.due <= now

    def answer(self, index: int, answer: Answer) -> None:
        """Note the answer for a sentence; with the last one the request is answered."""
        self.answers[index] = answer
        complete = [each for each in self.answers if each is not None]
        if len(complete) == len(self.answers):
            with suppress(InvalidStateError):  # the client has gone
                self.future.set_result(complete)

    def fail(self, error: Exception) -> None:
        """Answer the whole request with an error."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@final
@dataclass(eq=False)
class PendingSentence:
    """A sentence of a request, and how far it has come."""

    request: PendingRequest
    index: int  # in the request
    line: str
    job: Job[Any]  # the request's, until a longer list must be searched for
    tokens: tuple[int, ...] | None = None  # None: not encoded yet
    sentence: Sentence | None = None  # None: not prepared for a search yet
    first_search: tuple[Sentence, Result | Trace] | None = None  # the last one, if it was not enough

    def reply(self, answer: Callable[[], Answer]) -> None:
        """Make the answer and note it, unless the request is over."""
        if self.request.future.done():
            return
        try:
            self.request.answer(self.index, answer())
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Answer the request with an error; one that is not the client's concern is logged and not told."""
        if isinstance(error, ConstraintError):
            error = InvalidFieldError(self.job.field(self.index), error.reason)
        if isinstance(error, InvalidFieldError | DeadlineError):
            self.request.fail(error)
        elif not self.request.future.done():
            LOG.error("a search failed", exc_info=error)
            self.request.fail(SearchFailedError())
