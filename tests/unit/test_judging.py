"""What judging refuses, and the places where it is easy to be off by one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judging import judged

from uncurse import RULES, SCORES, Decoding, Sentence, Slots, UncurseError, beam_search, judge, record
from uncurse.scoring.scores import GNMT, BPNorm, LogProb
from uncurse.scoring.stopping import BeamFull, Exhaustive, Optimal, PredictedHorizon
from uncurse.search.explain import standard_scores
from uncurse.search.scored_trace import ScoredTrace, running_kth_best
from uncurse.testing import RandomModel

MODEL = RandomModel(seed=8, vocab_size=9, ending=0.5)
(TRACE,) = record(MODEL, [Sentence((1, 2), max_length=9, expected_length=4.0)], 5)


@pytest.mark.parametrize(
    ("max_length", "message"),
    [(10, "this trace answers for 1 to 9"), (0, "max_length = 0"), (True, "max_length"), (2.5, "max_length")],
)
def test_a_trace_answers_for_limits_up_to_its_own(max_length: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judged(TRACE, LogProb(), Exhaustive(), max_length=max_length)


@pytest.mark.parametrize("length", [math.nan, math.inf, 0.0, -3.0, 1e19])
def test_an_impossible_length_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match="length"):
        judged(TRACE, LogProb(), Exhaustive(), expected_length=length)


def test_judging_asks_for_what_a_live_search_asks_for() -> None:
    with pytest.raises(ValueError, match="expected length"):
        judged(TRACE, BPNorm(), Exhaustive())
    with pytest.raises(ValueError, match="expected length"):
        judged(TRACE, LogProb(), PredictedHorizon())
    with pytest.raises(ValueError, match="gives no attention"):
        judged(TRACE, GNMT(beta=0.1), Exhaustive())


def test_n_best_must_be_positive() -> None:
    with pytest.raises(ValueError, match="n_best = 0 is not allowed"):
        judged(TRACE, LogProb(), Exhaustive(), n_best=0)


def test_a_judged_limit_is_in_the_signature() -> None:
    result = judged(TRACE, LogProb(), Exhaustive(), max_length=4)
    assert "|max_length:4|" in result.signature
    (live,) = beam_search(MODEL, [Sentence((1, 2), max_length=4)], Decoding(5, "log-prob", "exhaustive"))
    assert result == live


def test_a_trace_that_was_cut_off_answers_only_for_rules_that_stop_in_it() -> None:
    names = ("tokens", "parents", "log_probs", "sums", "rewards", "pruned")
    cut = replace(TRACE, **{name: getattr(TRACE, name)[:3] for name in names})
    assert judged(cut, LogProb(), BeamFull(0.2)) == judged(TRACE, LogProb(), BeamFull(0.2))
    with pytest.raises(ValueError, match="ends before the rule would stop"):
        judged(cut, LogProb(), Exhaustive())


def test_a_limit_below_the_minimum_length_is_refused() -> None:
    (trace,) = record(MODEL, [Sentence((1, 2), max_length=9, min_length=3)], 5)
    with pytest.raises(ValueError, match="this trace answers for 3 to 9"):
        judged(trace, LogProb(), Exhaustive(), max_length=2)


@given(st.lists(st.integers(-4, 4).map(float), max_size=12), st.integers(1, 5))
def test_the_running_kth_best_is_that_of_every_beginning(scores: list[float], k: int) -> None:
    expected = [
        sorted(scores[:count], reverse=True)[k - 1] if count >= k else -math.inf
        for count in range(len(scores) + 1)
    ]
    assert running_kth_best(np.array(scores), k).tolist() == expected


def test_judging_all_at_once_is_judging_each() -> None:
    decodings = [
        Decoding(5, score, stop, 1 + len(stop) % 2)
        for stop in RULES
        for score in ("bp-norm", "log-prob", "length-norm")
    ]
    together = judge(TRACE, decodings, expected_length=4.0, max_length=7)
    assert together == [judge(TRACE, [each], expected_length=4.0, max_length=7)[0] for each in decodings]
    assert [each.decoding for each in together] == decodings


def test_the_default_score_depends_on_whether_a_length_is_expected() -> None:
    (known,) = judge(TRACE, [Decoding(5)], expected_length=4.0)
    (unknown,) = judge(TRACE, [Decoding(5)])
    assert SCORES.name(known.decoding.rescorer) == "f1-norm"
    assert SCORES.name(unknown.decoding.rescorer) == "length-norm"


@pytest.mark.parametrize("decoding", [Decoding(4), Decoding(5, slots="refill")])
def test_a_trace_answers_for_its_own_beam_alone(decoding: Decoding) -> None:
    with pytest.raises(UncurseError, match="this trace was recorded with 5 and 'occupy'"):
        judge(TRACE, [decoding])


@pytest.mark.parametrize("slots", list(Slots))
def test_a_bound_curve_tells_what_a_live_search_knows_at_each_step(slots: Slots) -> None:
    """Its best is what a search that stops there returns, its bound makes the gap, its hopeful make the rows."""
    model = RandomModel(seed=8, vocab_size=9, ending=0.5, attends=True)
    (trace,) = record(model, [Sentence((1, 2), max_length=14)], 5, slots)
    for score in standard_scores(0.6, attends=True, knows_length=True):
        scored = ScoredTrace(trace, score, 1, 5.0, trace.max_length)
        curve = scored.bound_curve()
        optimal = judged(trace, score, Optimal(), expected_length=5.0)
        proved = np.flatnonzero(curve.best >= curve.bound)
        assert optimal.steps == proved[0] + 1
        assert (curve.hopeful <= trace.live_counts).all()
        assert (curve.hopeful[proved] == 0).all()
        for step, (certificate, gap) in enumerate(scored.certificates(range(1, trace.steps + 1))):
            best, bound = curve.best[step], curve.bound[step]
            assert certificate.proved == (best > -math.inf and best >= bound)
            assert gap == (0.0 if certificate.proved else bound - best)
        asked = curve.best > -math.inf
        alive = np.where(asked, curve.hopeful, trace.live_counts)[: optimal.steps - 1]
        assert optimal.model_rows == 1 + alive.sum()
