"""Limits that a request soon exceeds, and the problem details that it then gets."""

from __future__ import annotations

import re
from typing import Any

from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE
from uncurse.serving.errors import Problem
from uncurse.serving.limits import ServiceLimits

LIMITS = ServiceLimits(
    body=20_000, sentences=5, source_length=30, beam_size=DEFAULT_BEAM_SIZE + 2, waiting=8, deadline=50.0
)
TOO_MANY = LIMITS.beam_size + 1


def problem_of(response: Any, status: int) -> Problem:
    """The problem in a response, which must have this status and tell nothing internal."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate_json(response.text)
    assert problem.status == status
    assert not re.search(r"Traceback|\.py\b|/usr/|/tmp/|site-packages", response.text)
    return problem
