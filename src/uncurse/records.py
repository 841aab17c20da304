"""One JSON record for each line that was translated."""

from __future__ import annotations

import json
import math
from typing import Any

from uncurse.translator import Translation


def record_of(translation: Translation) -> dict[str, Any]:
    """What a JSON line says of a translation; numbers that are infinite become null."""
    result = translation.result
    if result is None:
        return {"text": "", "hypotheses": [], "certificate": None}
    best = [
        {
            "text": text,
            "tokens": list(hypothesis.tokens),
            "log_prob": hypothesis.log_prob,
            "score": _finite(hypothesis.score),
            "length": hypothesis.length,
        }
        for text, hypothesis in zip(translation.texts, result.hypotheses, strict=True)
    ]
    return {
        "text": translation.texts[0] if translation.texts else "",
        "hypotheses": best,
        "predicted_length": translation.predicted,
        "certificate": result.optimality.name,
        "gap": _finite(result.gap),
        "steps": result.steps,
        "model_rows": result.rows,
        "signature": result.signature,
    }


def json_line(translation: Translation) -> str:
    """The record as one line."""
    return json.dumps(record_of(translation), ensure_ascii=False, allow_nan=False)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
