"""A corpus in shards of like cost that depend on its lines alone: everyone forms the same batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, final

COST: Final = 30_000  # about 350 sentences: enough to fill batches of like length, and little to do again
LINES: Final = 1000  # at most; so many are held in memory, not the corpus


@final
@dataclass(frozen=True)
class Shard:
    """Lines that are translated together."""

    number: int  # from 0
    first: int  # the number of its first line, from 1
    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Tells the lines apart from others."""
        return sha256("".join(f"{line}\n" for line in self.lines).encode()).hexdigest()


def cost(line: str) -> int:
    """What a search for a line is expected to cost.

    It grows with the number of pieces. Bytes are in proportion to those in any script: a piece of English has
    about four, one of Chinese three or six.
    """
    return len(line.encode()) + 10


def shards_of(lines: Iterable[str], most_lines: int = LINES) -> Iterator[Shard]:
    """Cut a corpus where the expected cost of a shard is reached."""
    held: list[str] = []
    number, first, spent = 0, 1, 0
    for line in lines:
        held.append(line)
        spent += cost(line)
        if spent >= COST or len(held) >= most_lines:
            yield Shard(number, first, tuple(held))
            number, first, held, spent = number + 1, first + len(held), [], 0
    if held:
        yield Shard(number, first, tuple(held))
