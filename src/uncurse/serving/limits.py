"""What a service allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from uncurse.errors import UncurseError
from uncurse.lengths.limits import FALLBACK_MAX_LENGTH
from uncurse.scoring.decoding import checked_count, checked_length

MAX_HEADERS: Final = 100  # in a request
MAX_HEADER_BYTES: Final = 1 << 14  # of its request line and headers together


@final
@dataclass(frozen=True)
class ServiceLimits:
    """How much a request may ask for, and how much the service takes on."""

    body: int = 1 << 18  # bytes of a request
    sentences: int = 64  # in a request
    source_length: int = 250  # tokens of a sentence
    beam_size: int = 100  # also the most of an n-best list
    waiting: int = 256  # sentences in the queue; requests beyond that are refused
    deadline: float = 60.0  # seconds within which a request is answered, with the best so far if need be
    batch_tokens: int = 1500  # source tokens that are searched for together
    connections: int = 500  # open at the same time
    client_timeout: float = 20.0  # seconds that a client has for its headers, its body, and taking its response

    def __post_init__(self) -> None:
        for name in ("sentences", "source_length", "beam_size", "waiting", "batch_tokens", "connections"):
            checked_count(name, getattr(self, name))
        for name in ("deadline", "client_timeout"):
            checked_length(name, getattr(self, name))
        if self.body < 1:
            raise UncurseError(f"body = {self.body} is not allowed: a request has at least one byte")
        if self.sentences > self.waiting:
            raise UncurseError(
                f"sentences = {self.sentences} is not allowed: a request cannot have more sentences than the"
                f" queue, waiting = {self.waiting}"
            )

    @property
    def max_length(self) -> int:
        """The most tokens of an output: what the longest sentence gets by default."""
        return FALLBACK_MAX_LENGTH.tokens(self.source_length)
