"""Subword models: SentencePiece BPE for one side of a corpus."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, final

import sentencepiece

BEGIN: Final = 1
END: Final = 2


@final
class Subwords:
    """Lines as piece ids and back.

    A character that training saw too rarely for a piece of its own is spelt as the bytes of its UTF-8 form, so
    nothing is ever unknown and every line comes back as it was, up to Unicode normalisation, spaces and, if it was
    folded, case.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = processor_of(model)
        if (self._processor.bos_id(), self._processor.eos_id()) != (BEGIN, END):
            raise ValueError(f"a subword model must number <s> {BEGIN} and </s> {END}")

    @staticmethod
    def train(lines: Iterable[str], vocabulary: int, lowercase: bool) -> Subwords:
        """Learn byte-pair merges from lines."""
        trained = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=trained,
                model_type="bpe",
                vocab_size=vocabulary,
                character_coverage=0.9995,
                byte_fallback=True,
                normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
                num_threads=1,  # the merges depend on the order of counting
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(f"no {vocabulary} pieces can be learnt from this text: {_reason(error)}") from None
        return Subwords(trained.getvalue())

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    @property
    def model(self) -> bytes:
        """The SentencePiece model as a file holds it."""
        return self._model

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line, without `<s>` and `</s>`."""
        pieces: list[list[int]] = self._processor.encode(list(lines))
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """The line that pieces spell; a `</s>` at the end is left out."""
        try:
            text: str = self._processor.decode([piece for piece in pieces if piece != END])
        except IndexError:
            raise ValueError(f"a piece is none of the {len(self)} that are known") from None
        return text


def processor_of(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """SentencePiece with a model as a file holds it."""
    if not model:
        raise ValueError("it is not a subword model: it is empty")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(f"it is not a subword model: {_reason(error)}") from None


def read_subwords(path: Path) -> Subwords:
    """The subword model of a file."""
    try:
        return Subwords(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _reason(error: RuntimeError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "unknown"
