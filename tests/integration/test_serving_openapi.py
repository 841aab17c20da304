"""What `/openapi.json` says is true: Schemathesis makes requests of it, right and wrong, and reads the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance
from served import Quantiles, letters, serving

from uncurse import RULES, SCORES
from uncurse.serving.app import Service
from uncurse.serving.options import Limits

SERVICE = Service(letters(predictor=Quantiles()), "letters", Limits(sentences=4, width=8, deadline=30.0))
# How a string names a score or a limit is more than a schema can say: here are some that are right.
CHOICES = {
    "score": ["gnmt:alpha=0.2,beta=0.3", "word-reward:reward=-0.5", "bp-norm", "adaptive-reward", "log-prob"],
    "stop": ["beam-full:patience=2", "optimal", "predicted-horizon", "hf-heuristic", "exhaustive"],
}


def description() -> schemathesis.BaseSchema:
    described = SERVICE.app().openapi()
    for name in ("TranslationRequest", "ExplanationRequest"):
        fields = described["components"]["schemas"][name]["properties"]
        for field in fields.keys() & CHOICES.keys():
            fields[field]["enum"] = CHOICES[field]
        fields["max_length"]["anyOf"][0]["enum"] = ["12", "2x+1", "1.5x"]
    return schemathesis.openapi.from_dict(described)


schema = description()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(SERVICE) as address:
        yield address


def test_the_names_used_here_are_names() -> None:
    assert all(SCORES.parse(name) for name in CHOICES["score"])
    assert all(RULES.parse(name) for name in CHOICES["stop"])


@schema.parametrize()
@settings(max_examples=25, derandomize=True)
def test_every_answer_is_as_described(case: schemathesis.Case[Any], address: str) -> None:
    response = case.call(base_url=address)
    excluded: list[Any] = []
    if response.status_code == 503:  # some are given no time at all; that is no mistake of the service
        excluded.append(not_a_server_error)
    if response.status_code == 422 and "neither the score nor the stopping rule reads a length" in response.text:
        excluded.append(positive_data_acceptance)  # which fields go together is more than a schema can say, too
    case.validate_response(response, excluded_checks=excluded)
