"""What a search swears to is true."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.judging import judged
from support.oracle import all_finished, score_of
from support.strategies import RULE_NAMES, SCORE_NAMES, decodings, model_of, sentences, tables

from uncurse import SCORES, Certificate, Decoding, Sentence, UncurseError, beam_search, record
from uncurse.arrays import Floats
from uncurse.scoring.rescorer import Paths, Rescorer, Source
from uncurse.scoring.scores import WordReward
from uncurse.scoring.stopping import Exhaustive, Optimal
from uncurse.testing import TableModel


@pytest.mark.parametrize("stop", RULE_NAMES)
@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_no_certificate_is_false(score: str, stop: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences())
    decoding = data.draw(decodings(score, stop))
    model = model_of(table)
    (result,) = beam_search(model, [sentence], decoding)
    (trace,) = record(model, [sentence], decoding.beam_size, decoding.slots)
    whole_beam = judged(trace, decoding.rescorer, Exhaustive(), decoding.n_best, sentence.expected_length)
    full = len(result.hypotheses) == decoding.n_best
    nth_best = result.hypotheses[-1].score if full else -math.inf
    match result.certificate:
        case Certificate.GLOBAL:
            chosen = {each.tokens for each in result.hypotheses}
            rewards = trace.rewards[: result.steps].tolist()  # nothing later may matter
            for path in all_finished(table, sentence):
                if path.tokens not in chosen:
                    assert score_of(decoding.rescorer, sentence, path, rewards) <= nth_best
        case Certificate.BEAM:
            assert result.hypotheses == whole_beam.hypotheses
        case Certificate.NONE:
            assert result.gap > 0
            best = [each.score for each in whole_beam.hypotheses[: decoding.n_best]]
            assert len(best) < decoding.n_best or best[-1] - nth_best <= result.gap
        case Certificate.TRUNCATED:
            assert all(each.tokens[-1] != table.eos for each in result.hypotheses)
    assert result.certificate is Certificate.NONE or result.gap in (0.0, math.inf)


@given(data=st.data())
def test_a_beam_that_holds_everything_is_global(data: st.DataObject) -> None:
    """With room for all prefixes nothing is pruned, so an exhaustive search must be able to say so."""
    table, sentence = data.draw(tables(vocabulary=3)), data.draw(sentences(max_length=3))
    (result,) = beam_search(model_of(table), [sentence], Decoding(16, data.draw(decodings()).score, Exhaustive()))
    assert result.certificate in (Certificate.GLOBAL, Certificate.TRUNCATED)


END_IS_SECOND = TableModel(  # the end is pruned at step 1, and is what a negative reward would have chosen
    np.array([[-1.0, -1.5], [-9.0, -1.0]]), np.array([[1, 1], [1, 1]])
)


def test_a_pruned_end_denies_global_when_the_score_falls_with_length() -> None:
    (result,) = beam_search(
        END_IS_SECOND, [Sentence((0,), max_length=3)], Decoding(1, WordReward(-1.0), Optimal())
    )
    assert result.hypotheses[0].tokens == (0, 1)
    assert result.hypotheses[0].score == -4.0  # the pruned end alone would have had -2.5
    assert result.certificate is Certificate.BEAM


def test_a_pruned_end_below_the_best_leaves_global() -> None:
    model = TableModel(np.array([[-1.0, -2.5], [-9.0, -1.0]]), np.ones((2, 2), dtype=np.int64))
    (result,) = beam_search(model, [Sentence((0,), max_length=2)], Decoding(1, "log-prob"))
    assert result.hypotheses[0].tokens == (0, 1)
    assert result.certificate is Certificate.GLOBAL


def test_an_end_that_refill_leaves_out_counts_as_pruned() -> None:
    """Three words before the end: with refill and width 2 it is seen at rank 4 and not recorded."""
    model = TableModel(
        np.array([[-1.0, -1.1, -1.2, -1.3], [-9.0, -9.0, -9.0, -5.0]]), np.ones((2, 4), dtype=np.int64)
    )
    (result,) = beam_search(
        model, [Sentence((0,), max_length=2)], Decoding(2, "log-prob", "exhaustive", slots="refill")
    )
    assert result.hypotheses[0].tokens == (0, 3)
    assert result.certificate is Certificate.BEAM


def test_what_an_end_that_is_too_early_displaces_counts_as_pruned() -> None:
    """The end is likeliest and not allowed yet; the second word is let go, and would have been the way."""
    model = TableModel(
        np.array([[-1.0, -1.5, -0.1], [-9.0, -9.0, -5.0], [-9.0, -9.0, -0.1]]),
        np.array([[1, 2, 0], [1, 1, 1], [2, 2, 2]]),
    )
    (result,) = beam_search(model, [Sentence((0,), max_length=2, min_length=2)], Decoding(1, "log-prob"))
    assert result.hypotheses[0].tokens == (0, 2)
    assert result.certificate is Certificate.BEAM


def test_a_score_that_is_no_number_is_refused() -> None:
    model = TableModel(np.array([[-1.0, -0.5]]), np.zeros((1, 2), dtype=np.int64))
    SCORES.register("no-number", formula="NaN", source="this test")(NoNumber)
    try:
        with pytest.raises(UncurseError, match=r"NoNumber\.score is NaN for some hypotheses"):
            beam_search(model, [Sentence((0,), max_length=3)], Decoding(2, NoNumber()))
    finally:
        SCORES.unregister("no-number")


@final
@dataclass(frozen=True)
class NoNumber(Rescorer):
    """A mistake in a formula."""

    def score(self, source: Source, paths: Paths) -> Floats:
        return np.where(paths.length == 2, np.nan, paths.log_prob)


def test_the_gap_of_an_early_stop_is_what_the_rest_could_have_gained() -> None:
    model = TableModel(np.array([[-1.0, -0.5], [-0.1, -0.1]]), np.ones((2, 2), dtype=np.int64))
    (result,) = beam_search(model, [Sentence((0,), max_length=4)], Decoding(2, "length-norm", "first-finished"))
    assert result.certificate is Certificate.NONE
    assert result.gap == -1.0 / 4 - -0.5
