"""The worker: many requests share searches, and none can tell."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from served import Held, Letters, Quantiles, letters

from uncurse import Continuations, Decoding, Optimality, Search, parse_limit, record
from uncurse.arrays import Floats, Ints
from uncurse.explaining import Explanation, standard_scores
from uncurse.length import FixedRatio
from uncurse.records import record_of
from uncurse.serving.options import Limits
from uncurse.serving.orders import Answer, ExplanationOrder, Refused, TooLate, TranslationOrder
from uncurse.serving.seen import seen
from uncurse.serving.worker import PATIENCE, Busy, Closed, Failed, Worker
from uncurse.testing.models import RandomState
from uncurse.translator import Task, Translator

LIMITS = Limits()
SOON = 30.0  # seconds that a test would wait for what should come at once
LINES = ["abc", "f", "abcdefabc", "ab", "edcba", "a", "fedc fedc", "", "ffff"]
TASKS = [
    Task(Decoding.of(5, "bp-norm")),
    Task(Decoding.of(5, "bp-norm"), parse_limit("7")),  # shares the search of the first
    Task(Decoding.of(5, "bp-norm"), ratio=2.5),  # and so does this
    Task(Decoding.of(3, "gnmt:alpha=0.6,beta=0.4", n_best=3, slots="refill")),
    Task(Decoding.of(4, "adaptive-reward", "optimal", n_best=2)),
    Task(Decoding.of(4, "length-norm", "beam-full")),
]


class Silent:
    """Someone who only counts."""

    def __init__(self) -> None:
        self.sentences = 0

    def stepped(self, sentences: int, seconds: float) -> None:
        assert sentences > 0

    def ended(self, found: object, in_time: bool) -> None:
        self.sentences += 1


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self) -> None:
        self.now += 11.0


@contextmanager
def working(
    translator: Translator,
    limits: Limits = LIMITS,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Worker]:
    worker = Worker(translator, limits, Silent(), clock)
    worker.start()
    try:
        yield worker
    finally:
        getattr(translator.model, "let_go", lambda: None)()
        worker.close()


def held(ending: float = 1.0) -> tuple[Held, Translator]:
    model = Held(seed=1, ending=ending)
    return model, Translator(model, Letters(), Letters(), FixedRatio(1.5))


def ask(worker: Worker, task: Task, *lines: str, seconds: float = 1e6) -> Future[list[Answer]]:
    return worker.submit(TranslationOrder(task), lines, seconds)


def alone(translator: Translator, task: Task, line: str) -> Answer:
    (translation,) = translator.stream([line], task)
    return record_of(translation) | {"in_time": True}


def until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + SOON
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


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


def test_a_deadline_ends_the_search_with_the_best_so_far_and_its_gap() -> None:
    clock = Clock()
    task = Task(Decoding.of(4, "length-norm"), parse_limit("30"))
    kinds = set()
    for steps in range(1, 9):
        model, translator = held(ending=0.0)
        with working(translator, clock=clock) as worker:
            model.during[steps] = clock.advance
            model.let_go()
            (found,) = ask(worker, task, "abcdef", seconds=10.0).result(SOON)
        assert len(model.rows) == steps
        search = Search(letters(ending=0.0).model, task.decoding)
        sentence = letters(ending=0.0).sentence("abcdef", task)
        (ticket,) = search.join([sentence])
        for _ in range(steps):
            search.advance()
        result = search.cancel(ticket)
        translation = translator.translation("abcdef", sentence, result)
        assert found == record_of(translation) | {"in_time": False}
        kinds.add(result.optimality)
        if result.optimality is Optimality.NONE:
            assert math.isfinite(result.gap)
            assert result.gap > 0
    assert kinds == {Optimality.TRUNCATED, Optimality.NONE}


def test_one_deadline_ends_one_request_and_others_in_its_search_go_on() -> None:
    clock = Clock()
    model, translator = held()
    task = TASKS[0]
    with working(translator, clock=clock) as worker:
        model.during[2] = clock.advance
        short = ask(worker, task, "abcdef", "fed", seconds=5.0)
        long = ask(worker, task, "edcba", "abcdefabc", seconds=1000.0)
        model.let(2)
        assert not any(each["in_time"] for each in short.result(SOON))
        model.let_go()
        assert long.result(SOON) == [alone(letters(), task, line) for line in ("edcba", "abcdefabc")]


def test_what_never_began_before_its_deadline_is_cut_off_at_nothing() -> None:
    clock = Clock()
    model, translator = held()
    with working(translator, Limits(batch_tokens=6), clock) as worker:
        first = ask(worker, TASKS[0], "abcdef")
        until(lambda: worker.searching == 1)
        late = ask(worker, TASKS[0], "fedcba", seconds=1.0)
        clock.now += 2.0
        model.let(1)
        (found,) = late.result(SOON)
        model.let_go()
        first.result(SOON)
    assert (found["text"], found["certificate"], found["steps"], found["in_time"]) == ("", "TRUNCATED", 0, False)
    assert found["signature"] is None
    assert found.keys() == alone(letters(), TASKS[0], "a").keys()


class Short:
    """A predictor that expects too little, so that a wider search is made."""

    levels = (0.8,)

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        return np.full(len(source_lengths), 3.0)

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        return self.predict(source_lengths, features)


def test_where_nothing_ends_the_wider_search_of_the_translator_is_made() -> None:
    translator = letters(ending=-2.0, predictor=Short())
    task = Task(Decoding.of(3))
    lines = ["".join(pair) for pair in itertools.product("abcdef", repeat=2)]
    with working(translator) as worker:
        found = ask(worker, task, *lines).result(SOON)
    assert found == [alone(translator, task, line) for line in lines]
    assert {"limit:3", "limit:14"} == {
        part for each in found for part in each["signature"].split("|") if part.startswith("limit")
    }


@pytest.mark.parametrize("steps", [4, 5, 6, 9])
def test_a_deadline_within_a_wider_search_gives_what_has_come_further(steps: int) -> None:
    clock = Clock()
    model = Held(seed=1, ending=-math.inf)
    translator = Translator(model, Letters(), Letters(), Short())
    with working(translator, clock=clock) as worker:
        model.during[steps] = clock.advance
        model.let_go()
        (found,) = ask(worker, Task(Decoding.of(3)), "ab", seconds=10.0).result(SOON)
    assert found["certificate"] == "TRUNCATED"
    assert found["steps"] == max(3, steps - 3)  # the first search took three
    assert f"limit:{14 if steps > 6 else 3}" in found["signature"]


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


class Fragile(Held):  # type: ignore[misc]
    """A model that fails where a beam of width 3 is at its fourth step."""

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        if k == 4 and len(tokens) == 3:
            raise MemoryError("no room in /a/secret/path")
        return Held.step(self, state, tokens, k, attention)


def test_a_search_that_fails_takes_nobody_else_with_it() -> None:
    model = Fragile(seed=1)
    translator = Translator(model, Letters(), Letters(), FixedRatio(1.5))
    with working(translator) as worker:
        good = ask(worker, Task(Decoding.of(5)), "abcdef")
        bad = ask(worker, Task(Decoding.of(3)), "abcdef")
        model.let_go()
        with pytest.raises(Failed) as failure:
            bad.result(SOON)
        assert "secret" not in str(failure.value)
        assert good.result(SOON) == [alone(letters(), Task(Decoding.of(5)), "abcdef")]
        assert worker.healthy
        assert ask(worker, TASKS[0], "ab").result(SOON)


def test_who_comes_after_a_search_that_failed_gets_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(search: object, tickets: Sequence[int]) -> None:
        raise MemoryError("no room to end it")

    monkeypatch.setattr(Search, "cancel_all", broken)
    clock = Clock()
    model, translator = held()
    with working(translator, clock=clock) as worker:
        late = ask(worker, TASKS[0], "a", seconds=10.0)
        until(lambda: worker.searching)
        next_one = ask(worker, TASKS[0], "abcdefabc")  # waits until the first step is done
        model.during[1] = clock.advance
        model.let_go()
        with pytest.raises(Failed):
            late.result(SOON)
        assert next_one.result(SOON) == [alone(letters(), TASKS[0], "abcdefabc")]


class Spent(Held):  # type: ignore[misc]
    """A model that can start a search but once."""

    def start(self, sources: Sequence[Sequence[int]]) -> RandomState:
        if self.rows:
            raise MemoryError("no room for another")
        return Held.start(self, sources)


def test_a_wider_search_that_cannot_begin_is_told_to_all_who_are_in_it() -> None:
    model = Spent(seed=1, ending=-math.inf)
    translator = Translator(model, Letters(), Letters(), Short())
    with working(translator) as worker:
        futures = [ask(worker, Task(Decoding.of(3)), "ab", "cd") for _ in range(2)]
        model.let_go()
        for future in futures:
            with pytest.raises(Failed):
                future.result(SOON)
        assert worker.healthy
        assert worker.searching == 0


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
