"""The batcher: deadlines, searches in which nothing ends, and searches that fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
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
from support.service import CharacterTokenizer, HeldModel, letter_translator

from uncurse import Certificate, Continuations, Decoding, Search, parse_max_length
from uncurse.arrays import Floats, Ints
from uncurse.lengths.predictors import FixedRatio
from uncurse.serving.errors import SearchFailedError
from uncurse.serving.limits import ServiceLimits
from uncurse.testing.models import RandomState
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import record_of
from uncurse.translation.translator import Translator


def test_a_deadline_ends_the_search_with_the_best_so_far_and_its_gap() -> None:
    clock = Clock()
    options = TranslationOptions(Decoding(4, "length-norm"), parse_max_length("30"))
    kinds = set()
    for steps in range(1, 9):
        model, translator = held_translator(ending=0.0)
        with running_batcher(translator, clock=clock) as batcher:
            model.during[steps] = clock.advance
            model.allow_all()
            (found,) = submit(batcher, options, "abcdef", deadline=10.0).result(SOON)
        assert len(model.rows) == steps
        search = Search(letter_translator(ending=0.0).model, options.decoding)
        sentence = sentence_of(letter_translator(ending=0.0), "abcdef", options)
        (ticket,) = search.join([sentence])
        for _ in range(steps):
            search.advance()
        result = search.cancel(ticket)
        translation = translator.translation("abcdef", sentence, result)
        assert found == record_of(translation) | {"in_time": False}
        kinds.add(result.certificate)
        if result.certificate is Certificate.NONE:
            assert math.isfinite(result.gap)
            assert result.gap > 0
    assert kinds == {Certificate.TRUNCATED, Certificate.NONE}


def test_one_deadline_ends_one_request_and_others_in_its_search_go_on() -> None:
    clock = Clock()
    model, translator = held_translator()
    options = OPTIONS[0]
    with running_batcher(translator, clock=clock) as batcher:
        model.during[2] = clock.advance
        short = submit(batcher, options, "abcdef", "fed", deadline=5.0)
        long = submit(batcher, options, "edcba", "abcdefabc", deadline=1000.0)
        model.allow(2)
        assert not any(each["in_time"] for each in short.result(SOON))
        model.allow_all()
        assert long.result(SOON) == [alone(letter_translator(), options, line) for line in ("edcba", "abcdefabc")]


def test_a_search_that_never_began_before_its_deadline_is_cut_off_at_nothing() -> None:
    clock = Clock()
    model, translator = held_translator()
    with running_batcher(translator, ServiceLimits(batch_tokens=6), clock) as batcher:
        first = submit(batcher, OPTIONS[0], "abcdef")
        wait_until(lambda: batcher.searching == 1)
        late = submit(batcher, OPTIONS[0], "fedcba", deadline=1.0)
        clock.now += 2.0
        model.allow(1)
        (found,) = late.result(SOON)
        model.allow_all()
        first.result(SOON)
    assert (found["text"], found["certificate"], found["steps"], found["in_time"]) == ("", "TRUNCATED", 0, False)
    assert found["signature"] is None
    assert found.keys() == alone(letter_translator(), OPTIONS[0], "a").keys()


class ShortPredictor:
    """A predictor that expects too little, so that sentences are searched for again."""

    levels = (0.8,)

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        return np.full(len(source_lengths), 3.0)

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        return self.predict(source_lengths, features)


def test_a_sentence_is_retried_exactly_where_the_translator_retries_it() -> None:
    translator = letter_translator(ending=-2.0, predictor=ShortPredictor())
    options = TranslationOptions(Decoding(3))
    lines = ["".join(pair) for pair in itertools.product("abcdef", repeat=2)]
    with running_batcher(translator) as batcher:
        found = submit(batcher, options, *lines).result(SOON)
    assert found == [alone(translator, options, line) for line in lines]
    assert {"max_length:3", "max_length:14"} == {
        part for each in found for part in each["signature"].split("|") if part.startswith("max_length")
    }


@pytest.mark.parametrize("steps", [4, 5, 6, 9])
def test_a_deadline_during_a_second_search_gives_the_search_that_came_further(steps: int) -> None:
    clock = Clock()
    model = HeldModel(seed=1, ending=-math.inf)
    translator = Translator(model, CharacterTokenizer(), CharacterTokenizer(), ShortPredictor())
    with running_batcher(translator, clock=clock) as batcher:
        model.during[steps] = clock.advance
        model.allow_all()
        (found,) = submit(batcher, TranslationOptions(Decoding(3)), "ab", deadline=10.0).result(SOON)
    assert found["certificate"] == "TRUNCATED"
    assert found["steps"] == max(3, steps - 3)  # the first search took three
    assert f"max_length:{14 if steps > 6 else 3}" in found["signature"]


class FragileModel(HeldModel):  # type: ignore[misc]
    """A model that fails where a beam of size 3 is at its fourth step."""

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        if k == 4 and len(tokens) == 3:
            raise MemoryError("no room in /a/secret/path")
        return HeldModel.step(self, state, tokens, k, attention)


def test_a_search_that_fails_fails_no_other() -> None:
    model = FragileModel(seed=1)
    translator = Translator(model, CharacterTokenizer(), CharacterTokenizer(), FixedRatio(1.5))
    with running_batcher(translator) as batcher:
        good = submit(batcher, TranslationOptions(Decoding(5)), "abcdef")
        bad = submit(batcher, TranslationOptions(Decoding(3)), "abcdef")
        model.allow_all()
        with pytest.raises(SearchFailedError) as failure:
            bad.result(SOON)
        assert "secret" not in str(failure.value)
        assert good.result(SOON) == [alone(letter_translator(), TranslationOptions(Decoding(5)), "abcdef")]
        assert batcher.healthy
        assert submit(batcher, OPTIONS[0], "ab").result(SOON)


def test_after_a_search_has_failed_the_next_request_gets_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(search: object, tickets: Sequence[int]) -> None:
        raise MemoryError("no room to end it")

    monkeypatch.setattr(Search, "cancel_all", broken)
    clock = Clock()
    model, translator = held_translator()
    with running_batcher(translator, clock=clock) as batcher:
        late = submit(batcher, OPTIONS[0], "a", deadline=10.0)
        wait_until(lambda: batcher.searching)
        next_one = submit(batcher, OPTIONS[0], "abcdefabc")  # waits until the first step is done
        model.during[1] = clock.advance
        model.allow_all()
        with pytest.raises(SearchFailedError):
            late.result(SOON)
        assert next_one.result(SOON) == [alone(letter_translator(), OPTIONS[0], "abcdefabc")]


class SingleUseModel(HeldModel):  # type: ignore[misc]
    """A model that can start only one search."""

    def start(self, sources: Sequence[Sequence[int]]) -> RandomState:
        if self.rows:
            raise MemoryError("no room for another")
        return HeldModel.start(self, sources)


def test_a_second_search_that_cannot_begin_fails_all_requests_in_it() -> None:
    model = SingleUseModel(seed=1, ending=-math.inf)
    translator = Translator(model, CharacterTokenizer(), CharacterTokenizer(), ShortPredictor())
    with running_batcher(translator) as batcher:
        futures = [submit(batcher, TranslationOptions(Decoding(3)), "ab", "cd") for _ in range(2)]
        model.allow_all()
        for future in futures:
            with pytest.raises(SearchFailedError):
                future.result(SOON)
        assert batcher.healthy
        assert batcher.searching == 0
