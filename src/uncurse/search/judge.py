"""Judging a recorded search: what a live search with any score and stopping rule would have returned."""

from __future__ import annotations

from collections.abc import Sequence

from uncurse.errors import UncurseError
from uncurse.scoring.decoding import (
    Decoding,
    check_attends,
    check_expected_length,
    checked_count,
    checked_length,
)
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.result import Result
from uncurse.search.scored_trace import ScoredTrace
from uncurse.search.trace import Trace


def judge(
    trace: Trace,
    decodings: Sequence[Decoding],
    *,
    expected_length: float | None = None,
    max_length: int | None = None,
) -> list[Result]:
    """What live searches with these scores and stopping rules would have returned for the sentence of a trace.

    What decodings of one score have in common is done once.

    Args:
        trace: A recorded search, from `record` or `load_traces`.
        decodings: The scores and stopping rules, with the beam size and the slots of the recorded search.
        expected_length: L, for the scores and rules that need it.
        max_length: R, up to that of the recorded search, which is the default.

    Returns:
        One result for each decoding, in their order.
    """
    max_length = checked_count("max_length", trace.max_length if max_length is None else max_length)
    least = max(trace.min_length, 1)
    if not least <= max_length <= trace.max_length:
        raise UncurseError(
            f"max_length = {max_length} is not allowed: this trace answers for {least} to {trace.max_length}"
        )
    if expected_length is not None:
        expected_length = checked_length("expected_length", expected_length)
    alike: dict[tuple[Rescorer, int], dict[int, Decoding]] = {}
    for index, given in enumerate(decodings):
        decoding = given.with_score(knows_length=expected_length is not None)
        _check(trace, decoding, expected_length)
        alike.setdefault((decoding.rescorer, decoding.n_best), {})[index] = decoding
    results: dict[int, Result] = {}
    for (rescorer, n_best), chosen in alike.items():
        scored = ScoredTrace(trace, rescorer, n_best, expected_length, max_length)
        stops = [scored.stop_step(decoding.stop) for decoding in chosen.values()]
        certificates = scored.certificates(stops)
        for (index, decoding), stop, certificate in zip(chosen.items(), stops, certificates, strict=True):
            rows = scored.rows_until(stop, decoding.stop)
            results[index] = scored.result(decoding, stop, rows, certificate)
    return [results[index] for index in range(len(decodings))]


def _check(trace: Trace, decoding: Decoding, expected_length: float | None) -> None:
    recorded = trace.beam_size, trace.slots
    if (decoding.beam_size, decoding.slots) != recorded:
        raise UncurseError(
            f"beam_size = {decoding.beam_size}, slots = {decoding.slots.value!r} is not allowed: this trace was"
            f" recorded with {trace.beam_size} and {trace.slots.value!r}"
        )
    if decoding.needs.expected_length:
        check_expected_length(expected_length)
    if decoding.needs.coverage:
        check_attends(trace.coverage is not None)
