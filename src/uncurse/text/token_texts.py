"""What the tokens of a vocabulary spell, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from uncurse.text.tokenizer import Tokenizer


@lru_cache(maxsize=2)
def token_texts(tokenizer: Tokenizer, vocab_size: int) -> tuple[str, ...]:
    """What each token adds to a text; nothing if it is half a character or unknown to the tokenizer."""
    before = tokenizer.encode(["a"])[0]
    start = tokenizer.decode(before)
    return tuple(_added(tokenizer, before, start, token) for token in range(vocab_size))


def _added(tokenizer: Tokenizer, before: Sequence[int], start: str, token: int) -> str:
    try:
        text = tokenizer.decode([*before, token])
    except (LookupError, TypeError, ValueError):  # a model may have more tokens than its tokenizer
        return ""
    added = text.removeprefix(start)
    return "" if "\N{REPLACEMENT CHARACTER}" in added else added
