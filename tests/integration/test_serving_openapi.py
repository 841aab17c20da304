"""The OpenAPI document is true: Schemathesis makes valid and invalid requests from it and checks the responses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import torch
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance
from support.service import QuantilePredictor, letter_translator, serving

from uncurse import RULES, SCORES
from uncurse.serving.app import Service
from uncurse.serving.limits import ServiceLimits

SERVICE = Service(
    letter_translator(predictor=QuantilePredictor()),
    "letters",
    ServiceLimits(sentences=4, beam_size=8, deadline=30.0),
)
# A schema cannot say which strings name a score or a maximum length: these do.
CHOICES = {
    "score": ["gnmt:alpha=0.2,beta=0.3", "word-reward:reward=-0.5", "bp-norm", "adaptive-reward", "log-prob"],
    "stop": ["beam-full:patience=2", "optimal", "predicted-horizon", "hf-heuristic", "exhaustive"],
}


def document() -> schemathesis.BaseSchema:
    found = SERVICE.app().openapi()
    for name in ("TranslationRequest", "ExplanationRequest"):
        fields = found["components"]["schemas"][name]["properties"]
        for field in fields.keys() & CHOICES.keys():
            string = next(each for each in fields[field].get("anyOf", [fields[field]]) if each["type"] == "string")
            string["enum"] = CHOICES[field]
        fields["max_length"]["anyOf"][1]["enum"] = ["12", "2x+1", "1.5x"]
    return schemathesis.openapi.from_dict(found)


schema = document()


@pytest.fixture(scope="module", autouse=True)
def subnormal_numbers() -> None:
    """Where an earlier test left a CPU that takes subnormal numbers for 0, "more than 0" would be tried with 0."""
    torch.set_flush_denormal(False)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(SERVICE) as address:
        yield address


def test_the_names_used_here_exist() -> None:
    assert all(SCORES.parse(name) for name in CHOICES["score"])
    assert all(RULES.parse(name) for name in CHOICES["stop"])


@schema.parametrize()
@settings(max_examples=25, derandomize=True)
def test_every_response_is_as_described(case: schemathesis.Case[Any], address: str) -> None:
    response = case.call(base_url=address, timeout=2 * SERVICE.limits.deadline)
    excluded: list[Any] = []
    if response.status_code == 503:  # a deadline too short to begin a search
        excluded.append(not_a_server_error)
    beyond_schemas = (
        "neither the score|min_length = .* is not allowed|; the maximum|the maximum is"
        "|it needs an n_best above 1|the sentence is empty|can only spell|the constraint"
    )
    if response.status_code == 422 and re.search(beyond_schemas, response.text):
        excluded.append(positive_data_acceptance)  # a schema cannot say which values go together
    case.validate_response(response, excluded_checks=excluded)
