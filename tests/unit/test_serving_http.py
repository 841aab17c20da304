"""The HTTP service: what it answers, what it refuses, and how it says so."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from support.problems import LIMITS, TOO_MANY, problem_of
from support.service import QuantilePredictor, letter_translator, serving

from uncurse import RULES, SCORES, Decoding, parse_max_length
from uncurse.models.loaded_model import ModelOptions
from uncurse.serving import responses
from uncurse.serving.app import Service
from uncurse.serving.server import model_flags
from uncurse.translation.options import TranslationOptions
from uncurse.translation.output_constraints import OutputConstraints
from uncurse.translation.records import record_of

LINES = ["abc", "", "fed cba"]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Service(letter_translator(predictor=QuantilePredictor()), "letters", LIMITS).app()) as client:
        yield client


@pytest.mark.parametrize(
    ("options", "translation_options"),
    [
        ({}, TranslationOptions()),
        (
            {"beam_size": 4, "score": "length-norm:alpha=0.5"},
            TranslationOptions(Decoding(4, "length-norm:alpha=0.5")),
        ),
        (
            {"beam_size": 4.0, "n_best": 3, "stop": "beam-full"},
            TranslationOptions(Decoding(4, stop="beam-full", n_best=3)),
        ),
        (
            {"slots": "refill", "max_length": "q0.95"},
            TranslationOptions(Decoding(slots="refill"), parse_max_length("q0.95")),
        ),
        (
            {"length_ratio": 2, "max_length": "2x+3", "deadline": 20},
            TranslationOptions(max_length=parse_max_length("2x+3"), length_ratio=2.0),
        ),
        ({"max_length": 7}, TranslationOptions(max_length=parse_max_length("7"))),
        (
            {"min_length": 8, "target_prefix": "fa", "n_best": 2},
            TranslationOptions(Decoding(n_best=2), min_length=8, target_prefix="fa"),
        ),
        (
            {"ban": ["a"], "no_repeat_ngram": 2},
            TranslationOptions(constraints=OutputConstraints(ban=("a",), no_repeat_ngram=2)),
        ),
    ],
)
def test_sentences_are_answered_as_the_translator_answers_them(
    client: TestClient, options: dict[str, Any], translation_options: TranslationOptions
) -> None:
    response = client.post("/translate", json={"sentences": LINES, **options})
    assert response.status_code == 200
    found = response.json()
    responses.TranslationsResponse.model_validate(found)
    translator = letter_translator(predictor=QuantilePredictor())
    expected = [record_of(each) | {"in_time": True} for each in translator.stream(LINES, translation_options)]
    assert found == {"model": "letters", "translations": expected}


@pytest.mark.parametrize(
    ("options", "pointer", "detail"),
    [
        ({"only": []}, "#/only", "it must have at least 1 item"),
        ({"ban": [" "]}, "#/ban/0", "it must not be empty"),
        ({"only": ["xyz"]}, "#/only", "this model can only spell"),
        ({"no_repeat_ngram": 1, "min_length": 9, "max_length": 9}, "#/sentences/0", "lets nothing follow"),
    ],
)
def test_a_constraint_that_allows_nothing_is_a_problem_of_the_request(
    client: TestClient, options: dict[str, Any], pointer: str, detail: str
) -> None:
    response = client.post("/translate", json={"sentences": ["abc"], **options})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["pointer"] == pointer
    assert detail in error["detail"]


def test_an_explanation_agrees_with_translations(client: TestClient) -> None:
    alike = {"beam_size": 6, "max_length": "q0.8"}
    found = client.post("/explain", json={"sentence": "fed cba", **alike, "reward": 0.5}).json()
    responses.ExplanationResponse.model_validate(found)
    assert [score["name"] for score in found["scores"]] == list(SCORES)
    assert [rule["name"] for rule in found["rules"]] == list(RULES)
    for outcome in found["outcomes"]:
        options = {
            **alike,
            "score": found["scores"][outcome["score"]]["spec"],
            "stop": found["rules"][outcome["rule"]]["spec"],
        }
        answer = client.post("/translate", json={"sentences": ["fed cba"], **options}).json()
        (translated,) = answer["translations"]
        assert translated["text"] == outcome["text"] == found["candidates"][outcome["candidate"]]["text"]
        assert translated["score"] == outcome["value"]
        assert [translated[name] for name in ("steps", "model_rows", "certificate", "gap", "length")] == [
            outcome[name] for name in ("steps", "model_rows", "certificate", "gap", "length")
        ]
        assert translated["signature"].startswith(found["signature"])


def test_the_beams_of_an_explanation_are_those_of_the_search(client: TestClient) -> None:
    found = client.post("/explain", json={"sentence": "fed cba", "beam_size": 6}).json()
    beams = found["beams"]
    assert len(beams["tokens"]) == len(beams["log_probs"]) == found["steps"] == found["max_length"]

    def text(step: int, rank: int) -> str:
        words: list[str] = []
        for at in range(step, -1, -1):
            words.append(beams["token_texts"].get(str(beams["tokens"][at][rank]), ""))
            rank = beams["parents"][at][rank]
        return "".join(reversed(words)).strip()

    ended = [
        (step, rank)
        for step, tokens in enumerate(beams["tokens"])
        for rank, token in enumerate(tokens)
        if token == beams["eos"]
    ]
    assert len(ended) == found["finished"] == len(found["candidates"])
    for candidate, (step, rank) in zip(found["candidates"], ended, strict=True):
        assert (candidate["length"], candidate["rank"]) == (step + 1, rank)
        assert candidate["text"] == text(step, rank)
        assert candidate["log_prob"] == pytest.approx(beams["log_probs"][step][rank], abs=1e-5)


def test_the_optimal_rule_stops_where_the_best_meets_the_bound(client: TestClient) -> None:
    found = client.post("/explain", json={"sentence": "fed cba", "beam_size": 6}).json()
    optimal = [rule["name"] for rule in found["rules"]].index("optimal")
    for place, curve in enumerate(found["bound_curves"]):
        (outcome,) = [each for each in found["outcomes"] if (each["score"], each["rule"]) == (place, optimal)]
        proved = [
            step
            for step, (best, bound) in enumerate(zip(curve["best"], curve["bound"], strict=True), start=1)
            if best is not None and bound is not None and best >= bound
        ]
        assert outcome["steps"] == min([*proved, found["max_length"]])
        known = [best for best in curve["best"] if best is not None]
        assert known == sorted(known)
        bounds = [bound for bound in curve["bound"] if bound is not None]
        assert bounds == sorted(bounds, reverse=True)
        assert curve["hopeful"][-1] == 0


FIELDS = [
    ({}, ["#/sentences"]),
    ({"sentences": []}, ["#/sentences"]),
    ({"sentences": "abc"}, ["#/sentences"]),
    ({"sentences": ["a"] * 6}, ["#/sentences"]),
    ({"sentences": ["a", 7]}, ["#/sentences/1"]),
    ({"sentences": ["a", "ab" * 16]}, ["#/sentences/1"]),
    ({"sentences": ["a"], "beam_size": TOO_MANY}, ["#/beam_size"]),
    ({"sentences": ["a"], "beam_size": 0}, ["#/beam_size"]),
    ({"sentences": ["a"], "beam_size": "3"}, ["#/beam_size"]),
    ({"sentences": ["a"], "beam_size": True}, ["#/beam_size"]),
    ({"sentences": ["a"], "beam_size": 2.5}, ["#/beam_size"]),
    ({"sentences": ["a"], "n_best": TOO_MANY}, ["#/n_best"]),
    ({"sentences": ["a"], "score": "bp-nrm"}, ["#/score"]),
    ({"sentences": ["a"], "score": "gnmt:alpha=nan"}, ["#/score"]),
    ({"sentences": ["a"], "stop": "never"}, ["#/stop"]),
    ({"sentences": ["a"], "slots": "some"}, ["#/slots"]),
    ({"sentences": ["a"], "max_length": "lots"}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": 71}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": 2.5}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": [5]}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": "9" * 41}, ["#/max_length"]),
    ({"sentences": ["a"], "distinct": True}, ["#/distinct"]),
    ({"sentences": ["a"], "n_best": 2, "distinct": 1}, ["#/distinct"]),
    ({"sentences": ["a"], "min_length": -1}, ["#/min_length"]),
    ({"sentences": ["a"], "min_length": 9, "max_length": 8}, ["#/min_length"]),
    ({"sentences": ["a"], "min_length": 71}, ["#/min_length"]),
    ({"sentences": ["a"], "target_prefix": 7}, ["#/target_prefix"]),
    ({"sentences": ["a"], "target_prefix": "a" * 70}, ["#/target_prefix"]),
    ({"sentences": ["a"], "max_length": "q0.7"}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": "q0.8", "length_ratio": 1.5}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": "999999"}, ["#/max_length"]),
    ({"sentences": ["a"], "length_ratio": 0}, ["#/length_ratio"]),
    ({"sentences": ["a"], "length_ratio": 1.5, "score": "log-prob"}, ["#/length_ratio"]),
    ({"sentences": ["a"], "deadline": 51}, ["#/deadline"]),
    ({"sentences": ["a"], "deadline": -1}, ["#/deadline"]),
    ({"sentences": ["a"], "bem_size": 1, "beam_size": "x"}, ["#/beam_size", "#/bem_size"]),
    ({"sentences": ["a"], "/~": 1}, ["#/~1~0"]),
    (["a"], ["#"]),
]


@pytest.mark.parametrize(("body", "pointers"), FIELDS, ids=lambda value: json.dumps(value)[:40])
def test_an_invalid_field_is_named(client: TestClient, body: Any, pointers: list[str]) -> None:
    problem = problem_of(client.post("/translate", json=body), 422)
    assert [each.pointer for each in problem.errors] == pointers


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"sentence": ""}, "#/sentence"),
        ({"sentence": " \n"}, "#/sentence"),
        ({"sentence": "ab" * 16}, "#/sentence"),
        ({"sentence": "a", "beam_size": TOO_MANY}, "#/beam_size"),
        ({"sentence": "a", "reward": 1e9}, "#/reward"),
        ({"sentence": "a", "reward": 10**400}, "#/reward"),
        ({"sentence": "a", "max_length": 10**400}, "#/max_length"),
        ({"sentence": "a", "score": "bp-norm"}, "#/score"),
    ],
)
def test_an_invalid_field_of_an_explanation_is_named(
    client: TestClient, body: dict[str, Any], pointer: str
) -> None:
    assert [each.pointer for each in problem_of(client.post("/explain", json=body), 422).errors] == [pointer]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"\xff", 400),
        (b"[" * 9000, 400),
        (b'{"sentences": ["\\ud800"]}', 422),
        (b'{"sentences": ["a"], "\\ud800": 1}', 422),
        (b'{"sentences": ["a"], "length_ratio": NaN}', 422),
        (b'{"sentences": ["a"], "length_ratio": 1e999}', 422),
        (b'{"sentences": ["a"], "beam_size": ' + b"9" * 5000 + b"}", 400),
        *(
            (b'{"sentences": ["a"], "%s": %s}' % (field, b"9" * 400), 422)
            for field in (b"beam_size", b"n_best", b"max_length", b"min_length", b"length_ratio", b"deadline")
        ),
    ],
    ids=repr,
)
def test_bodies_that_are_not_requests_are_problems(client: TestClient, content: bytes, status: int) -> None:
    problem_of(client.post("/translate", content=content, headers={"content-type": "application/json"}), status)


def test_a_mistyped_field_or_name_gets_a_suggestion(client: TestClient) -> None:
    problem = problem_of(client.post("/translate", json={"sentences": ["a"], "bem_size": 1}), 422)
    assert problem.errors[0].detail == "there is no such field; did you mean 'beam_size'?"
    problem = problem_of(client.post("/translate", json={"sentence": "a"}), 422)
    assert [each.detail for each in problem.errors if each.pointer == "#/sentence"] == [
        "there is no such field; did you mean 'sentences'?"
    ]
    problem = problem_of(client.post("/explain", json={"sentence": "a", "target_prefix": "a"}), 422)
    assert "target_prefix" not in problem.errors[0].detail
    problem = problem_of(client.post("/translate", json={"sentences": ["a"], "score": "bp-nrm"}), 422)
    assert "did you mean 'bp-norm'?" in problem.errors[0].detail


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "it is required"),
        ("a", "it must be an object with fields"),
        ({"sentences": "a"}, "it must be a list"),
        ({"sentences": ["a"], "beam_size": "ten"}, "it must be a whole number"),
        ({"sentences": ["a"], "beam_size": 10**400}, "it must be at most 100000"),
        ({"sentences": ["a"], "deadline": 10**400}, "it must be a finite number"),
        ({"sentences": ["a"], "length_ratio": -(10**400)}, "it must be a finite number"),
        ({"sentences": ["a"], "length_ratio": True}, "it must be a number"),
        ({"sentences": ["a"], "n_best": 2, "distinct": "yes"}, "it must be true or false"),
        (
            {"sentences": ["a"], "max_length": 10**400},
            "it must be a whole number in 1 … 100000, or a short text: 2x+10, q0.95 or predicted",
        ),
        ({"sentences": ["a"], "slots": "ocupy"}, "it must be 'occupy' or 'refill'"),
    ],
)
def test_what_is_wrong_with_a_field_is_said_plainly(client: TestClient, body: Any, reason: str) -> None:
    assert [each.detail for each in problem_of(client.post("/translate", json=body), 422).errors] == [reason]


def test_a_large_body_is_not_read(client: TestClient) -> None:
    kind = {"content-type": "application/json"}
    problem_of(client.post("/translate", content=b"x" * 20_001, headers=kind), 413)
    read = 0

    def chunks() -> Iterator[bytes]:
        nonlocal read
        for _ in range(30):
            read += 1000
            yield b"x" * 1000

    response = client.post("/translate", content=chunks(), headers=kind)
    assert "content-length" not in response.request.headers
    problem_of(response, 413)


def test_a_connection_stays_open_after_a_body_that_was_too_large() -> None:
    with serving(Service(letter_translator(), "letters", LIMITS)) as address:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
        kind = {"Content-Type": "application/json"}
        connection.request("POST", "/translate", b"x" * 300_000, kind)
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["status"]) == (413, 413)
        connection.request("POST", "/translate", b'{"sentences": ["a"]}', kind)
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["model"]) == (200, "letters")
        connection.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_other_content_types_are_refused(client: TestClient, kind: str) -> None:
    problem_of(client.post("/translate", content=b'{"sentences": ["a"]}', headers={"content-type": kind}), 415)


def test_an_unknown_path_or_method_is_a_problem(client: TestClient) -> None:
    problem_of(client.get("/nothing"), 404)
    problem_of(client.get("/docs"), 404)
    problem_of(client.post("/translate/", json={"sentences": ["a"]}), 404)
    assert problem_of(client.get("/translate"), 405)
    assert client.get("/translate").headers["allow"] == "POST"


def test_pages_of_other_origins_get_nothing(client: TestClient) -> None:
    origin = {"origin": "https://elsewhere.example", "access-control-request-method": "POST"}
    problem_of(client.options("/translate", headers=origin), 405)
    for response in (
        client.options("/translate", headers=origin),
        client.get("/health", headers=origin),
        client.post("/translate", json={"sentences": ["a"]}, headers=origin),
    ):
        assert not [name for name in response.headers if name.startswith("access-control")]


def test_every_response_has_the_security_headers(client: TestClient) -> None:
    for path in ("/", "/health", "/methods", "/metrics", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


def test_methods_and_health_describe_the_service(client: TestClient) -> None:
    methods = responses.MethodsResponse.model_validate(client.get("/methods").json())
    assert [each.name for each in methods.scores] == list(SCORES)
    assert [each.name for each in methods.rules] == list(RULES)
    assert (methods.limits.beam_size, methods.limits.sentences, methods.limits.max_length) == (
        LIMITS.beam_size,
        5,
        70,
    )
    health = responses.HealthResponse.model_validate(client.get("/health").json())
    assert (health.model, health.waiting, health.searching) == ("letters", 0, 0)


def test_the_flags_of_a_model_are_those_that_were_given() -> None:
    assert model_flags(ModelOptions(model="opus")) == ""
    options = ModelOptions(
        model="opus", dtype="int8", prompt="{text} is", vocabulary_selection=True, length_predictor="/a/b"
    )
    flags = "--dtype int8 --prompt '{text} is' --vocabulary-selection --length-predictor b"
    assert model_flags(options) == flags
