"""Limits that requests soon exceed, and the problems that the service then tells."""

from __future__ import annotations

import re
from typing import Any

from uncurse.serving.options import Limits
from uncurse.serving.problems import Problem

LIMITS = Limits(body=20_000, sentences=5, pieces=30, width=12, waiting=8, deadline=50.0)


def problem_of(response: Any, status: int) -> Problem:
    """The problem that a response tells, if it is one and says nothing of the inside."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate_json(response.text)
    assert problem.status == status
    assert not re.search(r"Traceback|\.py\b|/usr/|/tmp/|site-packages", response.text)
    return problem
