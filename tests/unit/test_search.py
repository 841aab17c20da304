"""Beam search: greedy, prefixes, coverage, truncation, and what it refuses."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from support.judging import judged

from uncurse import Certificate, Decoding, Result, Search, Sentence, Slots, UncurseError, beam_search, record
from uncurse.scoring.scores import GNMT, F1Norm, LengthNorm
from uncurse.scoring.stopping import BeamFull, Optimal
from uncurse.search.record import Recorder
from uncurse.testing import RandomModel, TableModel
from uncurse.testing.models import RandomState


def test_a_forced_prefix_counts_neither_in_score_nor_length() -> None:
    model = RandomModel(seed=1, vocab_size=6)
    forced = Sentence((1, 2), max_length=8, prefix=(3, 0, 3), expected_length=9.0)
    (result,) = beam_search(model, [forced], Decoding(5, "bp-norm"))
    best = result.hypotheses[0]
    state = model.start([forced.source])
    for token in (model.bos, 3, 0):
        _, state = model.step(state, np.array([token]), 1, False)
    total, last = 0.0, 3
    for token, log_prob in zip(best.tokens, best.log_probs, strict=True):
        given, state = model.step(state, np.array([last]), model.vocab_size, False)
        expected = given.log_probs[0, given.tokens[0] == token][0]
        assert log_prob == expected
        total, last = total + log_prob, token
    assert best.log_prob == total
    assert best.length <= forced.max_length
    assert best.score == min(1 - 6.0 / best.length, 0) + total / best.length
    assert "|prefix:3-0-3|" in result.signature


def test_a_prefix_costs_a_model_row_for_each_token() -> None:
    model = RandomModel(seed=1, vocab_size=6)
    results = [
        beam_search(model, [Sentence((1,), max_length=1, prefix=prefix)], Decoding(3, "log-prob"))[0]
        for prefix in [(), (2,), (2, 2, 2)]
    ]
    assert [result.model_rows for result in results] == [1, 2, 4]


def test_an_end_in_a_prefix_is_refused() -> None:
    model = RandomModel(seed=1, vocab_size=6)
    with pytest.raises(ValueError, match="sentence 1: the eos token 5 cannot be in a prefix"):
        record(model, [Sentence((1,), 4), Sentence((1,), 4, prefix=(5,))], beam_size=2)


def test_coverage_of_padded_positions_is_never_counted() -> None:
    """Beyond a source's end the attention is anything; a sentence beside a longer one scores as it does alone."""
    attention = np.array([[0.25, 0.5, 7.0, 0.0], [0.25, 0.25, 0.0, 3.0]])
    model = TableModel(np.array([[-1.0, -2.0], [-1.0, -0.5]]), np.array([[1, 1], [1, 1]]), attention)
    short, long = Sentence((0, 2), max_length=2), Sentence((0, 0, 0, 2), max_length=2)
    decoding = Decoding(2, "gnmt:alpha=0,beta=1")
    for others in ([], [long]):
        result = beam_search(model, [short, *others], decoding)[0]
        best = result.hypotheses[0]
        assert best.tokens == (0, 1)
        assert best.score == -1.5 + np.log(0.5) + np.log(0.75)


def test_unattended_pieces_count_as_epsilon() -> None:
    model = TableModel(np.array([[-1.0, -2.0]]), np.zeros((1, 2), dtype=np.int64), np.zeros((1, 3)))
    (result,) = beam_search(model, [Sentence((0, 0, 0), max_length=1)], Decoding(2, "gnmt:alpha=0,beta=1"))
    assert result.hypotheses[0].score == pytest.approx(-2.0 + 3 * math.log(1e-6))


def test_coverage_needs_a_model_that_attends() -> None:
    with pytest.raises(ValueError, match="gives no attention"):
        Search(RandomModel(seed=1, vocab_size=6), Decoding(2, "gnmt:beta=0.2"))


@pytest.mark.parametrize(("score", "stop"), [("bp-norm", "optimal"), ("log-prob", "predicted-horizon")])
def test_a_needed_length_is_asked_for_at_once(score: str, stop: str) -> None:
    search = Search(RandomModel(seed=1, vocab_size=6), Decoding(2, score, stop))
    with pytest.raises(ValueError, match="expected length"):
        search.join([Sentence((1,), max_length=4)])
    assert len(search) == 0


def test_truncated_outputs_are_returned_only_if_nothing_finished_and_marked() -> None:
    never = TableModel(np.array([[-0.5, -1.0, -math.inf]]), np.zeros((1, 3), dtype=np.int64))
    (result,) = beam_search(never, [Sentence((0,), max_length=3)], Decoding(4, "length-norm", n_best=2))
    assert result.certificate is Certificate.TRUNCATED
    assert [each.tokens for each in result.hypotheses] == [(0, 0, 0), (0, 0, 1)]
    assert result.hypotheses[0].score == -0.5
    assert result.gap == math.inf


