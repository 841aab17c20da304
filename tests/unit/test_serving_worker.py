"""The worker: many requests share searches, and none can tell."""

from __future__ import annotations

import itertools
import math
import threading
from dataclasses import replace

import pytest
from served import Quantiles, letters
from working import SOON, TASKS, Clock, alone, ask, held, until, working

from uncurse import Decoding, parse_limit, record
from uncurse.explaining import Explanation, standard_scores
from uncurse.serving.options import Limits
from uncurse.serving.orders import Answer, ExplanationOrder, Refused, TooLate
from uncurse.serving.seen import seen
from uncurse.serving.worker import PATIENCE, Busy, Closed
from uncurse.translator import Task, Translator

LINES = ["abc", "f", "abcdefabc", "ab", "edcba", "a", "fedc fedc", "", "ffff"]


def test_a_request_is_answered_as_the_translator_answers_in_the_order_of_its_sentences() -> None:
    translator = letters()
    with working(translator) as worker:
        for task in TASKS:
            found = ask(worker, task, *LINES).result(SOON)
            assert found == [alone(translator, task, line) for line in LINES]


def test_sentences_that_join_at_any_moment_change_nothing() -> None:
    model, translator = held()
    free = letters()
    with working(translator, Limits(batch_tokens=40)) as worker:
        asked = []
        for turn, (task, line) in enumerate(itertools.product(TASKS, LINES)):
            asked.append((task, line, ask(worker, task, line)))
            if turn % 5 == 4:
                model.let(3)
        model.let_go()
        for task, line, future in asked:
            assert future.result(SOON) == [alone(free, task, line)]


def test_requests_that_decode_alike_share_a_search_whatever_their_limits() -> None:
    model, translator = held()
    with working(translator) as worker:
        first = ask(worker, TASKS[0], "abcdef")
        until(lambda: worker.searching == 1)
        others = [ask(worker, task, "fedcba") for task in TASKS[1:3]]
        model.let_go()
        for future in (first, *others):
            future.result(SOON)
    assert model.rows[0] == 1
    assert max(model.rows) > TASKS[0].decoding.width  # more than one sentence has


def test_requests_that_decode_differently_do_not() -> None:
    model, translator = held()
    with working(translator) as worker:
        asked = [ask(worker, Task(Decoding.of(width)), "abcdef") for width in (2, 3, 4)]
        model.let_go()
        for future in asked:
            future.result(SOON)
    assert max(model.rows) <= 4


def test_newcomers_wait_for_each_other_but_not_for_long() -> None:
    model, translator = held(ending=-9.0)
    task = Task(Decoding.of(1, "log-prob", "exhaustive"), parse_limit("40"))
    with working(translator) as worker:
        many = ask(worker, task, *["abcdef"] * 32)
        model.let(1)
        until(lambda: len(model.rows) == 1)
        one = ask(worker, task, "fedcba")
        model.let_go()
        many.result(SOON)
        one.result(SOON)
    assert model.rows[0] == 32
    joined = model.rows.index(33)
    assert 1 < joined <= 2 + PATIENCE


def test_a_search_holds_no_more_than_there_is_room_for() -> None:
    model, translator = held()
    with working(translator, Limits(batch_tokens=13)) as worker:
        futures = [ask(worker, Task(Decoding.of(width)), *["abcdef"] * 4) for width in (1, 3)]
        model.let_go()
        for future in futures:
            assert len(future.result(SOON)) == 4
    assert max(model.rows) <= 2 * 3  # two sentences of six pieces, whatever their beams


def test_a_full_queue_says_when_to_come_back_and_is_soon_empty_again() -> None:
    model, translator = held()
    limits = Limits(sentences=4, waiting=4, batch_tokens=1)
    with working(translator, limits) as worker:
        first = ask(worker, TASKS[0], "abc")
        until(lambda: worker.searching == 1)
        second = ask(worker, TASKS[0], "a", "b", "c")
        with pytest.raises(Busy) as refused:
            ask(worker, TASKS[0], "d", "e")
        assert 1 <= refused.value.retry_after <= 60
        third = ask(worker, TASKS[0], "d")
        assert worker.waiting == 4
        model.let_go()
        answers = [answer for future in (first, second, third) for answer in future.result(SOON)]
        assert answers == [alone(letters(), TASKS[0], line) for line in ("abc", "a", "b", "c", "d")]
        assert ask(worker, TASKS[0], "d", "e").result(SOON)


