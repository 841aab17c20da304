"""SentencePiece tokenizers, trained here: byte-pair encoding for one side of a parallel corpus."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, final

import sentencepiece

from uncurse.errors import UncurseError
from uncurse.storage.atomic import read_regular_file

BOS: Final = 1
EOS: Final = 2
MAX_BYTES: Final = 1 << 28  # of a SentencePiece model; the largest known ones have 5 MB


@final
class SentencePieceTokenizer:
    """A SentencePiece model with byte fallback.

    A character that was too rare in training to get a token of its own is spelt as its UTF-8 bytes. So nothing is
    ever unknown, and decoding gives back every line up to Unicode normalisation, spaces and, if the model
    lowercases, case.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = load_processor(model)
        if (self._processor.bos_id(), self._processor.eos_id()) != (BOS, EOS):
            raise UncurseError(f"the SentencePiece model must have <s> as token {BOS} and </s> as token {EOS}")

    @staticmethod
    def train(lines: Iterable[str], vocab_size: int, lowercase: bool) -> SentencePieceTokenizer:
        """Learn byte-pair merges from lines."""
        trained = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=trained,
                model_type="bpe",
                vocab_size=vocab_size,
                character_coverage=0.9995,
                byte_fallback=True,
                normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
                num_threads=1,  # the merges depend on the order of counting
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UncurseError(_training_failure(vocab_size, str(error))) from None
        return SentencePieceTokenizer(trained.getvalue())

    def __len__(self) -> int:
        """The size of the vocabulary."""
        return int(self._processor.vocab_size())

    @property
    def model(self) -> bytes:
        """The serialised SentencePiece model, as in a file."""
        return self._model

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The token ids of each line, without `<s>` and `</s>`."""
        return [self._processor.encode(lines[0])] if len(lines) == 1 else self._processor.encode(list(lines))

    def decode(self, tokens: Sequence[int]) -> str:
        """The line that tokens spell; `</s>` is left out."""
        try:
            text: str = self._processor.decode([token for token in tokens if token != EOS])
        except IndexError:
            raise UncurseError(f"a token id is outside the vocabulary of {len(self)} tokens") from None
        return text


def load_processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """A SentencePiece processor from a serialised model."""
    if not model:
        raise UncurseError("not a SentencePiece model: the file is empty")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except UnicodeDecodeError:  # of SentencePiece's own message, which quotes a piece
        raise UncurseError("not a SentencePiece model: a piece is not valid UTF-8") from None
    except RuntimeError as error:
        raise UncurseError(f"not a SentencePiece model: {_reason(error)}") from None


def read_sentencepiece(path: Path) -> SentencePieceTokenizer:
    """Read a tokenizer from a SentencePiece model file."""
    content = read_regular_file(path, MAX_BYTES)
    try:
        return SentencePieceTokenizer(content)
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from error


def _training_failure(vocab_size: int, message: str) -> str:
    """What to change, without SentencePiece's own options, which nobody can set here."""
    if most := re.search(r"size too high .* value <= (\d+)", message):
        return f"a vocabulary of {vocab_size} tokens is too large for this text, which gives {most[1]} at most"
    if least := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return (
            f"a vocabulary of {vocab_size} tokens is too small for this text, which needs {least[1]} at least:"
            " one for each common character and each byte"
        )
    if "sentences_.empty()" in message:
        return "a tokenizer cannot be trained: the text has no line that is neither empty nor too long"
    return f"a vocabulary of {vocab_size} tokens cannot be learnt from this text: {message}"


def _reason(error: RuntimeError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "unknown"