def test_a_model_with_no_way_on_gives_nothing() -> None:
    dead = TableModel(np.full((1, 2), -math.inf), np.zeros((1, 2), dtype=np.int64))
    (result,) = beam_search(dead, [Sentence((0,), max_length=3)], Decoding(2, "log-prob"))
    assert (result.hypotheses, result.certificate) == ((), Certificate.TRUNCATED)


def test_a_cancelled_sentence_gives_the_best_so_far_with_its_gap() -> None:
    model = TableModel(np.array([[-0.5, -1.0]]), np.zeros((1, 2), dtype=np.int64))
    search = Search(model, Decoding(2, "length-norm"))
    first, second = search.join([Sentence((0,), max_length=50), Sentence((0,), max_length=50)])
    assert search.cancel(second).hypotheses == ()
    search.advance()
    search.advance()
    result = search.cancel(first)
    assert result.certificate is Certificate.NONE
    assert result.hypotheses[0].tokens == (0, 1)
    assert result.gap == -1.0 / 50 - -0.75
    assert len(search) == 0
    with pytest.raises(KeyError, match="ticket 0"):
        search.cancel(first)


def test_several_are_cancelled_as_each_would_be_alone_and_the_others_go_on() -> None:
    sentences = [Sentence((each,), max_length=9, expected_length=5.0) for each in range(5)]
    decoding = Decoding(3, "bp-norm", "exhaustive")

    def begun() -> Search[RandomState]:
        search = Search(RandomModel(seed=4, vocab_size=6), decoding)
        search.join(sentences)
        search.advance()
        search.advance()
        return search

    search = begun()
    assert search.cancel_all([3, 0]) == {ticket: begun().cancel(ticket) for ticket in (0, 3)}
    with pytest.raises(KeyError, match="ticket 3"):
        search.cancel_all([1, 3])
    assert len(search) == 3
    found: dict[int, Result] = {}
    while len(search):
        found.update(search.advance())
    others = [1, 2, 4]
    expected = beam_search(RandomModel(seed=4, vocab_size=6), [sentences[each] for each in others], decoding)
    assert [found[each] for each in others] == expected


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_a_recording_that_is_cancelled_is_that_of_a_lower_limit(steps: int) -> None:
    model = RandomModel(seed=4, vocab_size=6, attends=True)
    recorder = Recorder(model, 3, Slots.REFILL)
    cancelled, other = recorder.join([Sentence((1, 2), max_length=20), Sentence((3,), max_length=8)])
    traces = dict(itertools.chain.from_iterable(recorder.advance() for _ in range(steps)))
    assert not traces
    traces |= recorder.cancel_all([cancelled])
    while len(recorder):
        traces.update(recorder.advance())
    alone = record(model, [Sentence((1, 2), max_length=steps), Sentence((3,), max_length=8)], 3, Slots.REFILL)
    for trace, expected in zip((traces[cancelled], traces[other]), alone, strict=True):
        assert trace.signature == expected.signature
        for name in ("tokens", "parents", "log_probs", "sums", "rewards", "pruned", "coverage"):
            np.testing.assert_array_equal(getattr(trace, name), getattr(expected, name))


