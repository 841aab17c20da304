"""A corpus in shards of similar cost that depend on its lines alone, so that every run forms the same batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, final

COST: Final = 30_000  # about 350 sentences: enough to fill batches of similar length, and little to do again
MAX_LINES: Final = 1000  # so many are held in memory, not the corpus


@final
@dataclass(frozen=True)
class Shard:
    """Lines that are translated together."""

    number: int  # from 0
    first: int  # the number of its first line, from 1
    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A checksum of the lines."""
        return sha256("".join(f"{line}\n" for line in self.lines).encode()).hexdigest()


def cost(line: str) -> int:
    """What a search for a line is expected to cost.

    It grows with the number of tokens, to which bytes are in proportion in any script: a token of English has
    about four, one of Chinese three or six.
    """
    return len(line.encode()) + 10


def shards_of(lines: Iterable[str], max_lines: int = MAX_LINES) -> Iterator[Shard]:
    """Cut a corpus where the expected cost of a shard is reached."""
    held: list[str] = []
    number, first, spent = 0, 1, 0
    for line in lines:
        held.append(line)
        spent += cost(line)
        if spent >= COST or len(held) >= max_lines:
            yield Shard(number, first, tuple(held))
            number, first, held, spent = number + 1, first + len(held), [], 0
    if held:
        yield Shard(number, first, tuple(held))
