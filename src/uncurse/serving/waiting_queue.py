"""The sentences that wait to be searched for, and how the threads that search share them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, final

from uncurse.serving.errors import ClosedError
from uncurse.serving.pending import PendingSentence

JOIN_FRACTION: Final = 4  # sentences join when they are at least a quarter of those in a thread's searches


@final
class WaitingQueue:
    """Sentences in the order of their requests; threads take them from the front."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._changed = threading.Condition()  # guards the sentences and `closed`
        self._taking = threading.Lock()  # one thread at a time looks at the sentences in front and takes them
        self._sentences: deque[PendingSentence] = deque()
        self.closed = False

    def __len__(self) -> int:
        """How many sentences wait."""
        return len(self._sentences)

    def put(self, sentences: Sequence[PendingSentence]) -> bool:
        """Add sentences, if there is room for all of them; whether there was."""
        with self._changed:
            if self.closed:
                raise ClosedError
            if len(self._sentences) + len(sentences) > self._size:
                return False
            self._sentences.extend(sentences)
            self._changed.notify_all()
        return True

    def close(self) -> None:
        """Take no more; threads that wait for sentences stop waiting."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def wait(self, is_busy: Callable[[], object]) -> bool:
        """Wait until there is work for a thread; False when none is left and none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._sentences or is_busy() or self.closed)
            return bool(self._sentences or is_busy())

    def take_overdue(self, now: float) -> list[PendingSentence]:
        """Take out the sentences of requests that are over."""
        with self._taking, self._changed:
            overdue = [each for each in self._sentences if each.request.is_over(now)]
            if overdue:
                self._sentences = deque(each for each in self._sentences if not each.request.is_over(now))
        return overdue

    def take_all(self) -> list[PendingSentence]:
        """Take out every sentence."""
        with self._taking, self._changed:
            sentences, self._sentences = list(self._sentences), deque()
        return sentences

    def take(
        self,
        tokens_of: Callable[[PendingSentence], Sequence[int]],
        room: int,
        searching: int,
        most: int,
        patient: bool,
    ) -> list[PendingSentence]:
        """Take the sentences in front: at most so many, and with room for their tokens.

        A thread that searches for none takes one of any length. One that is patient and has others takes none
        until they are worth joining, since to join copies the state of the whole search.
        """
        taken: list[PendingSentence] = []
        with self._taking:
            with self._changed:
                waiting = tuple(self._sentences)
            for each in waiting:
                needed = len(tokens_of(each))
                if len(taken) >= most or (needed > room and (searching or taken)):
                    break
                taken.append(each)
                room -= needed
            if patient and len(taken) < searching // JOIN_FRACTION:
                return []
            with self._changed:
                for _ in taken:
                    self._sentences.popleft()
        return taken
