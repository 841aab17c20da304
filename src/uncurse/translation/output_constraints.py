"""What a user allows as a translation, as texts; a tokenizer makes a constraint of it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import final

from uncurse.constraints.automaton import Trie
from uncurse.constraints.banned_texts import BannedTexts
from uncurse.constraints.constraint import AllOf, Constraint, digest
from uncurse.constraints.phrases import NoRepeatNgram
from uncurse.errors import UncurseError
from uncurse.scoring.decoding import checked_count
from uncurse.text.token_texts import token_texts
from uncurse.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class OutputConstraints:
    """Which translations are allowed; all, unless it says otherwise."""

    only: tuple[str, ...] | None = None  # these and no other
    ban: tuple[str, ...] = ()  # none that contains one of these as whole words
    no_repeat_ngram: int = 0  # none in which an n-gram of tokens occurs twice; 0: any

    def __post_init__(self) -> None:
        for name, texts in (("only", self.only), ("ban", self.ban)):
            if isinstance(texts, str) or not all(isinstance(text, str) and text.strip() for text in texts or ()):
                raise UncurseError(f"{name} must be a list of texts, none of them empty")
        if self.only is not None and not self.only:
            raise UncurseError("only = () is not allowed: give at least one output")
        checked_count("no_repeat_ngram", self.no_repeat_ngram, low=0)

    def settings(self) -> dict[str, object]:
        """What decides the constraint, by name; None where there is nothing."""
        return {
            "only": None if self.only is None else digest(*sorted(self.only)),
            "ban": digest(*sorted(self.ban)) if self.ban else None,
            "no_repeat_ngram": self.no_repeat_ngram or None,
        }

    def trie(self, tokenizer: Tokenizer, eos: int) -> Trie | None:
        """The outputs that are allowed, if they are listed."""
        return None if self.only is None else _trie(self.only, tokenizer, eos)

    def constraint(self, tokenizer: Tokenizer, vocab_size: int, eos: int) -> Constraint | None:
        """All of it as one constraint; None if there is none."""
        parts: list[Constraint] = []
        if (trie := self.trie(tokenizer, eos)) is not None:
            parts.append(trie)
        if self.ban:
            parts.append(_banned(self.ban, tokenizer, vocab_size, eos))
        if self.no_repeat_ngram:
            parts.append(NoRepeatNgram(self.no_repeat_ngram))
        return AllOf(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


@lru_cache(maxsize=8)  # the same for every shard of a corpus
def _trie(texts: tuple[str, ...], tokenizer: Tokenizer, eos: int) -> Trie:
    outputs = tokenizer.encode(texts)
    for text, tokens in zip(texts, outputs, strict=True):
        if _plain(spelled := tokenizer.decode(tokens)) != _plain(text):
            raise UncurseError(f"the output {text!r} is not allowed: this model can only spell {spelled!r}")
    return Trie(outputs, eos)


@lru_cache(maxsize=8)
def _banned(texts: tuple[str, ...], tokenizer: Tokenizer, vocab_size: int, eos: int) -> BannedTexts:
    return BannedTexts(texts, token_texts(tokenizer, vocab_size), eos)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())
