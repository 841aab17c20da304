"""Two threads that search share the sentences of all requests, and no result shows it."""

from __future__ import annotations

import itertools
import threading

import pytest
from support.batcher import (
    OPTIONS,
    SOON,
    alone,
    held_translator,
    running_batcher,
    submit,
    wait_until,
)
from support.service import letter_translator

from uncurse.serving.errors import ClosedError
from uncurse.serving.limits import ServiceLimits

LINES = ["abc", "f", "abcdefabc", "ab", "edcba", "a", "fedc fedc", "", "ffff"]


def test_requests_get_the_answers_of_the_translator() -> None:
    translator = letter_translator()
    with running_batcher(translator, ServiceLimits(batch_tokens=40, waiting=999), cpu_threads=2) as batcher:
        asked = [
            (options, line, submit(batcher, options, line, "abc"))
            for options, line in itertools.product(OPTIONS, LINES * 3)
        ]
        for options, line, future in asked:
            assert future.result(SOON) == [alone(translator, options, each) for each in (line, "abc")]


def test_a_sentence_is_searched_for_while_the_other_thread_is_within_a_step() -> None:
    model, translator = held_translator()
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        go_on.wait(SOON)

    model.during[1] = hold
    with running_batcher(translator, cpu_threads=2) as batcher:
        model.allow_all()
        first = submit(batcher, OPTIONS[0], "abcdef")
        assert inside.wait(SOON)
        assert submit(batcher, OPTIONS[0], "fed").result(SOON) == [alone(letter_translator(), OPTIONS[0], "fed")]
        assert not first.done()
        go_on.set()
        assert first.result(SOON) == [alone(letter_translator(), OPTIONS[0], "abcdef")]


def test_the_threads_share_the_sentences_of_a_request() -> None:
    model, translator = held_translator()
    with running_batcher(translator, cpu_threads=2) as batcher:
        future = submit(batcher, OPTIONS[0], *["abcdef"] * 8)
        wait_until(lambda: batcher.searching == 8)
        model.allow_all()
        future.result(SOON)
    assert model.rows.count(4) == 2  # the first step of each thread


def test_both_threads_answer_what_was_taken_when_the_batcher_closes() -> None:
    model, translator = held_translator()
    with running_batcher(translator, ServiceLimits(batch_tokens=8), cpu_threads=2) as batcher:
        futures = [submit(batcher, OPTIONS[0], "abcd", "dcba") for _ in range(6)]
        closing = threading.Thread(target=batcher.close)
        closing.start()
        wait_until(lambda: not batcher.healthy)
        with pytest.raises(ClosedError):
            submit(batcher, OPTIONS[0], "a")
        model.allow_all()
        closing.join(SOON)
        expected = [alone(letter_translator(), OPTIONS[0], line) for line in ("abcd", "dcba")]
        assert all(future.result(0) == expected for future in futures)
