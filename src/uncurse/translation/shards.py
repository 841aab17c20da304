"""A corpus in shards of similar cost that depend on its lines alone, so that every run forms the same batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, final

from uncurse.text.corpus_formats import CorpusLine

COST: Final = 30_000  # about 350 sentences: enough to fill batches of similar length, and little to do again
MAX_LINES: Final = 1000  # so many are held in memory, not the corpus


@final
@dataclass(frozen=True)
class Shard:
    """Lines that are translated together."""

    number: int  # from 0
    first: int  # the number of its first line in the whole corpus, from 1
    lines: tuple[str, ...]
    places: tuple[str, ...] = ()  # file and line of each, if they are known
    ids: tuple[Any, ...] = ()  # of each line, if any has one

    @property
    def digest(self) -> str:
        """A checksum of the lines and their ids."""
        ids = json.dumps(self.ids) if self.ids else ""
        return sha256("".join(f"{line}\n" for line in self.lines).encode() + ids.encode()).hexdigest()

    def place(self, index: int) -> str:
        """Where the line with this index comes from, for a message."""
        return self.places[index] if self.places else f"line {self.first + index}"


def cost(line: str) -> int:
    """What a search for a line is expected to cost.

    It grows with the number of tokens, to which bytes are in proportion in any script: a token of English has
    about four, one of Chinese three or six.
    """
    return len(line.encode()) + 10


def shards_of(
    lines: Iterable[str | CorpusLine], max_lines: int = MAX_LINES, is_idle: Callable[[], bool] = lambda: False
) -> Iterator[Shard]:
    """Cut a corpus where the expected cost of a shard is reached, or where the next line has to be waited for."""
    held: list[CorpusLine] = []
    number, first, spent = 0, 1, 0
    for line in lines:
        held.append(line if isinstance(line, CorpusLine) else CorpusLine(line, f"line {first + len(held)}"))
        spent += cost(held[-1].text)
        if spent >= COST or len(held) >= max_lines or is_idle():
            yield _shard(number, first, held)
            number, first, held, spent = number + 1, first + len(held), [], 0
    if held:
        yield _shard(number, first, held)


def _shard(number: int, first: int, lines: Sequence[CorpusLine]) -> Shard:
    return Shard(
        number=number,
        first=first,
        lines=tuple(line.text for line in lines),
        places=tuple(line.place for line in lines),
        ids=tuple(line.id for line in lines) if any(line.id is not None for line in lines) else (),
    )
