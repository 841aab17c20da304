"""A recorded search as one JSON value, which the page draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from uncurse.arrays import Floats
from uncurse.scoring.registry import Registry
from uncurse.scoring.result import Certificate
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES
from uncurse.search.explain import Candidate, Explanation, StopOutcome
from uncurse.search.trace import Trace

MAX_CANDIDATES: Final = 300  # besides those that some score and rule choose
DIGITS: Final = 5  # of the log-probabilities in a beam, which are only drawn

Decode = Callable[[Sequence[int]], str]


def explain_payload(explanation: Explanation, decode: Decode) -> dict[str, Any]:
    """Everything about a search: its beams, what finished, and what every score and rule makes of it."""
    trace, scores, rules = explanation.trace, explanation.scores, explanation.rules
    outcomes = explanation.outcomes()
    chosen = {each.result.hypotheses[0].tokens for each in outcomes}
    candidates = explanation.candidates(MAX_CANDIDATES, chosen)
    places = {candidate.tokens: place for place, candidate in enumerate(candidates)}
    return {
        "signature": trace.signature,
        "beam_size": trace.beam_size,
        "max_length": trace.max_length,
        "steps": trace.steps,
        "source_length": trace.source_length,
        "expected_length": explanation.expected_length,
        "finished": len(trace.finished_sums),
        "scores": [_method(SCORES, score) for score in scores],
        "rules": [_method(RULES, rule) for rule in rules],
        "candidates": [_candidate(each, decode) for each in candidates],
        "outcomes": [
            {"score": scores.index(each.score), "rule": rules.index(each.stop)} | _outcome(each, places, decode)
            for each in outcomes
        ],
        "bound_curves": [
            {"best": _finite(each.best), "bound": _finite(each.bound), "hopeful": each.hopeful.tolist()}
            for each in explanation.bound_curves()
        ],
        "beams": {
            "eos": trace.eos,
            "tokens": trace.tokens.tolist(),
            "parents": trace.parents.tolist(),
            "log_probs": [_finite(np.round(sums, DIGITS)) for sums in trace.sums],
            "token_texts": _token_texts(trace, decode),
        },
    }


def _method(registry: Registry[Any], method: object) -> dict[str, str]:
    entry = registry[registry.name(method)]
    return {"name": entry.name, "spec": registry.spec(method), "formula": entry.formula, "source": entry.source}


def _candidate(candidate: Candidate, decode: Decode) -> dict[str, Any]:
    return {
        "text": decode(candidate.tokens),
        "length": len(candidate.tokens),
        "rank": candidate.rank,
        "log_prob": candidate.log_prob,
        "scores": _finite(np.array(candidate.scores)),
    }


def _outcome(outcome: StopOutcome, places: dict[tuple[int, ...], int], decode: Decode) -> dict[str, Any]:
    """What a rule stops with; an output that was cut off is no candidate."""
    result = outcome.result
    best = result.hypotheses[0]
    finished = result.certificate is not Certificate.TRUNCATED
    return {
        "candidate": places[best.tokens] if finished else None,
        "text": decode(best.tokens),
        "length": best.length,
        "value": _number(best.score),
        "steps": result.steps,
        "model_rows": result.model_rows,
        "certificate": result.certificate.name,
        "gap": _number(result.gap),
        "loss": _number(outcome.loss),
    }


def _token_texts(trace: Trace, decode: Decode) -> dict[str, str]:
    """What each token of the beams adds to a prefix, spaces included; by its id, which is a string in JSON."""
    texts: dict[int, str] = {}
    for step in reversed(range(trace.steps)):  # the first step comes last: there decoding drops a leading space
        tokens = trace.tokens[step]
        for rank in np.flatnonzero(trace.is_live[step]).tolist():
            token = int(tokens[rank])
            if token not in texts:
                path = trace.hypothesis(step, rank, 0.0).tokens
                before, after = decode(path[:-1]), decode(path)
                texts[token] = after[len(before) :] if after.startswith(before) else decode([token])
    return {str(token): text for token, text in texts.items()}


def _finite(numbers: Floats) -> list[float | None]:
    return [_number(number) for number in numbers.tolist()]


def _number(number: float) -> float | None:
    return number if math.isfinite(number) else None
