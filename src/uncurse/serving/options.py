"""What a service allows, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from uncurse.decoding import checked_count, checked_length
from uncurse.length import DEFAULT_LIMIT


@final
@dataclass(frozen=True)
class Limits:
    """How much a request may ask for, and how much a service takes on."""

    body: int = 1 << 18  # bytes of a request
    sentences: int = 64  # of a request
    pieces: int = 250  # source pieces of a sentence
    width: int = 100  # of a beam, and of an n-best list
    waiting: int = 256  # sentences that wait for a search to have room; who comes then is asked to come back
    deadline: float = 60.0  # seconds within which a request is answered, with the best so far if need be
    batch_tokens: int = 1500  # source pieces that are searched for together

    def __post_init__(self) -> None:
        for name in ("sentences", "pieces", "width", "waiting", "batch_tokens"):
            checked_count(name, getattr(self, name))
        checked_length("deadline", self.deadline)
        if self.body < 1:
            raise ValueError(f"body = {self.body} is not allowed: a request needs at least a byte")
        if self.sentences > self.waiting:
            raise ValueError(
                f"{self.sentences} sentences of a request never find room where {self.waiting} may wait"
            )

    @property
    def tokens(self) -> int:
        """The most tokens that an output may be allowed: what the longest sentence gets by default."""
        return DEFAULT_LIMIT.tokens(self.pieces)