def test_a_closing_worker_finishes_what_it_has_taken_and_takes_no_more() -> None:
    model, translator = held()
    with working(translator, Limits(batch_tokens=4)) as worker:
        futures = [ask(worker, TASKS[0], "abcd", "dcba") for _ in range(4)]
        closing = threading.Thread(target=worker.close)
        closing.start()
        until(lambda: not worker.healthy)
        with pytest.raises(Closed):
            ask(worker, TASKS[0], "a")
        model.let_go()
        closing.join(SOON)
        assert not closing.is_alive()
        expected = [alone(letters(), TASKS[0], line) for line in ("abcd", "dcba")]
        assert all(future.result(0) == expected for future in futures)


def test_nobody_is_worked_for_who_has_gone() -> None:
    model, translator = held()
    with working(translator) as worker:
        future = ask(worker, TASKS[0], "abcdef", "fedcba")
        model.let(2)
        until(lambda: len(model.rows) == 2)
        assert future.cancel()
        model.let(1)  # the step that is waited for when they go
        until(lambda: worker.searching == 0)
        assert len(model.rows) <= 3
        model.let_go()
        assert ask(worker, TASKS[0], "ab").result(SOON) == [alone(letters(), TASKS[0], "ab")]


def test_a_sentence_that_is_too_long_fails_its_request_by_name_and_no_other() -> None:
    with working(letters(), Limits(pieces=5)) as worker:
        long = ask(worker, TASKS[0], "ab", "abcdef")
        other = ask(worker, TASKS[0], "abcde")
        with pytest.raises(Refused, match="has 6 pieces; the most is 5") as refused:
            long.result(SOON)
        assert refused.value.field == ("sentences", 1)
        assert other.result(SOON) == [alone(letters(), TASKS[0], "abcde")]
        with pytest.raises(Refused, match="would get 21 tokens; the most is 20") as refused:
            ask(worker, replace(TASKS[0], limit=parse_limit("21")), "a").result(SOON)
        assert refused.value.field == ("max_length",)
        with pytest.raises(Refused):
            ask(worker, replace(TASKS[0], limit=parse_limit("999999x")), "a").result(SOON)


def explained(translator: Translator, line: str, limit: int) -> Answer:
    task = Task(Decoding.of(4, "log-prob"), parse_limit(str(limit)))
    sentence = translator.sentence(line, task)
    (trace,) = record(translator.model, [sentence], 4)
    assert sentence.predicted is not None
    found = Explanation(trace, sentence.predicted, standard_scores(0.7, attends=True))
    return seen(found, translator.text) | {"source": line}


def test_a_search_to_look_at_is_recorded_beside_others() -> None:
    model, translator = held()
    order = ExplanationOrder(Task(Decoding.of(4, "log-prob"), parse_limit("12")), 0.7)
    with working(translator) as worker:
        seen_first = worker.submit(order, ["abcdef"], 1e6)
        translated = ask(worker, TASKS[0], "abcdef")
        seen_second = worker.submit(order, ["fed"], 1e6)
        model.let_go()
        assert translated.result(SOON) == [alone(letters(), TASKS[0], "abcdef")]
        for future, line in ((seen_first, "abcdef"), (seen_second, "fed")):
            assert future.result(SOON) == [explained(letters(), line, 12) | {"in_time": True}]
        with pytest.raises(Refused, match="nothing to translate"):
            worker.submit(order, [" "], 1e6).result(SOON)


def test_a_recorded_search_past_its_deadline_is_that_of_a_lower_limit() -> None:
    clock = Clock()
    model, translator = held()
    order = ExplanationOrder(Task(Decoding.of(4, "log-prob"), parse_limit("20")), 0.7)
    with working(translator, clock=clock) as worker:
        model.during[7] = clock.advance
        model.let_go()
        assert worker.submit(order, ["abcdef"], 10.0).result(SOON) == [
            explained(letters(), "abcdef", 7) | {"in_time": False}
        ]
        late = worker.submit(order, ["abcdef"], 0.0)
        with pytest.raises(TooLate):
            late.result(SOON)


def test_a_recorded_search_in_which_nothing_ends_is_made_again() -> None:
    translator = letters(ending=-2.0, predictor=Quantiles())
    with working(translator) as worker:
        order = ExplanationOrder(Task(Decoding.of(2, "log-prob")), 1.0)
        limits = set()
        for line in ("ab", "abc", "de", "ff", "abcdef"):
            (found,) = worker.submit(order, [line], 1e6).result(SOON)
            narrow, wide = math.ceil(1.6 * len(line) + 1), 2 * len(line) + 10
            ended = explained_lengths(translator, line, narrow)
            assert found["limit"] == (narrow if any(length > 1 for length in ended) else wide)
            limits.add(found["limit"] == wide)
    assert limits == {True, False}


def explained_lengths(translator: Translator, line: str, limit: int) -> list[int]:
    task = Task(Decoding.of(2, "log-prob"), parse_limit(str(limit)))
    (trace,) = record(translator.model, [translator.sentence(line, task)], 2)
    return [step + 1 for step in trace.finished[0].tolist()]
