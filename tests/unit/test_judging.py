"""What judging refuses, and the places where it is easy to be off by one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncurse import RULES, SCORES, Decoding, Sentence, Slots, beam_search, judge, judge_all, record
from uncurse.explaining import standard_scores
from uncurse.judging import Case, Terms, running_kth_best
from uncurse.rescoring import GNMT, BPNorm, LogProb
from uncurse.stopping import BeamFull, Exhaustive, Optimal, PredictedHorizon
from uncurse.testing import RandomModel

MODEL = RandomModel(seed=8, vocabulary=9, ending=0.5)
(TRACE,) = record(MODEL, [Sentence((1, 2), limit=9, predicted=4.0)], 5)


@pytest.mark.parametrize(
    ("limit", "message"),
    [(10, "this trace answers for 1 to 9"), (0, "limit = 0"), (True, "limit"), (2.5, "limit")],
)
def test_a_trace_answers_for_limits_up_to_its_own(limit: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judge(TRACE, LogProb(), Exhaustive(), limit=limit)


@pytest.mark.parametrize("length", [math.nan, math.inf, 0.0, -3.0, 1e19])
def test_an_impossible_length_is_refused(length: float) -> None:
    with pytest.raises(ValueError, match="length"):
        judge(TRACE, LogProb(), Exhaustive(), length=length)


def test_judging_asks_for_what_a_live_search_asks_for() -> None:
    with pytest.raises(ValueError, match="predicted length"):
        judge(TRACE, BPNorm(), Exhaustive())
    with pytest.raises(ValueError, match="predicted length"):
        judge(TRACE, LogProb(), PredictedHorizon())
    with pytest.raises(ValueError, match="gives no attention"):
        judge(TRACE, GNMT(beta=0.1), Exhaustive())


def test_n_best_must_be_positive() -> None:
    with pytest.raises(ValueError, match="n_best = 0 is not allowed"):
        judge(TRACE, LogProb(), Exhaustive(), n_best=0)


def test_a_judged_limit_is_in_the_signature() -> None:
    result = judge(TRACE, LogProb(), Exhaustive(), limit=4)
    assert "|limit:4|" in result.signature
    (live,) = beam_search(MODEL, [Sentence((1, 2), limit=4)], Decoding.of(5, "log-prob", "exhaustive"))
    assert result == live


def test_a_trace_that_was_cut_off_answers_only_for_rules_that_stop_in_it() -> None:
    names = ("tokens", "parents", "log_probs", "sums", "rewards", "pruned")
    cut = replace(TRACE, **{name: getattr(TRACE, name)[:3] for name in names})
    assert judge(cut, LogProb(), BeamFull(0.2)) == judge(TRACE, LogProb(), BeamFull(0.2))
    with pytest.raises(ValueError, match="ends before the rule would stop"):
        judge(cut, LogProb(), Exhaustive())


def test_a_limit_below_the_minimum_length_is_refused() -> None:
    (trace,) = record(MODEL, [Sentence((1, 2), limit=9, min_length=3)], 5)
    with pytest.raises(ValueError, match="this trace answers for 3 to 9"):
        judge(trace, LogProb(), Exhaustive(), limit=2)


@given(st.lists(st.integers(-4, 4).map(float), max_size=12), st.integers(1, 5))
def test_the_running_kth_best_is_that_of_every_beginning(scores: list[float], k: int) -> None:
    expected = [
        sorted(scores[:count], reverse=True)[k - 1] if count >= k else -math.inf
        for count in range(len(scores) + 1)
    ]
    assert running_kth_best(np.array(scores), k).tolist() == expected


def test_judging_all_at_once_is_judging_each() -> None:
    ways = [
        (SCORES.parse(spec), rule.method()) for rule in RULES for spec in ("bp-norm", "log-prob", "length-norm")
    ]
    together = judge_all(TRACE, ways, 2, 4.0, 7)
    assert together == [judge(TRACE, *way, 2, 4.0, 7) for way in ways]


@pytest.mark.parametrize("slots", list(Slots))
def test_a_course_tells_what_a_live_search_knows_at_each_step(slots: Slots) -> None:
    """Its best is what a search that stops there returns, its bound makes the gap, its hopeful make the rows."""
    model = RandomModel(seed=8, vocabulary=9, ending=0.5, attends=True)
    (trace,) = record(model, [Sentence((1, 2), limit=14)], 5, slots)
    for score in standard_scores(0.6, attends=True):
        case = Case(Terms(trace, 1, 5.0, trace.limit), score)
        course = case.course()
        optimal = judge(trace, score, Optimal(), length=5.0)
        proved = np.flatnonzero(course.best >= course.bound)
        assert optimal.steps == proved[0] + 1
        assert (course.hopeful <= trace.live_counts).all()
        assert (course.hopeful[proved] == 0).all()
        for step, (optimality, gap) in enumerate(case.certificates(range(1, trace.steps + 1))):
            best, bound = course.best[step], course.bound[step]
            assert optimality.proved == (best > -math.inf and best >= bound)
            assert gap == (0.0 if optimality.proved else bound - best)
        asked = course.best > -math.inf
        alive = np.where(asked, course.hopeful, trace.live_counts)[: optimal.steps - 1]
        assert optimal.rows == 1 + alive.sum()
