"""A search, live or judged from a trace, returns what the definitions say."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import Table, continuations, start, textbook_search, textbook_steps
from support.strategies import RULE_NAMES, SCORE_NAMES, decodings, model_of, rescorers, sentences, tables

from uncurse import Decoding, Search, Sentence, beam_search, judge, record
from uncurse.scoring.scores import LogProb
from uncurse.scoring.stopping import Exhaustive


@pytest.mark.parametrize("stop", RULE_NAMES)
@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_a_search_returns_what_the_definitions_say(score: str, stop: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences())
    decoding = data.draw(decodings(score, stop))
    (found,) = beam_search(model_of(table), [sentence], decoding)
    assert dataclasses.replace(found, signature="") == textbook_search(table, sentence, decoding)


@pytest.mark.parametrize("stop", RULE_NAMES)
@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_judged_traces_equal_live_searches(score: str, stop: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences(max_length=6))
    decoding = data.draw(decodings(score, stop))
    max_length = data.draw(st.integers(max(sentence.min_length, 1), sentence.max_length))
    model = model_of(table)
    (trace,) = record(model, [sentence], decoding.beam_size, decoding.slots)
    (live,) = beam_search(model, [dataclasses.replace(sentence, max_length=max_length)], decoding)
    assert judge(trace, [decoding], expected_length=sentence.expected_length, max_length=max_length) == [live]


@given(tables(), sentences(max_length=5), decodings())
def test_a_trace_holds_every_step_of_the_beam(table: Table, sentence: Sentence, decoding: Decoding) -> None:
    (trace,) = record(model_of(table), [sentence], decoding.beam_size, decoding.slots)
    steps = textbook_steps(table, sentence, decoding)
    assert trace.steps == len(steps)
    for index, step in enumerate(steps):
        ranks = trace.is_live[index].nonzero()[0]
        live = [trace.hypothesis(index, int(rank), 0.0) for rank in ranks]
        assert [(each.tokens, each.log_prob, each.log_probs) for each in live] == [
            (path.tokens, path.total, path.log_probs) for path in step.live
        ]
        assert trace.rewards[index] == step.reward
        assert trace.pruned[index] == step.pruned


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_a_cancelled_search_says_what_it_has_and_what_is_proved(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences(max_length=6))
    decoding = data.draw(decodings(score, "exhaustive"))
    steps = data.draw(st.integers(1, 6))
    search = Search(model_of(table), decoding)
    (ticket,) = search.join([sentence])
    for _ in range(len(sentence.prefix) + steps):
        if search.advance():
            return  # it ended by itself
    found = search.cancel(ticket)
    assert dataclasses.replace(found, signature="") == textbook_search(table, sentence, decoding, cancelled=steps)


@pytest.mark.parametrize("score", SCORE_NAMES)
@given(data=st.data())
def test_beam_1_equals_greedy_when_the_end_occupies_a_slot(score: str, data: st.DataObject) -> None:
    table, sentence = data.draw(tables()), data.draw(sentences(max_length=6))
    decoding = Decoding(1, data.draw(rescorers(score)), Exhaustive())
    path = start(table, sentence)
    while len(path.tokens) < sentence.max_length and path.tokens[-1:] != (table.eos,):
        ways = continuations(table, sentence, path)
        if not ways:
            break
        path = min(ways, key=lambda way: (-way.log_probs[-1], way.tokens[-1]))
    (result,) = beam_search(model_of(table), [sentence], decoding)
    assert tuple(each.tokens for each in result.hypotheses) == ((path.tokens,) if path.tokens else ())


def test_the_likelier_token_is_taken_where_rounding_makes_sums_equal() -> None:
    table = Table(
        [[-1e-19, 0.0, 0.0, 0.0], [-0.25, -1.0, -1.0, -1.0]], [[0, 1, 0, 0], [0, 0, 0, 0]], [[0.0] * 4] * 2
    )
    sentence = Sentence((1,), max_length=2)
    (result,) = beam_search(model_of(table), [sentence], Decoding(1, LogProb(), Exhaustive()))
    assert [each.tokens for each in result.hypotheses] == [(0, 1)]
