"""The HTTP service: metrics, tokens, and problems that are not the client's."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from support.problems import LIMITS, problem_of
from support.service import CharacterTokenizer, HeldModel, letter_translator

from uncurse import SCORES, Continuations
from uncurse.arrays import Ints
from uncurse.lengths.predictors import FixedRatio
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE, default_score
from uncurse.serving.app import Service
from uncurse.serving.batcher import Batcher
from uncurse.serving.limits import ServiceLimits
from uncurse.testing.models import RandomState
from uncurse.translation.translator import Translator

T = TypeVar("T")


def numbers(client: TestClient) -> dict[str, float]:
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def test_metrics_count_requests_and_do_not_grow_with_unknown_paths() -> None:
    with TestClient(Service(letter_translator(), "letters", LIMITS).app()) as client:
        client.get("/nothing")
        before = numbers(client)
        client.post("/translate", json={"sentences": ["abc", "def"]})
        client.post("/translate", json={"sentences": ["abc"], "beam_size": 99})
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


def test_a_token_is_required_and_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    right = hmac.compare_digest

    def compare_digest(one: bytes, two: bytes) -> bool:
        compared.append((one, two))
        return right(one, two)

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    with TestClient(Service(letter_translator(), "letters", LIMITS, token="s3cret").app()) as client:
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
    with TestClient(Service(letter_translator(predictor=None), "letters", LIMITS).app()) as client:
        for options, pointer in (
            ({"score": "bp-norm"}, "#/score"),
            ({"stop": "predicted-horizon"}, "#/stop"),
            ({"max_length": "predicted"}, "#/max_length"),
            ({"max_length": "q0.8"}, "#/max_length"),
        ):
            problem = problem_of(client.post("/translate", json={"sentences": ["a"], **options}), 422)
            assert [each.pointer for each in problem.errors] == [pointer]
            good = {"sentences": ["a"], **options, "length_ratio": 1.5}
            assert client.post("/translate", json=good).status_code == (422 if "q0.8" in options.values() else 200)


def test_a_model_without_attention_gives_no_coverage() -> None:
    with TestClient(Service(letter_translator(attends=False), "letters", LIMITS).app()) as client:
        body = {"sentences": ["a"], "score": "gnmt:alpha=0.2,beta=0.2"}
        problem = problem_of(client.post("/translate", json=body), 422)
        assert [each.pointer for each in problem.errors] == ["#/score"]
        assert client.post("/translate", json=body | {"score": "gnmt:alpha=0.2,beta=0"}).status_code == 200


@pytest.mark.parametrize("predictor", [None, FixedRatio(1.5)])
def test_the_default_score_depends_on_whether_a_length_is_known(predictor: FixedRatio | None) -> None:
    with TestClient(Service(letter_translator(predictor=predictor), "letters", LIMITS).app()) as client:
        default = client.get("/methods").json()["defaults"]
        expected = SCORES.spec(default_score(knows_length=predictor is not None))
        assert default == {"beam_size": DEFAULT_BEAM_SIZE, "score": expected, "stop": "optimal"}
        (found,) = client.post("/translate", json={"sentences": ["abc"]}).json()["translations"]
        assert f"|score:{expected}|" in found["signature"]
        body = {"sentences": ["abc"], "length_ratio": 1.5}
        (found,) = client.post("/translate", json=body).json()["translations"]
        assert f"|score:{SCORES.spec(default_score(knows_length=True))}|" in found["signature"]


def test_the_default_beam_size_is_never_more_than_is_allowed() -> None:
    with TestClient(Service(letter_translator(), "letters", ServiceLimits(beam_size=3)).app()) as client:
        assert client.get("/methods").json()["defaults"]["beam_size"] == 3
        (found,) = client.post("/translate", json={"sentences": ["abc"]}).json()["translations"]
        assert "|beam_size:3|" in found["signature"]


def test_an_explanation_without_an_expected_length_leaves_out_what_needs_one() -> None:
    with TestClient(Service(letter_translator(predictor=None), "letters", LIMITS).app()) as client:
        fewer = client.post("/explain", json={"sentence": "abc"}).json()
        assert fewer["expected_length"] is None
        full = client.post("/explain", json={"sentence": "abc", "length_ratio": 1.5}).json()
        assert full["expected_length"] == 4.5
        for kind in ("scores", "rules"):
            names = [each["name"] for each in full[kind]]
            assert 0 < len(fewer[kind]) < len(names)
            assert {each["name"] for each in fewer[kind]} <= set(names)


class BrokenModel(HeldModel):  # type: ignore[misc]
    """A model that does not work."""

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        raise OSError("/a/secret/path is gone")


def test_a_failed_search_tells_nothing_internal(caplog: pytest.LogCaptureFixture) -> None:
    translator = Translator(BrokenModel(seed=1), CharacterTokenizer(), CharacterTokenizer(), FixedRatio(1.5))
    with TestClient(Service(translator, "broken", LIMITS).app(), raise_server_exceptions=False) as client:
        response = client.post("/translate", json={"sentences": ["abc"]})
        problem_of(response, 500)
        assert "secret" not in response.text
        assert client.get("/health").status_code == 200
    assert "/a/secret/path is gone" in caplog.text


def test_a_failure_before_the_search_tells_nothing_internal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def submit(self: Batcher, *arguments: object) -> None:
        raise RuntimeError("/a/secret/path")

    monkeypatch.setattr(Batcher, "submit", submit)
    with TestClient(Service(letter_translator(), "letters", LIMITS).app()) as client:
        response = client.post("/translate", json={"sentences": ["abc"]})
        problem_of(response, 500)
        assert "secret" not in response.text
        assert response.headers["x-content-type-options"] == "nosniff"
        assert numbers(client)["uncurse_requests_total /translate 500"] == 1
    assert "/a/secret/path" in caplog.text


def test_a_full_queue_is_a_503_that_says_when_to_retry() -> None:
    model = HeldModel(seed=1)
    translator = Translator(model, CharacterTokenizer(), CharacterTokenizer(), FixedRatio(1.5))
    limits = ServiceLimits(sentences=2, waiting=2, batch_tokens=1)
    app = Service(translator, "held", limits).app()

    async def overloaded() -> tuple[list[int], int]:
        async with app.router.lifespan_context(app):
            tasks = [asyncio.create_task(posted(app, {"sentences": ["abc"]}))]
            while not model.started:
                await asyncio.sleep(0.01)
            tasks += [asyncio.create_task(posted(app, {"sentences": ["abc"]})) for _ in range(5)]
            while sum(task.done() for task in tasks) < 3:
                await asyncio.sleep(0.01)
            headers = next(task for task in tasks if task.done()).result()[1]
            model.allow_all()
            statuses = [(await task)[0] for task in tasks]
            again, _ = await posted(app, {"sentences": ["abc"]})
            assert again == 200
            return statuses, int(headers[b"retry-after"])

    statuses, seconds = asyncio.run(bounded(overloaded(), model))
    assert sorted(statuses) == [200, 200, 200, 503, 503, 503]
    assert 1 <= seconds <= 60


async def bounded(done: Coroutine[Any, Any, T], model: HeldModel) -> T:
    """The same, with a time limit."""
    asyncio.get_running_loop().call_later(60, model.allow_all)
    return await asyncio.wait_for(done, 90)


async def posted(app: Any, body: Any, gone: asyncio.Event | None = None) -> tuple[int, dict[bytes, bytes]]:
    """Status and headers of the response to a request without a server; status 0 if the client disconnects."""
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


def test_the_search_ends_when_the_client_disconnects() -> None:
    model = HeldModel(seed=1)
    translator = Translator(model, CharacterTokenizer(), CharacterTokenizer(), FixedRatio(1.5))
    app = Service(translator, "held", LIMITS).app()

    async def abandoned() -> int:
        async with app.router.lifespan_context(app):
            gone = asyncio.Event()
            request = asyncio.create_task(posted(app, {"sentences": ["abcdef"]}, gone))
            model.allow(2)
            while len(model.rows) < 2:
                await asyncio.sleep(0.01)
            gone.set()
            assert (await request)[0] == 0
            model.allow_all()
            await posted(app, {"sentences": ["a"], "beam_size": 1})
            return max(model.rows[4:], default=0)

    assert asyncio.run(bounded(abandoned(), model)) <= 1


def test_the_openapi_document_has_the_limits() -> None:
    app = Service(letter_translator(), "letters", LIMITS, token="s3cret").app()
    document = app.openapi()
    fields = document["components"]["schemas"]["TranslationRequest"]["properties"]
    assert fields["sentences"]["maxItems"] == 5
    assert fields["beam_size"]["anyOf"][0]["maximum"] == fields["n_best"]["maximum"] == LIMITS.beam_size
    assert document["paths"]["/translate"]["post"]["security"] == [{"bearer": []}]
    assert "security" not in document["paths"]["/health"]["get"]
    assert "HTTPValidationError" not in json.dumps(document)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"body": 0}, "body = 0"),
        ({"beam_size": 0}, "beam_size = 0"),
        ({"deadline": 0.0}, "deadline = 0"),
        ({"sentences": 10, "waiting": 9}, "sentences = 10 is not allowed"),
    ],
)
def test_contradictory_limits_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        ServiceLimits(**options)
