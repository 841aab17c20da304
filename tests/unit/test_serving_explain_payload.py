"""The payload of /explain against the trace it was made from."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from uncurse import RULES, SCORES, Sentence, Slots, Trace, record
from uncurse.scoring.needs import needs
from uncurse.search.explain import Explanation, standard_rules, standard_scores
from uncurse.serving import explain_payload as module
from uncurse.serving.explain_payload import explain_payload
from uncurse.serving.responses import ExplanationResponse
from uncurse.testing import RandomModel

MODEL = RandomModel(seed=4, vocab_size=60, ending=4.0, attends=True)


def decode(tokens: Sequence[int]) -> str:
    """Every third token is glued to the one before it; the others begin a word."""
    words = (f"{token}" if token % 3 == 0 else f" {token}" for token in tokens if token != MODEL.eos)
    return "".join(words).strip()


def explained(
    beam_size: int, slots: Slots, model: RandomModel = MODEL, expected_length: float | None = 6.5
) -> tuple[Trace, dict[str, Any]]:
    (trace,) = record(model, [Sentence((1, 2, 3), max_length=14)], beam_size, slots)
    scores = standard_scores(0.8, attends=True, knows_length=expected_length is not None)
    payload = explain_payload(Explanation(trace, expected_length, scores), decode)
    ExplanationResponse.model_validate(payload | {"source": "", "in_time": True})
    json.dumps(payload, allow_nan=False)
    return trace, payload


@pytest.mark.parametrize("slots", list(Slots))
def test_every_prefix_can_be_put_together_from_token_texts(slots: Slots) -> None:
    trace, payload = explained(7, slots)
    beams = payload["beams"]
    checked = 0
    for step in range(trace.steps):
        for rank in range(trace.tokens.shape[1]):
            if trace.tokens[step, rank] < 0:
                assert beams["log_probs"][step][rank] is None or not trace.is_live[step, rank]
                continue
            words, at = [], rank
            for earlier in range(step, -1, -1):
                token = beams["tokens"][earlier][at]
                words.append("" if token == beams["eos"] else beams["token_texts"][str(token)])
                at = beams["parents"][earlier][at]
            assert "".join(reversed(words)).strip() == decode(trace.hypothesis(step, rank, 0.0).tokens)
            checked += 1
    assert checked > 60


def test_what_any_rule_chooses_is_a_candidate_however_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CANDIDATES", 1)
    trace, payload = explained(9, Slots.OCCUPY)
    outcomes, candidates = payload["outcomes"], payload["candidates"]
    assert len(outcomes) == len(standard_scores(0.8, attends=True, knows_length=True)) * len(standard_rules(True))
    assert {outcome["candidate"] for outcome in outcomes} == set(range(len(candidates)))
    assert len(candidates) < payload["finished"] == len(trace.finished_sums)
    for outcome in outcomes:
        chosen = candidates[outcome["candidate"]]
        assert chosen["text"] == outcome["text"]
        assert chosen["scores"][outcome["score"]] == outcome["value"]
        assert outcome["loss"] >= 0


def test_without_an_expected_length_only_what_needs_one_is_left_out() -> None:
    _, payload = explained(5, Slots.OCCUPY, expected_length=None)
    assert payload["expected_length"] is None
    every = standard_scores(0.8, attends=True, knows_length=True)
    assert [each["name"] for each in payload["scores"]] == [
        SCORES.name(each) for each in every if not needs(each).expected_length
    ]
    assert [each["name"] for each in payload["rules"]] == [
        RULES.name(each) for each in standard_rules(knows_length=True) if not needs(each).expected_length
    ]
    assert len(payload["outcomes"]) == len(payload["scores"]) * len(payload["rules"])
    assert len(payload["bound_curves"]) == len(payload["scores"]) < len(every)


def test_where_nothing_has_ended_there_are_only_prefixes() -> None:
    endless = RandomModel(seed=4, vocab_size=60, ending=-math.inf, attends=True)
    _, payload = explained(2, Slots.OCCUPY, endless)
    assert payload["candidates"] == []
    outcomes = payload["outcomes"]
    assert {outcome["candidate"] for outcome in outcomes} == {None}
    assert {outcome["certificate"] for outcome in outcomes} == {"TRUNCATED"}
    assert {outcome["length"] for outcome in outcomes} == {14}
