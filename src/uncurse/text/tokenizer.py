"""The protocol of a tokenizer: lines to token ids and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Splits lines into tokens and joins tokens into lines."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The token ids of each line, without `<s>` and `</s>`."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that tokens spell; `</s>` is left out."""
        ...

    def __hash__(self) -> int:
        """What is made of a tokenizer's vocabulary is kept for it."""
        ...
