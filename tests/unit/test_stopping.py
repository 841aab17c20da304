"""The stopping rules on searches small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest

from uncurse import RULES, Decoding, Evidence, Result, Sentence, StoppingRule, beam_search, judge, record
from uncurse.arrays import Bools
from uncurse.registry import parameter
from uncurse.rescoring import LogProb, MissingEvidenceError
from uncurse.stopping import Optimal
from uncurse.testing import TableModel

# Two words, then </s>. The end is rank 2 at step 1, and rank 1 from step 2 on.
MODEL = TableModel(np.array([[-0.5, -3.0, -1.0], [-2.0, -2.5, -0.25]]), np.array([[1, 1, 1], [1, 1, 1]]))


def stopped(stop: str, score: str = "length-norm", n_best: int = 1, width: int = 2, limit: int = 9) -> Result:
    (result,) = beam_search(MODEL, [Sentence((0,), limit, predicted=3.0)], Decoding.of(width, score, stop, n_best))
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
        assert len(stopped(rule.name, n_best=4).hypotheses) == 4


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
        decoding = Decoding.of(2, "bp-norm", rule.name, n_best=2)
        (result,) = beam_search(dead_end, [Sentence((0,), limit=9, predicted=1.0)], decoding)
        assert (result.steps, len(result.hypotheses)) == (1, 1)
        assert result.optimality.name == "GLOBAL"


@pytest.mark.parametrize("patience", ["0", "-1", "nan"])
def test_patience_must_be_positive(patience: str) -> None:
    with pytest.raises(ValueError, match="patience must be a number in \\(0, 1000\\]"):
        RULES.parse(f"beam-full:patience={patience}")


@final
@dataclass(frozen=True)
class Careless(StoppingRule):
    """A rule that reads what it did not ask for."""

    prediction: float = parameter("1: the predicted length, 0: the b-th best score", low=0.0, high=1.0)

    def stops(self, evidence: Evidence) -> Bools:
        value = evidence.source.predicted if self.prediction else evidence.width_best
        return value > 0


@pytest.fixture
def careless() -> Iterator[type[Careless]]:
    RULES.register("careless", formula="never", source="a test")(Careless)
    yield Careless
    RULES.unregister("careless")


@pytest.mark.parametrize("prediction", [0.0, 1.0])
def test_a_rule_that_reads_what_it_did_not_ask_for_is_told_so(prediction: float, careless: type[Careless]) -> None:
    rule = careless(prediction)
    with pytest.raises(MissingEvidenceError):
        beam_search(MODEL, [Sentence((0,), 5)], Decoding(2, LogProb(), rule))
    beside = Sentence((1,), 5, predicted=3.0)  # what another sentence of the batch has is no help
    with pytest.raises(MissingEvidenceError):
        beam_search(MODEL, [beside, Sentence((0,), 5)], Decoding(2, LogProb(), rule))
    (trace,) = record(MODEL, [Sentence((0,), 5)], 2)
    with pytest.raises(MissingEvidenceError):
        judge(trace, LogProb(), rule)


def test_optimal_stopping_cannot_be_refined() -> None:
    with pytest.raises(TypeError, match="Late must not refine Optimal"):
        type("Late", (Optimal,), {})
