"""Exact search finds the best of all sequences, or says how far from it the answer may be."""

from __future__ import annotations

import math
from dataclasses import replace

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from support.judging import judged
from support.oracle import Table, all_finished, score_of
from support.strategies import SCORE_NAMES, model_of, rescorers, sentences, tables

from uncurse import Certificate, Rescorer, Sentence, Trace, exact_search, record
from uncurse.scoring.needs import needs
from uncurse.scoring.scores import AdaptiveReward, BPNorm, LengthNorm, LogProb
from uncurse.scoring.stopping import Optimal
from uncurse.testing import RandomModel, TableModel


def given(rescorer: Rescorer, model: TableModel, sentence: Sentence, rewards: list[float]) -> Trace | None:
    """A search with the given rewards, if the score reads any."""
    if not needs(rescorer).rewards:
        return None
    (trace,) = record(model, [sentence], beam_size=2)
    return replace(trace, rewards=np.array(rewards))


def best_of_all(table: Table, sentence: Sentence, rescorer: Rescorer, rewards: list[float]) -> float:
    scores = [score_of(rescorer, sentence, path, rewards) for path in all_finished(table, sentence)]
    return max(scores, default=-math.inf)


@pytest.mark.parametrize("score", SCORE_NAMES)
@hypothesis.given(data=st.data())
def test_exact_search_finds_the_best_of_all_sequences(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences())
    rescorer = data.draw(rescorers(score))
    model, beam_size = model_of(table), data.draw(st.integers(1, 3))
    rewards = data.draw(st.lists(st.floats(0.0, 3.0), min_size=4, max_size=4))
    found = exact_search(
        model, sentence, rescorer, beam_size=beam_size, rewards=given(rescorer, model, sentence, rewards)
    )
    score_found = -math.inf if found.hypothesis is None else found.hypothesis.score
    assert score_found == best_of_all(table, sentence, rescorer, rewards)
    assert found.gap == 0.0


@pytest.mark.parametrize("score", SCORE_NAMES)
@hypothesis.given(data=st.data())
def test_a_spent_budget_leaves_a_gap_that_holds(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences())
    rescorer = data.draw(rescorers(score))
    rewards = data.draw(st.lists(st.floats(0.0, 3.0), min_size=4, max_size=4))
    budget = data.draw(st.integers(1, 6)) + len(sentence.prefix)
    model = model_of(table)
    found = exact_search(
        model, sentence, rescorer, beam_size=1, budget=budget, rewards=given(rescorer, model, sentence, rewards)
    )
    assert found.calls <= budget
    if found.hypothesis is None:
        assert found.gap in (0.0, math.inf)
    else:
        gain = best_of_all(table, sentence, rescorer, rewards) - found.hypothesis.score
        assert gain <= found.gap


def test_exact_search_finds_what_a_narrow_beam_misses() -> None:
    model = RandomModel(seed=2, vocab_size=6, ending=0.5)
    missed = 0
    for first in range(30):
        sentence = Sentence((first,), max_length=7, expected_length=4.0)
        (trace,) = record(model, [sentence], beam_size=2)
        beam = judged(trace, BPNorm(), Optimal(), expected_length=4.0)
        exact = exact_search(model, sentence, BPNorm(), beam_size=2)
        assert exact.gap == 0.0
        assert exact.hypothesis is not None
        assert exact.hypothesis.score >= beam.hypotheses[0].score
        missed += exact.hypothesis.score > beam.hypotheses[0].score
        assert beam.certificate is not Certificate.GLOBAL or exact.hypothesis == beam.hypotheses[0]
    assert missed > 0


def test_branch_and_bound_asks_far_less_than_enumeration() -> None:
    sentence = Sentence((1, 2), max_length=8)
    found = exact_search(RandomModel(seed=4, vocab_size=8), sentence, LogProb())
    assert found.gap == 0.0
    assert found.calls < 7**7 / 100


def test_a_spent_budget_leaves_the_highest_open_bound() -> None:
    """After the first call the word is open, with S = -0.5, and the end has been tried."""
    model = TableModel(np.array([[-0.5, -1.0], [-5.0, -5.0]]), np.ones((2, 2), dtype=np.int64))
    found = exact_search(model, Sentence((0,), max_length=5), LengthNorm(), beam_size=2, budget=1)
    assert found.calls == 1
    assert found.hypothesis is not None
    assert found.hypothesis.score == -1.0
    assert found.gap == -0.5 / 5 - -1.0


def test_the_best_of_the_beam_is_there_before_the_first_call() -> None:
    """The optimum lies three steps down; a budget of one call cannot find it, the beam can."""
    model = TableModel(np.array([[-0.1, -9.0], [-0.1, -9.0], [-9.0, -0.1]]), np.array([[1, 1], [2, 2], [2, 2]]))
    found = exact_search(model, Sentence((0,), max_length=5), LogProb(), beam_size=2, budget=1)
    assert found.hypothesis is not None
    assert found.hypothesis.tokens == (0, 0, 1)


def test_forced_tokens_are_calls_too() -> None:
    model = RandomModel(seed=2, vocab_size=6)
    plain = exact_search(model, Sentence((1,), max_length=1), LogProb())
    forced = exact_search(model, Sentence((1,), max_length=1, prefix=(0, 0)), LogProb())
    assert (plain.calls, forced.calls) == (1, 3)


def test_adaptive_reward_needs_the_rewards_of_a_search() -> None:
    model, sentence = RandomModel(seed=2, vocab_size=6), Sentence((1,), max_length=7, expected_length=4.0)
    with pytest.raises(ValueError, match="give rewards=trace, a recorded search"):
        exact_search(model, sentence, AdaptiveReward())
    (trace,) = record(model, [sentence], beam_size=3)
    found = exact_search(model, sentence, AdaptiveReward(), rewards=trace)
    assert found.rewards_beam_size == 3
    assert found.hypothesis is not None
    beam = judged(trace, AdaptiveReward(), Optimal(), expected_length=4.0)
    assert found.hypothesis.score >= beam.hypotheses[0].score
    short = replace(trace, rewards=trace.rewards[:2], tokens=trace.tokens[:2])
    with pytest.raises(ValueError, match="beam size 3 has rewards for 2 steps, too few for outputs of up to 7"):
        exact_search(model, sentence, AdaptiveReward(), rewards=short)


def test_rewards_that_cannot_act_are_refused() -> None:
    model, sentence = RandomModel(seed=2, vocab_size=6), Sentence((1,), max_length=7)
    with pytest.raises(ValueError, match="does not depend on rewards"):
        exact_search(model, sentence, LogProb(), rewards=record(model, [sentence], 2)[0])
    other = Sentence((1, 2), max_length=7, expected_length=3.0)
    with pytest.raises(ValueError, match="those of another model or sentence"):
        exact_search(model, other, AdaptiveReward(), rewards=record(model, [sentence], 2)[0])


def test_what_a_score_needs_is_asked_for() -> None:
    model = RandomModel(seed=2, vocab_size=6)
    with pytest.raises(ValueError, match="expected length"):
        exact_search(model, Sentence((1,), max_length=7), BPNorm())
    with pytest.raises(ValueError, match="budget = 0"):
        exact_search(model, Sentence((1,), max_length=7), LengthNorm(), budget=0)
    with pytest.raises(ValueError, match="budget = 2 is not allowed: the prefix alone takes 2 calls"):
        exact_search(model, Sentence((1,), max_length=7, prefix=(0, 0)), LengthNorm(), budget=2)
