"""Optimal stopping loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import Table
from support.strategies import SCORE_NAMES, decodings, model_of, sentences, tables

from uncurse import (
    RULES,
    SCORES,
    Decoding,
    Evidence,
    Paths,
    Rescorer,
    Result,
    Sentence,
    Source,
    beam_search,
    parameter,
)
from uncurse.arrays import Bools, Floats
from uncurse.scoring.stopping import Exhaustive, Optimal, StoppingRule
from uncurse.testing import RandomModel, TableModel, check_rescorer


def searched(table: Table, sentence: Sentence, decoding: Decoding) -> Result:
    (result,) = beam_search(model_of(table), [sentence], decoding)
    return result


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_optimal_returns_what_exhaustive_returns_and_never_later(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences(max_length=7))
    decoding = data.draw(decodings(score, "optimal"))
    optimal = searched(table, sentence, decoding)
    exhaustive = searched(table, sentence, decoding.replace(stop=Exhaustive()))
    assert optimal.hypotheses == exhaustive.hypotheses
    assert optimal.steps <= exhaustive.steps
    assert optimal.model_rows <= exhaustive.model_rows


@final
@dataclass(frozen=True)
class GaussianLength(Rescorer):
    """A score that rises and falls with the length: a prior around the expected length."""

    deviation: float = parameter("standard deviation in tokens", default=1.0, low=0.0, low_open=True)

    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob - ((paths.length - source.expected_length) / self.deviation) ** 2 / 2


@pytest.fixture
def gaussian() -> Iterator[None]:
    SCORES.register("gaussian-length", formula="S − (n − L)² / 2σ²", source="this test")(GaussianLength)
    yield
    SCORES.unregister("gaussian-length")


@pytest.mark.usefixtures("gaussian")
def test_a_score_registered_here_is_stopped_losslessly_with_no_other_code() -> None:
    check_rescorer(GaussianLength(1.5))
    model = RandomModel(seed=5, vocab_size=12, ending=0.5)
    sentences = [
        Sentence((index, index + 1), max_length=24, expected_length=3.0 + index % 9) for index in range(40)
    ]
    for deviation in (0.5, 2.0, 8.0):
        score = f"gaussian-length:deviation={deviation}"
        optimal = beam_search(model, sentences, Decoding(6, score, "optimal", n_best=2))
        exhaustive = beam_search(model, sentences, Decoding(6, score, "exhaustive", n_best=2))
        assert [each.hypotheses for each in optimal] == [each.hypotheses for each in exhaustive]
        assert sum(each.steps for each in optimal) < sum(each.steps for each in exhaustive)
        assert all(each.certificate.proved for each in optimal)
        assert f"score:{score}@" in optimal[0].signature


@final
@dataclass(frozen=True)
class KeepsHopeless(StoppingRule):
    """Optimal stopping that lets hopeless prefixes live."""

    def stops(self, evidence: Evidence) -> Bools:
        return Optimal().stops(evidence)


@pytest.fixture(scope="module")
def keeps_hopeless() -> Iterator[None]:
    RULES.register("keeps-hopeless", formula="as optimal", source="this test")(KeepsHopeless)
    yield
    RULES.unregister("keeps-hopeless")


@pytest.mark.usefixtures("keeps_hopeless")
@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_dropping_hopeless_prefixes_changes_no_result(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences(max_length=7))
    decoding = data.draw(decodings(score, "optimal"))
    dropping = searched(table, sentence, decoding)
    keeping = searched(table, sentence, decoding.replace(stop=KeepsHopeless()))
    assert dropping.model_rows <= keeping.model_rows
    assert replace(dropping, model_rows=0, signature="") == replace(
        keeping, model_rows=0, signature="", decoding=decoding
    )


@pytest.mark.usefixtures("keeps_hopeless")
def test_dropping_hopeless_prefixes_saves_rows() -> None:
    model = RandomModel(seed=1, vocab_size=30, ending=1.0)
    sentences = [Sentence((index,), max_length=20, expected_length=6.0) for index in range(50)]
    dropping = beam_search(model, sentences, Decoding(10, "bp-norm", "optimal"))
    keeping = beam_search(model, sentences, Decoding(10, "bp-norm", "keeps-hopeless"))
    assert sum(each.model_rows for each in dropping) < sum(each.model_rows for each in keeping)


def test_bounds_are_the_same_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score that falls with the length: its best case is never the longest, so every prefix is looked at."""
    model = RandomModel(seed=3, vocab_size=9, ending=1.0)
    sentences = [Sentence((index,), max_length=12) for index in range(9)]
    decoding = Decoding(7, "word-reward:reward=-0.4", n_best=3)
    together = beam_search(model, sentences, decoding)
    monkeypatch.setattr("uncurse.scoring.rescorer.MAX_CELLS", 1)
    assert beam_search(model, sentences, decoding) == together


def test_hopeless_prefixes_are_those_whose_bound_the_nth_best_has_reached() -> None:
    """Two words and an end: after the end of step 1, only the likelier word can still win."""
    log_probs = np.array([[-0.5, -2.0, -1.0], [0.0, -9.0, 0.0]])
    model = TableModel(log_probs, np.ones((2, 3), dtype=np.int64))
    (result,) = beam_search(model, [Sentence((0,), max_length=3)], Decoding(3, "log-prob"))
    assert result.hypotheses[0].tokens == (0, 2)
    assert (result.steps, result.model_rows) == (2, 2)  # the empty prefix, then one word instead of two
