"""A search as the page sees it, against the trace it was made of."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from uncurse import RULES, SCORES, Sentence, Slots, Trace, record
from uncurse.explaining import Explanation, standard_scores
from uncurse.serving import seen as seeing
from uncurse.serving.answering import Explanation as Told
from uncurse.serving.seen import seen
from uncurse.testing import RandomModel

MODEL = RandomModel(seed=4, vocabulary=60, ending=4.0, attends=True)


def text(tokens: Sequence[int]) -> str:
    """Every third token is glued to the one before it; the others begin a word."""
    words = (f"{token}" if token % 3 == 0 else f" {token}" for token in tokens if token != MODEL.end)
    return "".join(words).strip()


def explained(width: int, slots: Slots, model: RandomModel = MODEL) -> tuple[Trace, dict[str, Any]]:
    (trace,) = record(model, [Sentence((1, 2, 3), limit=14)], width, slots)
    found = seen(Explanation(trace, 6.5, standard_scores(0.8, attends=True)), text)
    Told.model_validate(found | {"source": "", "in_time": True})
    json.dumps(found, allow_nan=False)
    return trace, found


@pytest.mark.parametrize("slots", list(Slots))
def test_every_prefix_can_be_put_together_from_pieces(slots: Slots) -> None:
    trace, found = explained(7, slots)
    beams = found["beams"]
    checked = 0
    for step in range(trace.steps):
        for rank in range(trace.tokens.shape[1]):
            if trace.tokens[step, rank] < 0:
                assert beams["log_probs"][step][rank] is None or not trace.is_live[step, rank]
                continue
            words, at = [], rank
            for earlier in range(step, -1, -1):
                token = beams["tokens"][earlier][at]
                words.append("" if token == beams["end"] else beams["pieces"][str(token)])
                at = beams["parents"][earlier][at]
            assert "".join(reversed(words)).strip() == text(trace.hypothesis(step, rank, 0.0).tokens)
            checked += 1
    assert checked > 60


def test_what_any_rule_chooses_can_be_read_however_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeing, "MOST", 1)
    trace, found = explained(9, Slots.OCCUPY)
    verdicts, candidates = found["verdicts"], found["candidates"]
    assert len(verdicts) == len(list(SCORES)) * len(list(RULES))
    assert {verdict["candidate"] for verdict in verdicts} == set(range(len(candidates)))
    assert len(candidates) < found["finished"] == len(trace.finished_sums)
    for verdict in verdicts:
        chosen = candidates[verdict["candidate"]]
        assert chosen["text"] == verdict["text"]
        assert chosen["scores"][verdict["score"]] == verdict["value"]
        assert verdict["loss"] >= 0


def test_where_nothing_has_ended_there_are_only_prefixes() -> None:
    endless = RandomModel(seed=4, vocabulary=60, ending=-math.inf, attends=True)
    _, found = explained(2, Slots.OCCUPY, endless)
    assert found["candidates"] == []
    verdicts = found["verdicts"]
    assert {verdict["candidate"] for verdict in verdicts} == {None}
    assert {verdict["certificate"] for verdict in verdicts} == {"TRUNCATED"}
    assert {verdict["length"] for verdict in verdicts} == {14}
