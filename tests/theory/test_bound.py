"""The bound of a prefix, derived from the score alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import Path, Table, all_finished, all_paths, bound_of, score_of, source_of
from support.strategies import SCORE_NAMES, model_of, rescorers, sentences, tables

from uncurse import SCORES, Rescorer, Sentence, record
from uncurse.scoring.rescorer import Paths, Rewards, Source
from uncurse.scoring.scores import (
    GNMT,
    AdaptiveReward,
    BoundedWordReward,
    BPNorm,
    F1Norm,
    LengthNorm,
    LogProb,
    WordReward,
)


def rewards_for(table: Table, sentence: Sentence) -> list[float]:
    """The rewards of a search of width 2; further steps, if the beam runs empty, are as hard as the last."""
    (trace,) = record(model_of(table), [sentence], beam_size=2)
    rewards: list[float] = trace.rewards.tolist()
    return rewards + [rewards[-1]] * (sentence.max_length - len(rewards))


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_no_completion_beats_the_bound(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences())
    rescorer = data.draw(rescorers(score))
    rewards = rewards_for(table, sentence)
    finished = all_finished(table, sentence)
    for prefix in all_paths(table, sentence):
        t = len(prefix.tokens)
        if prefix.tokens[-1:] == (table.eos,):
            continue
        bound = bound_of(rescorer, sentence, prefix, rewards, seen=t)
        for whole in finished:
            if whole.tokens[:t] == prefix.tokens:
                assert score_of(rescorer, sentence, whole, rewards) <= bound


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_bounds_never_rise_along_an_extension(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences())
    rescorer = data.draw(rescorers(score))
    rewards = rewards_for(table, sentence)
    bounds: dict[tuple[int, ...], float] = {}
    for prefix in all_paths(table, sentence):
        if prefix.tokens[-1:] == (table.eos,):
            continue
        bound = bound_of(rescorer, sentence, prefix, rewards, seen=len(prefix.tokens))
        bounds[prefix.tokens] = bound
        assert bound <= bounds.get(prefix.tokens[:-1], math.inf)


def f1_norm(total: float, n: int, expected: float) -> float:
    """The score as it is written."""
    apart = math.sqrt((n - expected) * (n - expected) + expected)
    matched = expected * (4 * n - 1) / (2 * (n + expected + apart))
    return 1 + (total - 0.5 * (n + expected)) / matched


def closed_form(rescorer: Rescorer, source: Source, total: float, t: int, rewards: list[float]) -> float:
    """The bounds worked out by hand, for a prefix that can still be extended."""
    max_length = int(source.max_length[0])
    match rescorer:
        case LogProb():
            return total
        case LengthNorm(alpha):
            return total / math.pow(max_length, alpha)
        case GNMT(alpha, _):
            return total / math.pow((5 + max_length) / 6, alpha)
        case WordReward(reward):
            return total + reward * (max_length if reward > 0 else t + 1)
        case BoundedWordReward(reward, ratio):
            expected = float((source.expected_length if ratio is None else source.fixed_ratio(ratio))[0])
            return total + reward * min(max_length if reward > 0 else t + 1, expected)
        case AdaptiveReward():
            floor = math.floor(source.expected_length[0])
            if t < min(floor, max_length):
                return math.inf
            return total + float(np.cumsum([0.0, *rewards])[min(floor, max_length)])
        case BPNorm():
            return min(1.0 - float(source.expected_length[0]) / max_length, 0.0) + total / max_length
        case F1Norm():
            expected = max(float(source.expected_length[0]), 1.0)
            beyond = -total * (math.sqrt(1 + 4 * expected - 8 * total) - 1) / (expected - 2 * total)
            top = expected + (1 + beyond) / 2  # up to here the score rises with n, then it falls
            return max(
                f1_norm(total, min(max(n, t + 1), max_length), expected) for n in (math.floor(top), math.ceil(top))
            )
    raise AssertionError(f"no closed form for {rescorer}")


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_closed_forms_equal_derived_bounds(score: str, data: st.DataObject) -> None:
    rescorer = data.draw(rescorers(score))
    sentence = data.draw(sentences(max_length=40))
    t = data.draw(st.integers(0, sentence.max_length - 1))
    total = data.draw(st.floats(-60.0, 0.0))
    rewards = data.draw(st.lists(st.floats(0.0, 5.0), min_size=40, max_size=40))
    prefix = Path(tuple([0] * t), (total,), 0, ())
    source = source_of(sentence)
    derived = bound_of(rescorer, sentence, prefix, rewards, seen=t)
    assert derived == closed_form(rescorer, source, total, t, rewards)


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_a_prefix_at_its_limit_has_no_completion(score: str, data: st.DataObject) -> None:
    rescorer = data.draw(rescorers(score))
    paths = Paths(np.array([-1.0]), np.array([3]), Rewards(np.arange(4.0)[None], np.array([3])))
    assert rescorer.bound(Source.repeated(1, 2, 3, 0, 3.0), paths)[0] == -math.inf


def test_an_expected_length_that_is_too_low_cuts_outputs_under_f1_norm_alone() -> None:
    """With tokens of 0.4 nats, L = 20 and a true length of 40: what an early `</s>` may cost."""
    source = Source.repeated(1, 10, 100, 0, 20.0)

    def cut_wins(score: str, cost_of_end: float) -> bool:
        log_probs, lengths = np.array([-0.4 * 40, -0.4 * 19 - cost_of_end]), np.array([40, 20])
        whole, cut = SCORES.parse(score).score(source, Paths(log_probs, lengths))
        return bool(cut > whole)

    assert cut_wins("f1-norm", 13.7)
    assert not cut_wins("f1-norm", 13.8)
    assert cut_wins("bp-norm", 0.39)
    assert not cut_wins("bp-norm", 0.41)
