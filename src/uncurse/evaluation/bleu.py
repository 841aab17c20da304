"""BLEU, length ratios, and degenerate outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from sacrebleu.metrics.bleu import BLEU, BLEUScore

from uncurse.errors import UncurseError


@final
@dataclass(frozen=True)
class Quality:
    """What can be said of a set of translations against its references."""

    bleu: float
    brevity_penalty: float
    ratio: float  # output words to those of the closest references
    empty: float  # share of outputs without a word
    repeating: float  # share of outputs with a 4-gram that occurs three times or more
    signature: str  # of BLEU


def quality(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool) -> Quality:
    """Measure outputs against reference files, each with a line for each output."""
    if not outputs:
        raise UncurseError("there are no outputs to measure")
    for index, reference in enumerate(references):
        if len(reference) != len(outputs):
            raise UncurseError(
                f"reference {index} has {len(reference)} lines and there are {len(outputs)} outputs"
            )
    metric = BLEU(lowercase=lowercase)
    score = metric.corpus_score(list(outputs), [list(reference) for reference in references])
    assert isinstance(score, BLEUScore)
    return Quality(
        bleu=score.score,
        brevity_penalty=score.bp,
        ratio=score.sys_len / max(score.ref_len, 1),
        empty=sum(not output.strip() for output in outputs) / len(outputs),
        repeating=sum(repeats(output) for output in outputs) / len(outputs),
        signature=str(metric.get_signature()),
    )


def repeats(text: str, order: int = 4, times: int = 3) -> bool:
    """Whether some run of `order` words occurs `times` times or more."""
    words = text.split()
    counts = Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))
    return max(counts.values(), default=0) >= times
