"""The service over HTTP: what it counts, whom it lets in, and what it says when it cannot answer."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from fastapi.testclient import TestClient
from problems import LIMITS, problem_of
from prometheus_client.parser import text_string_to_metric_families
from served import Held, Letters, letters

from uncurse import Continuations
from uncurse.arrays import Ints
from uncurse.length import FixedRatio
from uncurse.serving.app import Service
from uncurse.serving.options import Limits
from uncurse.serving.worker import Worker
from uncurse.testing.models import RandomState
from uncurse.translator import Translator

T = TypeVar("T")


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
