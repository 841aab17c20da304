"""Tokenizers of Marian models: SentencePiece splits a line into pieces, a vocabulary file gives their ids."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from uncurse.errors import UncurseError, nearest
from uncurse.storage.atomic import read_regular_file
from uncurse.text.sentencepiece_tokenizer import MAX_BYTES, load_processor

EOS_TOKEN: Final = "</s>"
UNK_TOKEN: Final = "<unk>"
SPACE: Final = "\u2581"  # what SentencePiece writes for a space


@final
class Vocabulary:
    """The tokens of a model in the order of their ids."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tuple(tokens)
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        if len(self._ids) < len(self.tokens):
            raise UncurseError("a token occurs twice in the vocabulary")
        for needed in (EOS_TOKEN, UNK_TOKEN):
            if needed not in self._ids:
                raise UncurseError(f"the vocabulary has no {needed}")
        self.eos = self._ids[EOS_TOKEN]
        self.unk = self._ids[UNK_TOKEN]

    def __len__(self) -> int:
        return len(self.tokens)

    def find(self, token: str) -> int | None:
        """The id of a token; None if it is not in the vocabulary."""
        return self._ids.get(token)

    def without_script(self, script: str) -> list[int]:
        """The ids of tokens without letters of a script, named as in Unicode's names of letters: cjk, cyrillic."""
        script = script.strip().lower()
        scripts_of = [{_script_of(letter) for letter in token if letter.isalpha()} for token in self.tokens]
        if script not in (known := set().union(*scripts_of)):
            raise UncurseError(f"no token has letters of the script {script!r}{nearest(script, sorted(known))}")
        special = (self.eos, self.unk)
        return [index for index, scripts in enumerate(scripts_of) if index in special or script not in scripts]

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that tokens spell; `</s>` is left out."""
        try:
            text = "".join(self.tokens[token] for token in tokens if token != self.eos)
        except IndexError:
            raise UncurseError(f"a token id is outside the vocabulary of {len(self)} tokens") from None
        return text.replace(SPACE, " ").strip()


@final
class MarianTokenizer:
    """SentencePiece with the ids of a separate vocabulary."""

    def __init__(self, model: bytes, vocabulary: Vocabulary) -> None:
        self._processor = load_processor(model)
        self._vocabulary = vocabulary

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The token ids of each line, without `</s>`."""
        find, unk = self._vocabulary.find, self._vocabulary.unk
        split: list[list[str]] = self._processor.encode(list(lines), out_type=str)
        return [[unk if (found := find(piece)) is None else found for piece in pieces] for pieces in split]

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that tokens spell; `</s>` is left out."""
        return self._vocabulary.decode(tokens)


def read_marian_tokenizer(path: Path, vocabulary: Vocabulary) -> MarianTokenizer:
    """Read a tokenizer from a SentencePiece model file."""
    content = read_regular_file(path, MAX_BYTES)
    try:
        return MarianTokenizer(content, vocabulary)
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from error


def read_tokenizer_with_vocabulary(path: Path) -> tuple[MarianTokenizer, Vocabulary]:
    """Read a tokenizer from a SentencePiece model file whose own ids are those of the model."""
    content = read_regular_file(path, MAX_BYTES)
    try:
        processor = load_processor(content)
        vocabulary = Vocabulary(processor.id_to_piece(list(range(processor.vocab_size()))))
        return MarianTokenizer(content, vocabulary), vocabulary
    except (UncurseError, UnicodeDecodeError) as error:  # a piece that is not text
        raise UncurseError(f"{path}: {error}") from error


@final
class RankedTokenizer:
    """A tokenizer made from a vocabulary alone, for models without the SentencePiece model of their target side.

    The vocabulary must be ordered by frequency. By Zipf's law the token of rank r has a probability of about
    1 / (r · H), where H is the sum of 1 / r over all ranks. The most likely segmentation of each word is found by
    dynamic programming; no token crosses the space before a word.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._longest = max(len(token) for token in vocabulary.tokens)
        self._log_harmonic = math.log(sum(1.0 / rank for rank in range(1, len(vocabulary) + 1)))
        self._cache: dict[str, tuple[int, ...]] = {}  # by word

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The token ids of each line, without `</s>`."""
        return [[token for word in line.split() for token in self._word(SPACE + word)] for line in lines]

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that tokens spell; `</s>` is left out."""
        return self._vocabulary.decode(tokens)

    def _word(self, word: str) -> tuple[int, ...]:
        if word not in self._cache:
            self._cache[word] = self._segment(word)
        return self._cache[word]

    def _segment(self, word: str) -> tuple[int, ...]:
        unk = self._vocabulary.unk
        best: list[tuple[float, int, int]] = [(0.0, 0, unk)]  # cost, where the last token begins, its id
        for end in range(1, len(word) + 1):
            options = [(best[end - 1][0] + self._cost(len(self._vocabulary)), end - 1, unk)]
            for start in range(max(0, end - self._longest), end):
                found = self._vocabulary.find(word[start:end])
                if found is not None:
                    options.append((best[start][0] + self._cost(found), start, found))
            best.append(min(options))
        tokens: list[int] = []
        end = len(word)
        while end:
            _, end, token = best[end]
            tokens.append(token)
        return tuple(reversed(tokens))

    def _cost(self, token: int) -> float:
        """`-log p` of a token by its rank."""
        return math.log(token + 1) + self._log_harmonic


def _script_of(letter: str) -> str:
    return unicodedata.name(letter, "unnamed").split()[0].lower()
