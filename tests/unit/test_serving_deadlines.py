"""The worker: deadlines, searches in which nothing ends, and searches that fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from served import Held, Letters, letters
from working import SOON, TASKS, Clock, alone, ask, held, until, working

from uncurse import Continuations, Decoding, Optimality, Search, parse_limit
from uncurse.arrays import Floats, Ints
from uncurse.length import FixedRatio
from uncurse.records import record_of
from uncurse.serving.options import Limits
from uncurse.serving.worker import Failed
from uncurse.testing.models import RandomState
from uncurse.translator import Task, Translator


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
