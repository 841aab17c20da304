"""What is written for each line that is translated."""

from __future__ import annotations

import json
import math
from enum import Enum
from typing import Any

from uncurse.translation.translator import Translation


class Style(Enum):
    """How a translation is written."""

    TEXT = "the best"
    N_BEST = "all, with number and score"
    JSON = "everything"

    def line(self, translation: Translation, number: int) -> str:
        """The line, or lines, for the line of this number, from 0."""
        if self is Style.JSON:
            return json_line(translation)
        return text_line(translation) if self is Style.TEXT else n_best_lines(translation, number)


def record_of(translation: Translation) -> dict[str, Any]:
    """The JSON record of a translation: the best, the search, and the others of an n-best list.

    Infinite numbers become null, and so does what an empty line, which is not searched for, does not have.
    """
    result = translation.result
    hypotheses = () if result is None else result.hypotheses
    best, *others = [
        {
            "text": text,
            "tokens": list(hypothesis.tokens),
            "log_prob": hypothesis.log_prob,
            "score": _finite(hypothesis.score),
            "length": hypothesis.length,
        }
        for text, hypothesis in zip(translation.texts, hypotheses, strict=False)
    ] or [{"text": "", "tokens": [], "log_prob": None, "score": None, "length": 0}]
    return {
        **best,
        "expected_length": translation.expected_length,
        "certificate": result.certificate.name if result else None,
        "gap": _finite(result.gap) if result else None,
        "steps": result.steps if result else 0,
        "model_rows": result.model_rows if result else 0,
        "signature": (result.signature or None) if result else None,
        "others": others,
    }


def json_line(translation: Translation) -> str:
    """The record as one line."""
    return json.dumps(record_of(translation), ensure_ascii=False, allow_nan=False)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def text_line(translation: Translation) -> str:
    """The best translation alone; an empty line where there is none."""
    return _one_line(translation.text)


def n_best_lines(translation: Translation, number: int) -> str:
    """Every translation with the number of its line, from 0, and its score, as Moses writes n-best lists."""
    scores = [each.score for each in translation.result.hypotheses] if translation.result else [0.0]
    return "\n".join(
        f"{number} ||| {_one_line(text)} ||| {score:.6f}"
        for text, score in zip(translation.texts or ("",), scores or [0.0], strict=True)
    )


def _one_line(text: str) -> str:
    """A vocabulary can have tokens with line breaks; a translation must not look like two."""
    return text.replace("\r", " ").replace("\n", " ")
