"""What shares a batch with a sentence changes nothing about it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judging import judged

from uncurse import (
    RULES,
    SCORES,
    Decoding,
    Paths,
    Rescorer,
    Result,
    Search,
    Sentence,
    Slots,
    Source,
    beam_search,
    record,
)
from uncurse.arrays import Floats
from uncurse.testing import RandomModel

MODEL = RandomModel(seed=3, vocab_size=9, ending=0.7, attends=True)

MIXED = [  # lengths, limits, prefixes and predictions of all kinds, an empty source among them
    Sentence(
        source=tuple(range(index % 6)),
        max_length=1 + (index * 5) % 13,
        prefix=tuple(range(index % 4)) if index % 3 == 0 else (),
        expected_length=0.5 + index % 8,
        min_length=index % 2,
    )
    for index in range(17)
]

DECODINGS = [
    Decoding(5, "bp-norm", "optimal"),
    Decoding(3, "gnmt:alpha=0.6,beta=0.4", "optimal", n_best=3, slots="refill"),
    Decoding(4, "adaptive-reward", "optimal", n_best=2),
    Decoding(4, "length-norm", "beam-full", n_best=2),
    Decoding(3, "bounded-word-reward:reward=0.8", "hf-heuristic", slots="refill"),
    Decoding(2, "log-prob", "first-finished", n_best=2, slots="refill"),
    Decoding(3, "word-reward:reward=-0.2", "predicted-horizon"),
    Decoding(4, "f1-norm", "optimal", n_best=2, slots="refill"),
    Decoding(2, "bounded-word-reward:reward=0.3,ratio=1.5", "exhaustive"),
]


def test_every_score_and_every_rule_takes_part() -> None:
    assert {type(decoding.score) for decoding in DECODINGS} == {entry.method for entry in SCORES.values()}
    assert {type(decoding.stop) for decoding in DECODINGS} == {entry.method for entry in RULES.values()}


@pytest.fixture(scope="module", params=DECODINGS, ids=lambda decoding: str(type(decoding.score).__name__))
def decoding(request: pytest.FixtureRequest) -> Decoding:
    assert isinstance(request.param, Decoding)
    return request.param


@pytest.fixture(scope="module")
def alone(decoding: Decoding) -> list[Result]:
    return [beam_search(MODEL, [sentence], decoding)[0] for sentence in MIXED]


def test_17_mixed_sentences_equal_17_single_searches_to_the_bit(decoding: Decoding, alone: list[Result]) -> None:
    assert beam_search(MODEL, MIXED, decoding, batch_size=17) == alone


def test_refilled_batches_equal_single_searches(decoding: Decoding, alone: list[Result]) -> None:
    for batch in (2, 5, 16):
        assert beam_search(MODEL, MIXED, decoding, batch_size=batch) == alone


@given(order=st.permutations(range(17)), seed=st.integers(0, 2**32))
def test_joining_and_leaving_in_any_order_changes_no_result(
    decoding: Decoding, alone: list[Result], order: list[int], seed: int
) -> None:
    """Sentences join at random moments; some are cancelled, and then joined again."""
    chance = random.Random(seed)
    search = Search(MODEL, decoding)
    waiting, running, results = list(order), dict[int, int](), dict[int, Result]()
    while waiting or running:
        arriving = [waiting.pop() for _ in range(min(chance.randrange(4), len(waiting)))]
        running.update(zip(search.join([MIXED[index] for index in arriving]), arriving, strict=True))
        if running and chance.random() < 0.2:
            ticket = chance.choice(sorted(running))
            search.cancel(ticket)
            waiting.append(running.pop(ticket))
        if running:
            for ticket, result in search.advance():
                results[running.pop(ticket)] = result
        assert len(search) == len(running)
    assert [results[index] for index in range(17)] == alone


@pytest.mark.parametrize("slots", Slots)
def test_traces_do_not_depend_on_the_batch(slots: Slots) -> None:
    together = record(MODEL, MIXED, 4, slots, batch_size=17)
    for sentence, trace in zip(MIXED, together, strict=True):
        (single,) = record(MODEL, [sentence], 4, slots)
        kept = single.tokens >= 0
        assert trace.tokens.tolist() == single.tokens.tolist()
        assert trace.parents[kept].tolist() == single.parents[kept].tolist()
        assert trace.log_probs[kept].tolist() == single.log_probs[kept].tolist()
        assert trace.rewards.tolist() == single.rewards.tolist()
        assert trace.pruned.tolist() == single.pruned.tolist()
        assert trace.finished_coverage is not None
        assert single.finished_coverage is not None
        assert trace.finished_coverage.tolist() == single.finished_coverage.tolist()


@final
@dataclass(frozen=True)
class HardCut(Rescorer):
    """A score that rules lengths out altogether."""

    def score(self, source: Source, paths: Paths) -> Floats:
        return np.where(paths.length > 2 * source.expected_length, -np.inf, paths.log_prob / paths.length)


def test_a_score_of_minus_infinity_is_judged_the_same_alone_and_together() -> None:
    SCORES.register("hard-cut", formula="S/n, n ≤ 2L", source="this test")(HardCut)
    try:
        decoding = Decoding(3, HardCut())
        for seed in range(20):
            model = RandomModel(seed, vocab_size=6, ending=-3.0 * (seed % 2), attends=True)
            together = beam_search(model, MIXED, decoding, batch_size=17)
            assert together == [beam_search(model, [each], decoding)[0] for each in MIXED]
            traces = record(model, MIXED, 3)
            assert together == [
                judged(trace, HardCut(), decoding.stop, expected_length=each.expected_length)
                for trace, each in zip(traces, MIXED, strict=True)
            ]
    finally:
        SCORES.unregister("hard-cut")
