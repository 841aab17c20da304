"""The service over HTTP: what it answers, what it refuses, and how it says so."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from problems import LIMITS, problem_of
from served import Quantiles, letters, serving

from uncurse import RULES, SCORES, Decoding, parse_limit
from uncurse.records import record_of
from uncurse.serving import answering
from uncurse.serving.app import Service
from uncurse.translator import Task

LINES = ["abc", "", "fed cba"]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Service(letters(predictor=Quantiles()), "letters", LIMITS).app()) as client:
        yield client


@pytest.mark.parametrize(
    ("options", "task"),
    [
        ({}, Task()),
        ({"beam": 4, "score": "length-norm:alpha=0.5"}, Task(Decoding.of(4, "length-norm:alpha=0.5"))),
        ({"beam": 4.0, "n_best": 3, "stop": "beam-full"}, Task(Decoding.of(4, stop="beam-full", n_best=3))),
        ({"slots": "refill", "max_length": "q0.95"}, Task(Decoding.of(slots="refill"), parse_limit("q0.95"))),
        ({"ratio": 2, "max_length": "2x+3", "deadline": 20}, Task(limit=parse_limit("2x+3"), ratio=2.0)),
    ],
)
def test_sentences_are_answered_as_uncurse_translate_does(
    client: TestClient, options: dict[str, Any], task: Task
) -> None:
    response = client.post("/translate", json={"sentences": LINES, **options})
    assert response.status_code == 200
    found = response.json()
    answering.Translations.model_validate(found)
    translator = letters(predictor=Quantiles())
    expected = [record_of(each) | {"in_time": True} for each in translator.stream(LINES, task)]
    assert found == {"model": "letters", "translations": expected}


def test_an_explanation_agrees_with_translations(client: TestClient) -> None:
    alike = {"beam": 6, "max_length": "q0.8"}
    found = client.post("/explain", json={"sentence": "fed cba", **alike, "reward": 0.5}).json()
    answering.Explanation.model_validate(found)
    assert [score["name"] for score in found["scores"]] == [entry.name for entry in SCORES]
    assert [rule["name"] for rule in found["rules"]] == [entry.name for entry in RULES]
    for verdict in found["verdicts"]:
        options = {
            **alike,
            "score": found["scores"][verdict["score"]]["spec"],
            "stop": found["rules"][verdict["rule"]]["spec"],
        }
        answer = client.post("/translate", json={"sentences": ["fed cba"], **options}).json()
        (translated,) = answer["translations"]
        assert translated["text"] == verdict["text"] == found["candidates"][verdict["candidate"]]["text"]
        assert translated["score"] == verdict["value"]
        assert [translated[name] for name in ("steps", "model_rows", "certificate", "gap", "length")] == [
            verdict[name] for name in ("steps", "model_rows", "certificate", "gap", "length")
        ]
        assert translated["signature"].startswith(found["signature"])


def test_the_search_that_is_shown_is_the_search_that_was_made(client: TestClient) -> None:
    found = client.post("/explain", json={"sentence": "fed cba", "beam": 6}).json()
    beams = found["beams"]
    assert len(beams["tokens"]) == len(beams["log_probs"]) == found["steps"] == found["limit"]

    def text(step: int, rank: int) -> str:
        words: list[str] = []
        for at in range(step, -1, -1):
            words.append(beams["pieces"].get(str(beams["tokens"][at][rank]), ""))
            rank = beams["parents"][at][rank]
        return "".join(reversed(words)).strip()

    ended = [
        (step, rank)
        for step, tokens in enumerate(beams["tokens"])
        for rank, token in enumerate(tokens)
        if token == beams["end"]
    ]
    assert len(ended) == found["finished"] == len(found["candidates"])
    for candidate, (step, rank) in zip(found["candidates"], ended, strict=True):
        assert (candidate["length"], candidate["rank"]) == (step + 1, rank)
        assert candidate["text"] == text(step, rank)
        assert candidate["log_prob"] == pytest.approx(beams["log_probs"][step][rank], abs=1e-5)


def test_the_moment_of_proof_is_where_the_best_meets_the_bound(client: TestClient) -> None:
    found = client.post("/explain", json={"sentence": "fed cba", "beam": 6}).json()
    optimal = [rule["name"] for rule in found["rules"]].index("optimal")
    for place, course in enumerate(found["courses"]):
        (verdict,) = [each for each in found["verdicts"] if (each["score"], each["rule"]) == (place, optimal)]
        proved = [
            step
            for step, (best, bound) in enumerate(zip(course["best"], course["bound"], strict=True), start=1)
            if best is not None and bound is not None and best >= bound
        ]
        assert verdict["steps"] == min([*proved, found["limit"]])
        known = [best for best in course["best"] if best is not None]
        assert known == sorted(known)
        bounds = [bound for bound in course["bound"] if bound is not None]
        assert bounds == sorted(bounds, reverse=True)
        assert course["hopeful"][-1] == 0


FIELDS = [
    ({}, ["#/sentences"]),
    ({"sentences": []}, ["#/sentences"]),
    ({"sentences": "abc"}, ["#/sentences"]),
    ({"sentences": ["a"] * 6}, ["#/sentences"]),
    ({"sentences": ["a", 7]}, ["#/sentences/1"]),
    ({"sentences": ["a", "ab" * 16]}, ["#/sentences/1"]),
    ({"sentences": ["a"], "beam": 13}, ["#/beam"]),
    ({"sentences": ["a"], "beam": 0}, ["#/beam"]),
    ({"sentences": ["a"], "beam": "3"}, ["#/beam"]),
    ({"sentences": ["a"], "beam": True}, ["#/beam"]),
    ({"sentences": ["a"], "beam": 2.5}, ["#/beam"]),
    ({"sentences": ["a"], "n_best": 13}, ["#/n_best"]),
    ({"sentences": ["a"], "score": "bp-nrm"}, ["#/score"]),
    ({"sentences": ["a"], "score": "gnmt:alpha=nan"}, ["#/score"]),
    ({"sentences": ["a"], "stop": "never"}, ["#/stop"]),
    ({"sentences": ["a"], "slots": "some"}, ["#/slots"]),
    ({"sentences": ["a"], "max_length": "lots"}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": "q0.7"}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": "q0.8", "ratio": 1.5}, ["#/max_length"]),
    ({"sentences": ["a"], "max_length": "999999"}, ["#/max_length"]),
    ({"sentences": ["a"], "ratio": 0}, ["#/ratio"]),
    ({"sentences": ["a"], "ratio": 1.5, "score": "log-prob"}, ["#/ratio"]),
    ({"sentences": ["a"], "deadline": 51}, ["#/deadline"]),
    ({"sentences": ["a"], "deadline": -1}, ["#/deadline"]),
    ({"sentences": ["a"], "bem": 1, "beam": "x"}, ["#/beam", "#/bem"]),
    ({"sentences": ["a"], "/~": 1}, ["#/~1~0"]),
    (["a"], ["#"]),
]


@pytest.mark.parametrize(("body", "pointers"), FIELDS, ids=lambda value: json.dumps(value)[:40])
def test_the_field_at_fault_is_named(client: TestClient, body: Any, pointers: list[str]) -> None:
    problem = problem_of(client.post("/translate", json=body), 422)
    assert [each.pointer for each in problem.errors] == pointers


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"sentence": ""}, "#/sentence"),
        ({"sentence": " \n"}, "#/sentence"),
        ({"sentence": "ab" * 16}, "#/sentence"),
        ({"sentence": "a", "beam": 13}, "#/beam"),
        ({"sentence": "a", "reward": 1e9}, "#/reward"),
        ({"sentence": "a", "score": "bp-norm"}, "#/score"),
    ],
)
def test_so_it_is_for_explanations(client: TestClient, body: dict[str, Any], pointer: str) -> None:
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
        (b'{"sentences": ["a"], "ratio": NaN}', 422),
        (b'{"sentences": ["a"], "ratio": 1e999}', 422),
        (b'{"sentences": ["a"], "beam": ' + b"9" * 5000 + b"}", 400),
    ],
    ids=repr,
)
def test_bodies_that_are_no_requests_are_problems(client: TestClient, content: bytes, status: int) -> None:
    problem_of(client.post("/translate", content=content, headers={"content-type": "application/json"}), status)


def test_a_mistyped_field_or_name_comes_with_the_right_one(client: TestClient) -> None:
    problem = problem_of(client.post("/translate", json={"sentences": ["a"], "bem": 1}), 422)
    assert problem.errors[0].detail == "there is no such field; did you mean 'beam'?"
    problem = problem_of(client.post("/translate", json={"sentences": ["a"], "score": "bp-nrm"}), 422)
    assert "did you mean 'bp-norm'?" in problem.errors[0].detail


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


def test_a_connection_goes_on_after_a_body_that_was_too_large() -> None:
    with serving(Service(letters(), "letters", LIMITS)) as address:
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
def test_other_kinds_of_bodies_are_refused(client: TestClient, kind: str) -> None:
    problem_of(client.post("/translate", content=b'{"sentences": ["a"]}', headers={"content-type": kind}), 415)


def test_what_is_not_there_is_a_problem_too(client: TestClient) -> None:
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


def test_every_answer_has_the_headers_that_make_it_safe(client: TestClient) -> None:
    for path in ("/", "/health", "/methods", "/metrics", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]


def test_methods_and_health_say_what_there_is(client: TestClient) -> None:
    methods = answering.Methods.model_validate(client.get("/methods").json())
    assert [each.name for each in methods.scores] == [entry.name for entry in SCORES]
    assert [each.name for each in methods.stopping_rules] == [entry.name for entry in RULES]
    assert (methods.limits.width, methods.limits.sentences, methods.limits.tokens) == (12, 5, 70)
    health = answering.Health.model_validate(client.get("/health").json())
    assert (health.model, health.waiting, health.searching) == ("letters", 0, 0)
