"""What is written for each line that was translated, and files of it that can be gone on with."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from uncurse.files import write_whole
from uncurse.translator import Translation


def record_of(translation: Translation) -> dict[str, Any]:
    """What a JSON line says of a translation: the best, the search, and the others of an n-best list.

    Numbers that are infinite become null, and so does what an empty line, or a search that never began, does not
    have.
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
        "predicted_length": translation.predicted,
        "certificate": result.optimality.name if result else None,
        "gap": _finite(result.gap) if result else None,
        "steps": result.steps if result else 0,
        "model_rows": result.rows if result else 0,
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
    return translation.texts[0] if translation.texts else ""


def n_best_lines(translation: Translation, number: int) -> str:
    """Every translation with the number of its line, from 0, and its score, as Moses writes n-best lists."""
    scores = [each.score for each in translation.result.hypotheses] if translation.result else [0.0]
    return "\n".join(
        f"{number} ||| {text} ||| {score:.6f}"
        for text, score in zip(translation.texts or ("",), scores or [0.0], strict=True)
    )


@final
class OutputFile:
    """A file that grows by windows of lines under a temporary name and is renamed when it is whole.

    Beside it a note says how far it has come, from which input and by which means, so that a run that was broken
    off can go on: from the last whole window, to the same bytes.
    """

    def __init__(self, path: Path, means: str, resume: bool) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._note = path.with_name(path.name + ".note")
        self._means = means
        self._input = sha256()
        self.lines_done = 0
        known: dict[str, Any] = {"bytes": 0, "lines": 0, "input": self._input.hexdigest(), "means": means}
        if resume and self._note.exists() and self._part.exists():
            known = json.loads(self._note.read_text(encoding="utf-8"))
            if known["means"] != means:
                raise ValueError(f"{self._part} was made in another way: {known['means']} and not {means}")
        self._known = known

    def skip_done(self, lines: Iterator[str]) -> None:
        """Pass over the lines that are done; they must be the lines that were done."""
        for _ in range(self._known["lines"]):
            self._count(next(lines, None))
        if self._input.hexdigest() != self._known["input"]:
            raise ValueError(f"the input is not the one that {self._part} was made from")
        with self._part.open("ab") as file:
            file.truncate(self._known["bytes"])

    def add(self, sources: Sequence[str], texts: Sequence[str]) -> None:
        """Add a window of lines."""
        with self._part.open("ab") as file:
            file.write("".join(f"{text}\n" for text in texts).encode())
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        for line in sources:
            self._count(line)
        note = {"bytes": size, "lines": self.lines_done, "input": self._input.hexdigest(), "means": self._means}
        write_whole(self._note, json.dumps(note).encode())

    def finish(self) -> None:
        """All lines are there."""
        self._part.replace(self._path)
        self._note.unlink(missing_ok=True)

    def _count(self, line: str | None) -> None:
        if line is None:
            raise ValueError(f"the input is shorter than the one that {self._part} was made from")
        self._input.update(line.encode() + b"\n")
        self.lines_done += 1
