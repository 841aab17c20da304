"""Forced decoding says of a search's outputs what the search said."""

from __future__ import annotations

import pytest

from uncurse import Decoding, Sentence, beam_search
from uncurse.search.forced_decoding import force_decode
from uncurse.testing import RandomModel

MODEL = RandomModel(seed=4, vocab_size=8, ending=0.5, attends=True)
SOURCES = [(1, 2, 3), (4,), (5, 6), (), (7, 7)]


def test_forced_log_probs_are_those_of_the_search() -> None:
    results = beam_search(
        MODEL, [Sentence(source, max_length=9) for source in SOURCES], Decoding(4, "gnmt:alpha=0,beta=1")
    )
    best = [result.hypotheses[0] for result in results]
    forced = force_decode(MODEL, SOURCES, [hypothesis.tokens[:-1] for hypothesis in best])
    for hypothesis, found in zip(best, forced, strict=True):
        assert found.tokens == hypothesis.tokens
        assert found.log_probs == hypothesis.log_probs
        assert found.log_prob == hypothesis.log_prob
        assert found.coverage is not None
        assert found.log_prob + found.coverage == hypothesis.score


def test_an_empty_target_is_its_end_alone() -> None:
    (found,) = force_decode(RandomModel(seed=4, vocab_size=8), [(1,)], [()])
    assert found.tokens == (7,)
    assert found.coverage is None


def test_sources_and_targets_go_together() -> None:
    assert force_decode(MODEL, [], []) == []
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        force_decode(MODEL, [(1,), (2,)], [(1,)])
