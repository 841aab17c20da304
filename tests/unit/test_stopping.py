"""The stopping rules on searches small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest
from support.judging import judged

from uncurse import RULES, Decoding, Evidence, Result, Sentence, StoppingRule, UncurseError, beam_search, record
from uncurse.arrays import Bools
from uncurse.scoring.needs import Needs, needs
from uncurse.scoring.registry import parameter
from uncurse.scoring.scores import LogProb
from uncurse.scoring.stopping import Optimal
from uncurse.testing import TableModel

# Two words, then </s>. The end is rank 2 at step 1, and rank 1 from step 2 on.
MODEL = TableModel(np.array([[-0.5, -3.0, -1.0], [-2.0, -2.5, -0.25]]), np.array([[1, 1, 1], [1, 1, 1]]))


def stopped(
    stop: str, score: str = "length-norm", n_best: int = 1, beam_size: int = 2, max_length: int = 9
) -> Result:
    (result,) = beam_search(
        MODEL, [Sentence((0,), max_length, expected_length=3.0)], Decoding(beam_size, score, stop, n_best)
    )
    return result


def test_first_finished_waits_for_the_end_at_rank_one() -> None:
    assert stopped("first-finished").steps == 2


def test_beam_full_counts_what_finished() -> None:
    assert stopped("beam-full").steps == 2
    assert stopped("beam-full:patience=0.5").steps == 1
    assert stopped("beam-full:patience=1.5").steps == 3
    assert stopped("beam-full:patience=0.1").steps == 1  # rounds to nothing, and one is still needed


def test_no_rule_stops_before_n_have_finished() -> None:
    for rule in RULES:
        assert len(stopped(rule, n_best=4).hypotheses) == 4


def test_hf_heuristic_compares_at_the_present_length() -> None:
    """After step 2 the best live prefix, -2.5 / 2, is below the second best finished, -1 / 1."""
    assert stopped("hf-heuristic").steps == 2
    assert stopped("optimal").steps == 3  # -2.5 / 9 could still beat -0.75 / 2, and -4.5 / 9 cannot


def test_predicted_horizon_ends_the_prefix_at_the_predicted_length() -> None:
    """At L = 3 the best live prefix of step 2 would have -2.5 / 3, which -0.75 / 2 beats."""
    assert stopped("predicted-horizon").steps == 2


def test_exhaustive_runs_to_the_limit() -> None:
    assert stopped("exhaustive").steps == 9


def test_every_rule_ends_with_an_empty_beam() -> None:
    dead_end = TableModel(np.array([[-np.inf, 0.0]]), np.zeros((1, 2), dtype=np.int64))
    for rule in RULES:
        decoding = Decoding(2, "bp-norm", rule, n_best=2)
        (result,) = beam_search(dead_end, [Sentence((0,), max_length=9, expected_length=1.0)], decoding)
        assert (result.steps, len(result.hypotheses)) == (1, 1)
        assert result.certificate.name == "GLOBAL"


@pytest.mark.parametrize("patience", ["0", "-1", "nan"])
def test_patience_must_be_positive(patience: str) -> None:
    with pytest.raises(ValueError, match="patience must be a number in \\(0, 1000\\]"):
        RULES.parse(f"beam-full:patience={patience}")


@final
@dataclass(frozen=True)
class Reader(StoppingRule):
    """A rule that reads one thing or another; it declares neither."""

    expected_length: float = parameter("1: the expected length, 0: the b-th best score", low=0.0, high=1.0)

    def stops(self, evidence: Evidence) -> Bools:
        return (evidence.source.expected_length if self.expected_length else evidence.bth_best) > 0


@pytest.fixture
def reader() -> Iterator[type[Reader]]:
    RULES.register("reader", formula="L > 0, or the b-th best > 0", source="a test")(Reader)
    yield Reader
    RULES.unregister("reader")


def test_what_a_rule_reads_is_found_out() -> None:
    assert needs(Reader(1.0)) == Needs(expected_length=True)
    assert needs(Reader(0.0)) == Needs(bth_best=True)
    assert needs(Optimal()) == Needs()


def test_a_rule_gets_what_it_reads_or_it_is_asked_for(reader: type[Reader]) -> None:
    (result,) = beam_search(MODEL, [Sentence((0,), 5)], Decoding(2, LogProb(), reader(0.0)))
    assert result.steps == 5
    known = Sentence((1,), 5, expected_length=3.0)
    (result,) = beam_search(MODEL, [known], Decoding(2, LogProb(), reader(1.0)))
    assert result.steps == 1
    with pytest.raises(UncurseError, match="an expected length is needed for each sentence"):
        beam_search(MODEL, [known, Sentence((0,), 5)], Decoding(2, LogProb(), reader(1.0)))
    (trace,) = record(MODEL, [Sentence((0,), 5)], 2)
    with pytest.raises(UncurseError, match="an expected length is needed"):
        judged(trace, LogProb(), reader(1.0))


@final
@dataclass(frozen=True)
class OneAnswer(StoppingRule):
    """A rule that answers for all rows at once."""

    def stops(self, evidence: Evidence) -> Bools:
        return np.bool_(True)  # type: ignore[return-value]


def test_a_rule_that_does_not_answer_for_each_row_is_refused() -> None:
    with pytest.raises(UncurseError, match=r"OneAnswer\.stops must return a bool for each row"):
        needs(OneAnswer())
