"""A recorded search as the page sees it: one JSON value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from uncurse.arrays import Floats
from uncurse.explaining import Candidate, Explanation, Verdict
from uncurse.registry import Registry
from uncurse.rescoring import SCORES
from uncurse.result import Optimality
from uncurse.stopping import RULES
from uncurse.trace import Trace

MOST: Final = 300  # candidates that can be read, beside those that some score and rule would choose
DIGITS: Final = 5  # of the log-probabilities in a beam, which are there to be drawn

Text = Callable[[Sequence[int]], str]


def seen(explanation: Explanation, text: Text) -> dict[str, Any]:
    """Everything about a search: its beams, what finished, and what every score and rule makes of it."""
    trace = explanation.trace
    verdicts = explanation.verdicts()
    candidates = explanation.candidates(MOST, {each.result.hypotheses[0].tokens for each in verdicts})
    rules = [entry.method() for entry in RULES]
    places = {candidate.tokens: place for place, candidate in enumerate(candidates)}
    return {
        "signature": trace.signature,
        "beam": trace.width,
        "limit": trace.limit,
        "steps": trace.steps,
        "source_length": trace.source_length,
        "predicted_length": explanation.length,
        "finished": len(trace.finished_sums),
        "scores": [_method(SCORES, score) for score in explanation.scores],
        "rules": [_method(RULES, rule) for rule in rules],
        "candidates": [_candidate(each, text) for each in candidates],
        "verdicts": [
            {"score": explanation.scores.index(each.score), "rule": rules.index(each.rule)}
            | _verdict(each, places, text)
            for each in verdicts
        ],
        "courses": [
            {"best": _finite(each.best), "bound": _finite(each.bound), "hopeful": each.hopeful.tolist()}
            for each in explanation.courses()
        ],
        "beams": {
            "end": trace.end,
            "tokens": trace.tokens.tolist(),
            "parents": trace.parents.tolist(),
            "log_probs": [_finite(np.round(sums, DIGITS)) for sums in trace.sums],
            "pieces": _pieces(trace, text),
        },
    }


def _method(registry: Registry[Any], method: object) -> dict[str, str]:
    entry = registry[registry.name(method)]
    return {"name": entry.name, "spec": registry.spec(method), "formula": entry.formula, "source": entry.source}


def _candidate(candidate: Candidate, text: Text) -> dict[str, Any]:
    return {
        "text": text(candidate.tokens),
        "length": len(candidate.tokens),
        "rank": candidate.rank,
        "log_prob": candidate.log_prob,
        "scores": _finite(np.array(candidate.scores)),
    }


def _verdict(verdict: Verdict, places: dict[tuple[int, ...], int], text: Text) -> dict[str, Any]:
    """What a rule stops with; an output that is cut off is no candidate."""
    result = verdict.result
    best = result.hypotheses[0]
    finished = result.optimality is not Optimality.TRUNCATED
    return {
        "candidate": places[best.tokens] if finished else None,
        "text": text(best.tokens),
        "length": best.length,
        "value": _number(best.score),
        "steps": result.steps,
        "model_rows": result.rows,
        "certificate": result.optimality.name,
        "gap": _number(result.gap),
        "loss": _number(verdict.loss),
    }


def _pieces(trace: Trace, text: Text) -> dict[str, str]:
    """What each token of the beams adds to a prefix, spaces included; by its id, which in JSON is a string."""
    written: dict[int, str] = {}
    for step in reversed(range(trace.steps)):  # at the beginning of a line a space is lost, so that comes last
        tokens = trace.tokens[step]
        for rank in np.flatnonzero(trace.is_live[step]).tolist():
            token = int(tokens[rank])
            if token not in written:
                path = trace.hypothesis(step, rank, 0.0).tokens
                before, after = text(path[:-1]), text(path)
                written[token] = after[len(before) :] if after.startswith(before) else text([token])
    return {str(token): added for token, added in written.items()}


def _finite(numbers: Floats) -> list[float | None]:
    return [_number(number) for number in numbers.tolist()]


def _number(number: float) -> float | None:
    return number if math.isfinite(number) else None
