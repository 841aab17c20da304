"""What is written for each line that is translated, and what is counted on the way."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from uncurse.errors import UncurseError
from uncurse.scoring.result import Certificate
from uncurse.storage.strict_json import parse_json
from uncurse.translation.shards import Shard
from uncurse.translation.translator import Translation

# What happens to lines that their translations may not show, and the words for it.
COUNTED: Final[Mapping[str, str]] = {
    "truncated_sources": "source too long for the model, truncated",
    "truncated_outputs": "nothing finished within the maximum length, so the output is cut off",
    "short_n_best": "fewer translations than asked for, since no more finished",
}


class Style(Enum):
    """How a translation is written."""

    TEXT = "the best"
    N_BEST = "all, with number and score"
    JSON = "everything"

    def line(self, translation: Translation, shard: Shard, index: int) -> str:
        """The line, or lines, for the line of a shard with this index."""
        if self is Style.JSON:
            return json_line(translation, shard, index)
        return text_line(translation) if self is Style.TEXT else n_best_lines(translation, shard.first - 1 + index)

    def check(self, content: bytes, shard: Shard) -> None:
        """Raise an `UncurseError` unless there is something for every line of a shard, and for no other."""
        lines = content.decode("utf-8").split("\n")
        expected = range(shard.first, shard.first + len(shard.lines))
        if self is Style.TEXT:
            right = len(lines) - 1 == len(shard.lines)
        elif self is Style.JSON:
            found = [parse_json(line) for line in lines[:-1]]
            right = [(each["line"], each["source"]) for each in found] == [
                *zip(expected, shard.lines, strict=True)
            ]
        else:
            numbers = [int(line.partition(" ")[0]) + 1 for line in lines[:-1]]
            right = [*dict.fromkeys(numbers)] == [*expected]
        if lines[-1] or not right:
            raise UncurseError("its lines are not those of the shard")


def counts_of(translation: Translation, n_best: int) -> Counter[str]:
    """What is to be counted of a translation."""
    found = translation.result
    truncated = found is not None and found.certificate is Certificate.TRUNCATED
    counts = {
        "truncated_sources": translation.source_truncated,
        "truncated_outputs": truncated,
        "short_n_best": found is not None and not truncated and len(found.hypotheses) < n_best,
    }
    return Counter({name: 1 for name, there in counts.items() if there})


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
            "token_log_probs": list(hypothesis.log_probs),
            "score": _finite(hypothesis.score),
            "length": hypothesis.length,
        }
        for text, hypothesis in zip(translation.texts, hypotheses, strict=False)
    ] or [{"text": "", "tokens": [], "log_prob": None, "token_log_probs": [], "score": None, "length": 0}]
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


def json_line(translation: Translation, shard: Shard, index: int) -> str:
    """The record of a line as JSON: its number in the whole input, from 1, its id, its source, and the rest."""
    origin = {
        "line": shard.first + index,
        "id": shard.ids[index] if shard.ids else None,
        "source": translation.source,
        "source_truncated": translation.source_truncated,
    }
    return json.dumps({**origin, **record_of(translation)}, ensure_ascii=False, allow_nan=False)


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


def warnings_of(counts: Mapping[str, int]) -> Sequence[str]:
    """What a user should know of the lines that were counted."""
    return [
        f"{count} line{'s' if count > 1 else ''}: {text}"
        for name, text in COUNTED.items()
        if (count := counts.get(name, 0))
    ]
