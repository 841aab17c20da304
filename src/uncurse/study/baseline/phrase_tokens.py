"""Text as the phrase-based translator sees it.

A source character of Chinese is a token of its own, a run of other letters is one, and so is each other sign. On
the target side a token says with a mark where there was no space, so that text comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

Tokens = tuple[str, ...]
Pair = tuple[Tokens, Tokens]

_WIDE: Final = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # scripts that write no spaces
_TOKEN: Final = re.compile(rf"[{_WIDE}]|[^\W_{_WIDE}]+|\S")
_JOINED: Final = "\uffed"  # stands where there was no space


def source_tokens(line: str, lowercase: bool) -> Tokens:
    """Characters of scripts that write no spaces, runs of other letters, and signs."""
    return tuple(_TOKEN.findall(line.lower() if lowercase else line))


def target_tokens(line: str, lowercase: bool) -> Tokens:
    """Tokens marked where they touch: “Go!” is “￭ Go ￭! ￭”."""
    line = (line.lower() if lowercase else line).replace(_JOINED, " ")
    tokens: list[str] = []
    end = -1
    for match in _TOKEN.finditer(line):
        token = match.group()
        if match.start() == end:
            # A sign carries the mark where it can, so that a word is the same token beside a sign and alone.
            if token.isalnum() and not tokens[-1].strip(_JOINED).isalnum():
                tokens[-1] += _JOINED
            else:
                token = _JOINED + token
        tokens.append(token)
        end = match.end()
    return tuple(tokens)


def text_of(tokens: Sequence[str]) -> str:
    """The text that target tokens spell."""
    return " ".join(tokens).replace(f" {_JOINED}", "").replace(f"{_JOINED} ", "").replace(_JOINED, "")
