"""One recorded search, judged by one score and one rule."""

from __future__ import annotations

from uncurse import Decoding, Rescorer, Result, StoppingRule, Trace, judge


def judged(
    trace: Trace,
    score: Rescorer | str,
    stop: StoppingRule | str,
    n_best: int = 1,
    expected_length: float | None = None,
    max_length: int | None = None,
) -> Result:
    decoding = Decoding(trace.beam_size, score, stop, n_best, trace.slots)
    (result,) = judge(trace, [decoding], expected_length=expected_length, max_length=max_length)
    return result
