"""Texts that no output may contain, however its tokens spell them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from uncurse.arrays import Bools, Ints
from uncurse.constraints.constraint import Constraint, NextTokens, digest
from uncurse.errors import UncurseError

MAX_CHARACTERS: Final = 20_000  # of all banned texts
FOUND, START = 0, 1  # states: a banned text was found; nothing was read yet
_WORD, _OTHER = 0, 1  # classes of characters that are in no banned text

# Whether the last character was part of a word, and each text that is being read with how much of it was.
_State = tuple[bool, frozenset[tuple[str, int]]]


@final
@dataclass(frozen=True, init=False)
class BannedTexts(Constraint):
    """No output contains one of some texts as whole words: with "rain" banned, "rainbow" and "train" are allowed.

    Texts in scripts that are written without spaces, such as Chinese, are banned anywhere.
    """

    texts: tuple[str, ...]
    pieces: tuple[str, ...]  # the text of each token
    eos: int

    def __init__(self, texts: Sequence[str], pieces: Sequence[str], eos: int) -> None:
        """Take the texts and what each token of the vocabulary spells; a token that spells nothing is allowed."""
        cleaned = sorted({" ".join(text.split()) for text in texts})
        if not cleaned or not cleaned[0]:
            raise UncurseError("a banned text must have at least one letter, and there must be one")
        if (total := sum(map(len, cleaned))) > MAX_CHARACTERS:
            raise UncurseError(f"the banned texts have {total} characters, and the most is {MAX_CHARACTERS}")
        object.__setattr__(self, "texts", tuple(cleaned))
        object.__setattr__(self, "pieces", tuple(pieces))
        object.__setattr__(self, "eos", eos)

    @property
    def signature(self) -> str:
        """The kind and a digest of texts and vocabulary."""
        return f"ban-text-{self._digest}"

    def after(self, prefixes: Ints) -> NextTokens:
        """All but the tokens that complete a banned text, and `</s>` where the last word completes one."""
        excluded = [self._excluded(self._walk(tuple(prefix))) for prefix in prefixes.tolist()]
        row = np.repeat(np.arange(len(excluded)), [len(tokens) for tokens in excluded])
        return NextTokens(row, np.concatenate([*excluded, np.empty(0, dtype=np.int64)]), excluded=True)

    def shortest(self, prefix: tuple[int, ...]) -> float:
        """Whether the prefix has a banned text; how short an output can be is not known."""
        return np.inf if self._walk(prefix) == FOUND else 1

    def _walk(self, prefix: tuple[int, ...]) -> int:
        """The state that the text of a prefix leads to."""
        state = START
        for token in prefix:
            if (after := self._steps.get((state, token))) is None:
                after = state
                for character in self.pieces[token]:
                    after = int(self._table[after, self._class_of(character)])
                self._steps[state, token] = after
            state = after
        return state

    def _excluded(self, state: int) -> Ints:
        """The tokens that may not follow a state."""
        if (found := self._excluded_after.get(state)) is None:
            states = np.full(len(self._tokens), state)
            for letters in self._letters:  # of tokens that are long enough, which come first
                states[: len(letters)] = self._table[states[: len(letters)], letters]
            found = np.sort(self._tokens[states == FOUND])
            if self._ends_badly[state]:
                found = np.append(found[found != self.eos], self.eos)
            self._excluded_after[state] = found
        return found

    def _class_of(self, character: str) -> int:
        return self._classes.get(character, _WORD if _joins_words(character) else _OTHER)

    @cached_property
    def _digest(self) -> str:
        return digest(self.texts, self.pieces, self.eos)

    @cached_property
    def _classes(self) -> dict[str, int]:
        """The number of each character of a banned text."""
        return {character: number for number, character in enumerate(sorted(set("".join(self.texts))), start=2)}

    @cached_property
    def _automaton(self) -> tuple[Ints, Bools]:
        """Where each state leads with each class, [states, classes]; in which states no output may end."""
        start: _State = (False, frozenset())
        number: dict[_State, int] = {start: START}
        examples = ["0", " ", *self._classes]  # a character of each class; if a text has those, nothing changes
        by_first: dict[str, list[str]] = {}
        for text in self.texts:
            by_first.setdefault(text[0], []).append(text)
        table = [[FOUND] * len(examples)]
        waiting = [start]
        for state in waiting:
            row = []
            for place, character in enumerate(examples):
                after = _read(state, character if place > _OTHER else None, place == _WORD, by_first)
                if after is not None and after not in number:
                    number[after] = len(number) + 1
                    waiting.append(after)
                row.append(FOUND if after is None else number[after])
            table.append(row)
        ends_badly = [True, *(any(count == len(text) for text, count in items) for _, items in waiting)]
        return np.array(table), np.array(ends_badly)

    @property
    def _table(self) -> Ints:
        return self._automaton[0]

    @property
    def _ends_badly(self) -> Bools:
        return self._automaton[1]

    @cached_property
    def _tokens(self) -> Ints:
        """All tokens that spell something, the longest first."""
        spelling = [token for token, piece in enumerate(self.pieces) if piece and token != self.eos]
        return np.array(sorted(spelling, key=lambda token: -len(self.pieces[token])) or [0], dtype=np.int64)

    @cached_property
    def _letters(self) -> list[Ints]:
        """The classes of the characters in each place of the tokens that have as many."""
        ordered = [self.pieces[token] for token in self._tokens.tolist()]
        classes = {character: self._class_of(character) for character in set("".join(ordered))}
        return [
            np.array([classes[piece[place]] for piece in ordered if len(piece) > place], dtype=np.int64)
            for place in range(len(ordered[0]))
        ]

    @cached_property
    def _steps(self) -> dict[tuple[int, int], int]:
        """Where a token leads from a state, as far as anyone has asked."""
        return {}

    @cached_property
    def _excluded_after(self) -> dict[int, Ints]:
        """What may not follow a state, as far as anyone has asked."""
        return {}


def _read(state: _State, character: str | None, is_word: bool, by_first: dict[str, list[str]]) -> _State | None:
    """The state after one more character, or after any that is in no banned text; None if one is complete."""
    after_word, items = state
    is_word = is_word if character is None else _joins_words(character)
    reading = set()
    for text, count in items:
        if count == len(text):  # a whole word, unless the word goes on
            if not is_word:
                return None
        elif text[count] == character:
            reading.add((text, count + 1))
    for text in by_first.get(character or "", ()):
        if not (after_word and is_word):
            reading.add((text, 1))
    if any(count == len(text) and not _joins_words(text[-1]) for text, count in reading):
        return None
    return is_word, frozenset(reading)


def _joins_words(character: str) -> bool:
    """Whether a character makes one word with letters beside it, as those of Chinese do not."""
    return character.isalnum() and unicodedata.east_asian_width(character) not in ("W", "F")