def test_advancing_an_empty_search_is_refused() -> None:
    with pytest.raises(ValueError, match="the batch is empty"):
        Search(RandomModel(seed=1, vocab_size=6), Decoding(2, "log-prob")).advance()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beam_size": 0}, "beam_size = 0 is not allowed: beam_size must be a whole number in 1 … 100000"),
        ({"beam_size": 2.5}, r"beam_size = 2\.5 is not allowed"),
        ({"n_best": 0}, "n_best = 0 is not allowed"),
        ({"slots": "keep"}, "slots = 'keep' is not allowed"),
        ({"stop": "optimum"}, "unknown stopping rule 'optimum'; did you mean 'optimal'"),
    ],
)
def test_a_bad_decoding_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding(**change)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_length", "expected_length"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "5", 10**9, 10**400])
def test_a_bad_sentence_is_refused(name: str, value: object) -> None:
    change = {name: value}
    with pytest.raises(ValueError, match="is not allowed"):
        Sentence(**{"source": (1,), "max_length": 3, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["source", "prefix"])
@pytest.mark.parametrize("value", [None, 5, "abc", [1, 2], (1.5,), ("1",)])
def test_tokens_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a tuple of token ids"):
        Sentence(**{"source": (1,), "max_length": 3, name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, 1.5, True, 10**9])
def test_a_least_length_says_what_it_may_be(value: object) -> None:
    with pytest.raises(ValueError, match="min_length must be a whole number in 0 … 100000"):
        Sentence((1,), 3, min_length=value)  # type: ignore[arg-type]


def test_a_beam_wider_than_the_vocabulary_is_no_trouble() -> None:
    model = RandomModel(seed=1, vocab_size=3)
    for slots in Slots:
        (trace,) = record(model, [Sentence((1,), max_length=6)], beam_size=40, slots=slots)
        assert trace.live_counts.tolist()[:4] == [2, 4, 8, 16]


def test_a_limit_is_a_whole_number() -> None:
    with pytest.raises(ValueError, match=r"max_length = 2\.5 is not allowed"):
        Sentence((1,), max_length=2.5)  # type: ignore[arg-type]


def test_methods_are_given_by_name_or_as_values() -> None:
    named = Decoding(3, "gnmt:alpha=0.5", "beam-full:patience=2", 2, "refill")
    assert named == Decoding(3, GNMT(0.5), BeamFull(2.0), 2, Slots.REFILL)
    assert named.replace(stop="optimal") == Decoding(3, GNMT(0.5), Optimal(), 2, Slots.REFILL)
    for change in ({"score": 3}, {"stop": None}, {"slots": 1}, {"stop": GNMT()}, {"score": Optimal()}):
        with pytest.raises(UncurseError, match=r"is not allowed: give a name or a (score|stop|slots)"):
            Decoding(**change)


def test_the_default_score_is_f1_norm_where_every_length_is_expected() -> None:
    model, known = RandomModel(seed=1, vocab_size=6), Sentence((1,), max_length=3, expected_length=2.0)
    (result,) = beam_search(model, [known], Decoding(2))
    assert result.decoding.score == F1Norm()
    (_, result) = beam_search(model, [known, Sentence((1,), max_length=3)], Decoding(2))
    assert result.decoding.score == LengthNorm()
    with pytest.raises(UncurseError, match="a score is needed"):
        Search(model, Decoding(2))


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_widths_and_batches_are_counts(count: int) -> None:
    model, sentences = RandomModel(seed=1, vocab_size=6), [Sentence((1,), max_length=3)]
    with pytest.raises(ValueError, match="beam_size"):
        record(model, sentences, count)
    with pytest.raises(ValueError, match="batch"):
        record(model, sentences, 2, batch_size=count)
    with pytest.raises(ValueError, match="batch"):
        beam_search(model, sentences, Decoding(2, "log-prob"), batch_size=count)


@pytest.mark.parametrize("token", [-1, 6, 99])
def test_a_prefix_token_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(ValueError, match=f"sentence 0: prefix token {token} is not in 0 … 5"):
        record(RandomModel(seed=1, vocab_size=6), [Sentence((1,), 4, prefix=(1, token))], beam_size=2)


def test_signatures_tell_lengths_apart_that_lead_to_different_outputs() -> None:
    model = RandomModel(seed=1, vocab_size=6)
    signatures = {
        beam_search(model, [Sentence((1,), 20, expected_length=length)], Decoding(3, "adaptive-reward"))[
            0
        ].signature
        for length in (9.9999999, 10.0)
    }
    assert len(signatures) == 2


def test_numbers_of_other_kinds_become_plain_ones() -> None:
    sentence = Sentence((1,), np.uint8(255), (), Fraction(5, 2), np.int8(1))  # type: ignore[arg-type]
    assert repr(sentence) == "Sentence(source=(1,), max_length=255, prefix=(), expected_length=2.5, min_length=1)"
    decoding = Decoding(np.int64(3), LengthNorm(np.float32(0.5)), n_best=np.int64(2))  # type: ignore[arg-type]
    assert repr(decoding) == repr(Decoding(3, LengthNorm(0.5), n_best=2))
    model = RandomModel(seed=1, vocab_size=5)
    (trace,) = record(model, [sentence], np.int64(3))  # type: ignore[arg-type]
    found = judged(trace, decoding.rescorer, decoding.stop, np.int64(2), np.float32(2.5), np.uint8(9))  # type: ignore[arg-type]
    assert found == judged(trace, LengthNorm(0.5), decoding.stop, 2, 2.5, 9)


def test_sentences_that_have_left_leave_no_coverage_behind() -> None:
    search = Search(RandomModel(seed=1, vocab_size=5, attends=True), Decoding(3, "gnmt:beta=0.2", "exhaustive"))
    long, _ = search.join([Sentence((1,) * 50, max_length=9), Sentence((1, 2), max_length=9)])
    search.advance()
    search.cancel(long)
    assert search._beam._rows.coverage is not None
    assert search._beam._rows.coverage.shape[1] == 2
    search.advance()
