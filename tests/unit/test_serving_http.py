"""The service over HTTP: what it answers, what it refuses, and how it says so."""

from __future__ import annotations

import asyncio
import hmac
import http.client
import json
import re
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from served import Held, Letters, Quantiles, letters, serving

from uncurse import RULES, SCORES, Continuations, Decoding, parse_limit
from uncurse.arrays import Ints
from uncurse.length import FixedRatio
from uncurse.records import record_of
from uncurse.serving import answering
from uncurse.serving.app import Service
from uncurse.serving.options import Limits
from uncurse.serving.problems import Problem
from uncurse.serving.worker import Worker
from uncurse.testing.models import RandomState
from uncurse.translator import Task, Translator

LIMITS = Limits(body=20_000, sentences=5, pieces=30, width=12, waiting=8, deadline=50.0)
LINES = ["abc", "", "fed cba"]
T = TypeVar("T")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Service(letters(predictor=Quantiles()), "letters", LIMITS).app()) as client:
        yield client


def problem_of(response: Any, status: int) -> Problem:
    """The problem that a response tells, if it is one and says nothing of the inside."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate_json(response.text)
    assert problem.status == status
    assert not re.search(r"Traceback|\.py\b|/usr/|/tmp/|site-packages", response.text)
    return problem


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


def numbers(client: TestClient) -> dict[str, float]:
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def test_metrics_count_what_happens_and_do_not_grow_with_what_is_asked_for() -> None:
    with TestClient(Service(letters(), "letters", LIMITS).app()) as client:
        client.get("/nothing")
        before = numbers(client)
        client.post("/translate", json={"sentences": ["abc", "def"]})
        client.post("/translate", json={"sentences": ["abc"], "beam": 99})
        for place in range(5):
            client.get(f"/nothing/{place}")
        after = numbers(client)
    assert after["uncurse_requests_total /translate 200"] == 1
    assert after["uncurse_requests_total /translate 422"] == 1
    assert after["uncurse_requests_total other 404"] == 6
    proved = [value for name, value in after.items() if name.startswith("uncurse_sentences_total")]
    assert sum(proved) == 2
    assert after["uncurse_model_rows_total"] > 0
    assert after["uncurse_waiting_sentences"] == after["uncurse_searching_sentences"] == 0
    assert after["process_resident_memory_bytes"] > 0
    assert not [name for name in after.keys() - before.keys() if "nothing" in name]


def test_a_token_is_asked_for_and_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    right = hmac.compare_digest

    def compare_digest(one: bytes, two: bytes) -> bool:
        compared.append((one, two))
        return right(one, two)

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    with TestClient(Service(letters(), "letters", LIMITS, token="s3cret").app()) as client:
        for path in ("/methods", "/metrics", "/openapi.json", "/nothing"):
            assert client.get(path).headers["www-authenticate"] == "Bearer"
            problem_of(client.get(path), 401)
            for wrong in ("s3cre", "s3cret2", "", "Ünsinn"):
                problem_of(client.get(path, headers={b"authorization": f"Bearer {wrong}".encode()}), 401)
            problem_of(client.get(path, headers={"authorization": "Basic s3cret"}), 401)
        compared.clear()
        good = {"authorization": "bearer s3cret"}
        assert client.get("/methods", headers=good).status_code == 200
        assert compared == [(b"s3cret", b"s3cret")]
        assert client.post("/translate", json={"sentences": ["a"]}, headers=good).status_code == 200
        problem_of(client.post("/translate", json={"sentences": ["a"]}), 401)
        assert client.get("/health").status_code == 200
        assert "s3cret" not in client.get("/").text


def test_a_model_without_predictor_says_what_it_needs() -> None:
    with TestClient(Service(letters(predictor=None), "letters", LIMITS).app()) as client:
        for options, pointer in (
            ({}, "#/score"),
            ({"score": "log-prob", "stop": "predicted-horizon"}, "#/stop"),
            ({"score": "log-prob", "max_length": "predicted"}, "#/max_length"),
        ):
            problem = problem_of(client.post("/translate", json={"sentences": ["a"], **options}), 422)
            assert [each.pointer for each in problem.errors] == [pointer]
        assert client.post("/translate", json={"sentences": ["a"], "ratio": 1.5}).status_code == 200
        problem = problem_of(client.post("/explain", json={"sentence": "a"}), 422)
        assert [each.pointer for each in problem.errors] == ["#/ratio"]


class Broken(Held):  # type: ignore[misc]
    """A model that does not work."""

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        raise OSError("/a/secret/path is gone")


def test_a_mistake_of_the_service_tells_nothing_of_its_inside(caplog: pytest.LogCaptureFixture) -> None:
    translator = Translator(Broken(seed=1), Letters(), Letters(), FixedRatio(1.5))
    with TestClient(Service(translator, "broken", LIMITS).app(), raise_server_exceptions=False) as client:
        response = client.post("/translate", json={"sentences": ["abc"]})
        problem_of(response, 500)
        assert "secret" not in response.text
        assert client.get("/health").status_code == 200
    assert "/a/secret/path is gone" in caplog.text


def test_a_mistake_before_the_search_tells_as_little(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def submit(self: Worker, *asked: object) -> None:
        raise RuntimeError("/a/secret/path")

    monkeypatch.setattr(Worker, "submit", submit)
    with TestClient(Service(letters(), "letters", LIMITS).app()) as client:
        response = client.post("/translate", json={"sentences": ["abc"]})
        problem_of(response, 500)
        assert "secret" not in response.text
        assert response.headers["x-content-type-options"] == "nosniff"
        assert numbers(client)["uncurse_requests_total /translate 500"] == 1
    assert "/a/secret/path" in caplog.text


def test_a_full_queue_answers_503_and_says_when_to_come_back() -> None:
    model = Held(seed=1)
    translator = Translator(model, Letters(), Letters(), FixedRatio(1.5))
    limits = Limits(sentences=2, waiting=2, batch_tokens=1)
    app = Service(translator, "held", limits).app()

    async def overloaded() -> tuple[list[int], int]:
        async with app.router.lifespan_context(app):
            tasks = [asyncio.create_task(posted(app, {"sentences": ["abc"]}))]
            while not model.asked:
                await asyncio.sleep(0.01)
            tasks += [asyncio.create_task(posted(app, {"sentences": ["abc"]})) for _ in range(5)]
            while sum(task.done() for task in tasks) < 3:
                await asyncio.sleep(0.01)
            headers = next(task for task in tasks if task.done()).result()[1]
            model.let_go()
            statuses = [(await task)[0] for task in tasks]
            again, _ = await posted(app, {"sentences": ["abc"]})
            assert again == 200
            return statuses, int(headers[b"retry-after"])

    statuses, seconds = asyncio.run(bounded(overloaded(), model))
    assert sorted(statuses) == [200, 200, 200, 503, 503, 503]
    assert 1 <= seconds <= 60


async def bounded(done: Coroutine[Any, Any, T], model: Held) -> T:
    """The same, but for ever it does not wait."""
    asyncio.get_running_loop().call_later(60, model.let_go)
    return await asyncio.wait_for(done, 90)


async def posted(app: Any, body: Any, gone: asyncio.Event | None = None) -> tuple[int, dict[bytes, bytes]]:
    """Status and headers of the answer to a request made without a server; 0 for whoever goes away."""
    told = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    start: dict[str, Any] = {}

    async def receive() -> dict[str, Any]:
        if told:
            return told.pop()
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        start.update(message if message["type"] == "http.response.start" else {})

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/translate",
        "raw_path": b"/translate",
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return start.get("status", 0), dict(start.get("headers", ()))


def test_nobody_is_searched_for_who_has_gone_away() -> None:
    model = Held(seed=1)
    translator = Translator(model, Letters(), Letters(), FixedRatio(1.5))
    app = Service(translator, "held", LIMITS).app()

    async def abandoned() -> int:
        async with app.router.lifespan_context(app):
            gone = asyncio.Event()
            asked = asyncio.create_task(posted(app, {"sentences": ["abcdef"]}, gone))
            model.let(2)
            while len(model.rows) < 2:
                await asyncio.sleep(0.01)
            gone.set()
            assert (await asked)[0] == 0
            model.let_go()
            await posted(app, {"sentences": ["a"], "beam": 1})
            return max(model.rows[4:], default=0)

    assert asyncio.run(bounded(abandoned(), model)) <= 1


def test_the_description_tells_the_limits() -> None:
    app = Service(letters(), "letters", LIMITS, token="s3cret").app()
    described = app.openapi()
    asked = described["components"]["schemas"]["TranslationRequest"]["properties"]
    assert asked["sentences"]["maxItems"] == 5
    assert asked["beam"]["anyOf"][0]["maximum"] == asked["n_best"]["maximum"] == 12
    assert described["paths"]["/translate"]["post"]["security"] == [{"bearer": []}]
    assert "security" not in described["paths"]["/health"]["get"]
    assert "HTTPValidationError" not in json.dumps(described)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"body": 0}, "body = 0"),
        ({"width": 0}, "width = 0"),
        ({"deadline": 0.0}, "deadline = 0"),
        ({"sentences": 10, "waiting": 9}, "10 sentences of a request never find room where 9 may wait"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Limits(**options)
