"""The batcher: many requests share searches, and no result shows it."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.batcher import (
    OPTIONS,
    SOON,
    Clock,
    alone,
    held_translator,
    running_batcher,
    sentence_of,
    submit,
    wait_until,
)
from support.service import CharacterTokenizer, QuantilePredictor, letter_translator

from uncurse import Decoding, parse_max_length, record
from uncurse.lengths.predictors import FixedRatio
from uncurse.search.explain import Explanation, standard_scores
from uncurse.serving.errors import BusyError, ClosedError, DeadlineError, InvalidFieldError
from uncurse.serving.explain_payload import explain_payload
from uncurse.serving.jobs import Answer, ExplanationJob
from uncurse.serving.limits import ServiceLimits
from uncurse.serving.search_thread import MAX_STEPS_WAITED
from uncurse.translation.options import TranslationOptions
from uncurse.translation.translator import Translator

LINES = ["abc", "f", "abcdefabc", "ab", "edcba", "a", "fedc fedc", "", "ffff"]


def test_a_request_gets_the_answers_of_the_translator_in_the_order_of_its_sentences() -> None:
    translator = letter_translator()
    with running_batcher(translator) as batcher:
        for options in OPTIONS:
            found = submit(batcher, options, *LINES).result(SOON)
            assert found == [alone(translator, options, line) for line in LINES]


def test_sentences_that_join_at_any_moment_change_nothing() -> None:
    model, translator = held_translator()
    free = letter_translator()
    with running_batcher(translator, ServiceLimits(batch_tokens=40)) as batcher:
        asked = []
        for turn, (options, line) in enumerate(itertools.product(OPTIONS, LINES)):
            asked.append((options, line, submit(batcher, options, line)))
            if turn % 5 == 4:
                model.allow(3)
        model.allow_all()
        for options, line, future in asked:
            assert future.result(SOON) == [alone(free, options, line)]


def test_requests_that_decode_alike_share_a_search_whatever_their_max_lengths() -> None:
    model, translator = held_translator()
    with running_batcher(translator) as batcher:
        first = submit(batcher, OPTIONS[0], "abcdef")
        wait_until(lambda: batcher.searching == 1)
        others = [submit(batcher, options, "fedcba") for options in OPTIONS[1:4]]
        model.allow_all()
        for future in (first, *others):
            future.result(SOON)
    assert model.rows[0] == 1
    assert max(model.rows) > OPTIONS[0].decoding.beam_size  # more than one sentence has


def test_requests_that_decode_differently_do_not_share_a_search() -> None:
    model, translator = held_translator()
    with running_batcher(translator) as batcher:
        asked = [submit(batcher, TranslationOptions(Decoding(beam_size)), "abcdef") for beam_size in (2, 3, 4)]
        model.allow_all()
        for future in asked:
            future.result(SOON)
    assert max(model.rows) <= 4


def test_waiting_sentences_join_together_but_do_not_wait_long_for_that() -> None:
    model, translator = held_translator(ending=-9.0)
    options = TranslationOptions(Decoding(1, "log-prob", "exhaustive"), parse_max_length("40"))
    with running_batcher(translator) as batcher:
        many = submit(batcher, options, *["abcdef"] * 32)
        model.allow(1)
        wait_until(lambda: len(model.rows) == 1)
        one = submit(batcher, options, "fedcba")
        model.allow_all()
        many.result(SOON)
        one.result(SOON)
    assert model.rows[0] == 32
    joined = model.rows.index(33)
    assert 1 < joined <= 2 + MAX_STEPS_WAITED


def test_searches_hold_no_more_source_tokens_than_a_batch_may() -> None:
    model, translator = held_translator()
    with running_batcher(translator, ServiceLimits(batch_tokens=13)) as batcher:
        futures = [
            submit(batcher, TranslationOptions(Decoding(beam_size)), *["abcdef"] * 4) for beam_size in (1, 3)
        ]
        model.allow_all()
        for future in futures:
            assert len(future.result(SOON)) == 4
    assert max(model.rows) <= 2 * 3  # two sentences of six tokens, whatever their beams


def test_a_full_queue_says_when_to_retry_and_then_takes_requests_again() -> None:
    model, translator = held_translator()
    limits = ServiceLimits(sentences=4, waiting=4, batch_tokens=1)
    with running_batcher(translator, limits) as batcher:
        first = submit(batcher, OPTIONS[0], "abc")
        wait_until(lambda: batcher.searching == 1)
        second = submit(batcher, OPTIONS[0], "a", "b", "c")
        with pytest.raises(BusyError) as refused:
            submit(batcher, OPTIONS[0], "d", "e")
        assert 1 <= refused.value.retry_after <= 60
        third = submit(batcher, OPTIONS[0], "d")
        assert batcher.waiting == 4
        model.allow_all()
        answers = [answer for future in (first, second, third) for answer in future.result(SOON)]
        assert answers == [alone(letter_translator(), OPTIONS[0], line) for line in ("abc", "a", "b", "c", "d")]
        assert submit(batcher, OPTIONS[0], "d", "e").result(SOON)


def test_a_closing_batcher_answers_what_it_has_taken_and_takes_no_more() -> None:
    model, translator = held_translator()
    with running_batcher(translator, ServiceLimits(batch_tokens=4)) as batcher:
        futures = [submit(batcher, OPTIONS[0], "abcd", "dcba") for _ in range(4)]
        closing = threading.Thread(target=batcher.close)
        closing.start()
        wait_until(lambda: not batcher.healthy)
        with pytest.raises(ClosedError):
            submit(batcher, OPTIONS[0], "a")
        model.allow_all()
        closing.join(SOON)
        assert not closing.is_alive()
        expected = [alone(letter_translator(), OPTIONS[0], line) for line in ("abcd", "dcba")]
        assert all(future.result(0) == expected for future in futures)


def test_a_cancelled_request_is_no_longer_searched_for() -> None:
    model, translator = held_translator()
    with running_batcher(translator) as batcher:
        future = submit(batcher, OPTIONS[0], "abcdef", "fedcba")
        model.allow(2)
        wait_until(lambda: len(model.rows) == 2)
        assert future.cancel()
        model.allow(1)  # the step that was under way
        wait_until(lambda: batcher.searching == 0)
        assert len(model.rows) <= 3
        model.allow_all()
        assert submit(batcher, OPTIONS[0], "ab").result(SOON) == [alone(letter_translator(), OPTIONS[0], "ab")]


def test_a_sentence_that_is_too_long_fails_its_own_request_alone() -> None:
    with running_batcher(letter_translator(), ServiceLimits(source_length=5)) as batcher:
        long = submit(batcher, OPTIONS[0], "ab", "abcdef")
        other = submit(batcher, OPTIONS[0], "abcde")
        with pytest.raises(InvalidFieldError, match="has 6 tokens; the maximum is 5") as refused:
            long.result(SOON)
        assert refused.value.field == ("sentences", 1)
        assert other.result(SOON) == [alone(letter_translator(), OPTIONS[0], "abcde")]
        with pytest.raises(InvalidFieldError, match="could have 21 tokens; the maximum is 20") as refused:
            submit(batcher, replace(OPTIONS[0], max_length=parse_max_length("21")), "a").result(SOON)
        assert refused.value.field == ("max_length",)
        with pytest.raises(InvalidFieldError):
            submit(batcher, replace(OPTIONS[0], max_length=parse_max_length("999999x")), "a").result(SOON)


def explained(translator: Translator, line: str, max_length: int) -> Answer:
    options = TranslationOptions(Decoding(4, "log-prob"), parse_max_length(str(max_length)))
    sentence = sentence_of(translator, line, options)
    (trace,) = record(translator.model, [sentence], 4)
    assert sentence.expected_length is not None
    found = Explanation(trace, sentence.expected_length, standard_scores(0.7, attends=True, knows_length=True))
    return explain_payload(found, translator.decode) | {"source": line}


def test_a_search_is_recorded_beside_others() -> None:
    model, translator = held_translator()
    job = ExplanationJob(TranslationOptions(Decoding(4, "log-prob"), parse_max_length("12")), 0.7)
    with running_batcher(translator) as batcher:
        seen_first = batcher.submit(job, ["abcdef"], 1e6)
        translated = submit(batcher, OPTIONS[0], "abcdef")
        seen_second = batcher.submit(job, ["fed"], 1e6)
        model.allow_all()
        assert translated.result(SOON) == [alone(letter_translator(), OPTIONS[0], "abcdef")]
        for future, line in ((seen_first, "abcdef"), (seen_second, "fed")):
            assert future.result(SOON) == [explained(letter_translator(), line, 12) | {"in_time": True}]
        with pytest.raises(InvalidFieldError, match="the sentence is empty"):
            batcher.submit(job, [" "], 1e6).result(SOON)


def test_a_deadline_makes_a_recorded_search_one_of_a_lower_max_length() -> None:
    clock = Clock()
    model, translator = held_translator()
    job = ExplanationJob(TranslationOptions(Decoding(4, "log-prob"), parse_max_length("20")), 0.7)
    with running_batcher(translator, clock=clock) as batcher:
        model.during[7] = clock.advance
        model.allow_all()
        assert batcher.submit(job, ["abcdef"], 10.0).result(SOON) == [
            explained(letter_translator(), "abcdef", 7) | {"in_time": False}
        ]
        late = batcher.submit(job, ["abcdef"], 0.0)
        with pytest.raises(DeadlineError):
            late.result(SOON)


def test_a_recorded_search_in_which_nothing_ends_is_retried() -> None:
    translator = letter_translator(ending=-2.0, predictor=QuantilePredictor())
    with running_batcher(translator) as batcher:
        job = ExplanationJob(TranslationOptions(Decoding(2, "log-prob")), 1.0)
        limits = set()
        for line in ("ab", "abc", "de", "ff", "abcdef"):
            (found,) = batcher.submit(job, [line], 1e6).result(SOON)
            narrow, wide = math.ceil(1.6 * len(line) + 1), 2 * len(line) + 10
            ended = explained_lengths(translator, line, narrow)
            assert found["max_length"] == (narrow if any(length > 1 for length in ended) else wide)
            limits.add(found["max_length"] == wide)
    assert limits == {True, False}


def explained_lengths(translator: Translator, line: str, max_length: int) -> list[int]:
    options = TranslationOptions(Decoding(2, "log-prob"), parse_max_length(str(max_length)))
    (trace,) = record(translator.model, [sentence_of(translator, line, options)], 2)
    return [step + 1 for step in trace.finished[0].tolist()]


@pytest.mark.parametrize(
    ("options", "field", "reason"),
    [
        ({"target_prefix": "a" * 20}, "target_prefix", "the prefix has 20 tokens"),
        ({"min_length": 21}, "min_length", "the maximum is 20"),
        ({"min_length": 15, "target_prefix": "a" * 6}, "min_length", "15 tokens after a prefix of 6"),
        ({"min_length": 15}, "min_length", "could have 25 tokens"),
    ],
)
def test_a_forced_output_that_has_no_room_names_the_field(
    options: dict[str, Any], field: str, reason: str
) -> None:
    with running_batcher(letter_translator(), ServiceLimits(source_length=5)) as batcher:
        with pytest.raises(InvalidFieldError, match=reason) as refused:
            submit(batcher, replace(OPTIONS[0], **options), "ab").result(SOON)
        assert refused.value.field == (field,)


class MarkupTokenizer(CharacterTokenizer):
    """A tokenizer that knows a written `</s>`, as some do."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[6] if line == "</s>" else CharacterTokenizer.encode(self, [line])[0] for line in lines]


def test_a_prefix_that_ends_the_sentence_fails_its_own_request_alone() -> None:
    model, _ = held_translator()
    translator = Translator(model, CharacterTokenizer(), MarkupTokenizer(), FixedRatio(1.5))
    with running_batcher(translator) as batcher:
        first = submit(batcher, OPTIONS[0], "abc")
        bad = submit(batcher, replace(OPTIONS[0], target_prefix="</s>"), "abc")
        model.allow_all()
        with pytest.raises(InvalidFieldError, match="end-of-sentence token") as refused:
            bad.result(SOON)
        assert refused.value.field == ("target_prefix",)
        assert first.result(SOON) == [alone(letter_translator(), OPTIONS[0], "abc")]
