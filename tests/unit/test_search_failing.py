"""Beam search with models, states and scores that fail or give what they may not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest

from uncurse import (
    SCORES,
    Continuations,
    Decoding,
    ModelError,
    Paths,
    Rescorer,
    Search,
    Sentence,
    Source,
    beam_search,
    record,
)
from uncurse.arrays import Floats, Ints
from uncurse.scoring.stopping import Exhaustive
from uncurse.testing import RandomModel, TableModel
from uncurse.testing.models import RandomState, TableState


class Failing(RandomModel):  # type: ignore[misc]
    """A model that fails once, at its third step."""

    calls = 0

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        self.calls += 1
        if self.calls == 3:
            raise MemoryError("no room")
        return RandomModel.step(self, state, tokens, k, attention)


def test_a_search_whose_model_failed_gives_what_it_has_and_goes_no_further() -> None:
    search = Search(Failing(seed=1, vocab_size=6), Decoding(3, "log-prob", "exhaustive"))
    tickets = search.join([Sentence((1,), max_length=6), Sentence((2,), max_length=6)])
    search.advance()
    search.advance()
    with pytest.raises(MemoryError):
        search.advance()
    with pytest.raises(ValueError, match="a step has failed"):
        search.advance()
    with pytest.raises(ValueError, match="a step has failed"):
        search.join([Sentence((3,), max_length=6)])
    for ticket, source in zip(tickets, (1, 2), strict=True):
        other = Search(RandomModel(seed=1, vocab_size=6), Decoding(3, "log-prob", "exhaustive"))
        (same,) = other.join([Sentence((source,), max_length=6)])
        other.advance()
        other.advance()
        assert search.cancel(ticket) == other.cancel(same)
    search.join([Sentence((3,), max_length=6)])  # with the others gone it is as new
    assert search.advance() == []


class Full(RandomState):  # type: ignore[misc]
    """A state without room for its rows at the third selection."""

    selections = 0

    def select(self, rows: Ints) -> RandomState:
        Full.selections += 1
        if Full.selections == 3:
            raise MemoryError("no room")
        return Full(self.keys[rows], self.lengths[rows])


class Filling(RandomModel):  # type: ignore[misc]
    """A random model with such states."""

    def start(self, sources: Sequence[Sequence[int]]) -> Full:
        Full.selections = 0
        return _full(RandomModel.start(self, sources))

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, Full]:
        given, after = RandomModel.step(self, state, tokens, k, attention)
        return given, _full(after)


def _full(state: RandomState) -> Full:
    return Full(state.keys, state.lengths)


def test_a_search_whose_state_failed_goes_no_further() -> None:
    decoding, sentences = Decoding(3, "log-prob", "exhaustive"), [Sentence((1,), 6), Sentence((2,), 6)]
    search, other = (
        Search(model, decoding) for model in (Filling(seed=1, vocab_size=6), RandomModel(seed=1, vocab_size=6))
    )
    tickets = search.join(sentences)
    assert other.join(sentences) == tickets
    for _ in range(3):
        other.advance()
    search.advance()
    search.advance()
    with pytest.raises(MemoryError):
        search.advance()
    with pytest.raises(ValueError, match="a step has failed"):
        search.advance()
    assert search.cancel_all(tickets) == other.cancel_all(tickets)


def test_a_cancelled_sentence_whose_state_failed_can_be_cancelled_again() -> None:
    decoding, sentences = Decoding(3, "log-prob", "exhaustive"), [Sentence((1,), 6), Sentence((2,), 6)]
    search, other = (
        Search(model, decoding) for model in (Filling(seed=1, vocab_size=6), RandomModel(seed=1, vocab_size=6))
    )
    first, second = search.join(sentences)
    other.join(sentences)
    for _ in range(2):
        search.advance()
        other.advance()
    with pytest.raises(MemoryError):
        search.cancel(first)
    with pytest.raises(ValueError, match="a step has failed"):
        search.advance()
    for ticket in (first, second):
        assert search.cancel(ticket) == other.cancel(ticket)


@final
@dataclass(frozen=True)
class Fussy(Rescorer):
    """A score that fails for outputs of three tokens."""

    def score(self, source: Source, paths: Paths) -> Floats:
        if (paths.length == 3).any():
            raise ArithmeticError("three")
        return paths.log_prob


@pytest.fixture
def fussy() -> Iterator[Fussy]:
    SCORES.register("fussy", formula="S", source="a test")(Fussy)
    yield Fussy()
    SCORES.unregister("fussy")


def test_a_score_without_a_name_is_refused_before_the_search() -> None:
    with pytest.raises(ValueError, match="Fussy is not a registered score"):
        Decoding(3, Fussy())


def test_a_search_whose_score_failed_goes_no_further(fussy: Fussy) -> None:
    search = Search(RandomModel(seed=1, vocab_size=3, ending=2.0), Decoding(3, fussy, Exhaustive()))
    (ticket,) = search.join([Sentence((1,), max_length=6)])
    search.advance()
    search.advance()
    with pytest.raises(ArithmeticError):
        search.advance()
    with pytest.raises(ValueError, match="a step has failed"):
        search.advance()
    with pytest.raises(ArithmeticError):
        search.cancel(ticket)
    assert len(search) == 0


class Faulty:
    """A table model that gives one wrong number to one sentence at one step."""

    def __init__(self, wrong: float) -> None:
        self.table = TableModel(np.array([[-0.5, -1.0]]), np.zeros((1, 2), dtype=np.int64))
        self.signature, self.vocab_size, self.bos, self.eos = "faulty", 2, -1, 1
        self.attends, self.wrong, self.calls = False, wrong, 0

    def start(self, sources: Sequence[Sequence[int]]) -> TableState:
        return self.table.start(sources)

    def step(self, state: TableState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, TableState]:
        given, after = self.table.step(state, tokens, k, attention)
        self.calls += 1
        log_probs: Floats = given.log_probs.copy()
        if self.calls == 2:
            log_probs[-1, 0] = self.wrong
        return Continuations(given.tokens, log_probs), after


@pytest.mark.parametrize("wrong", [0.25, 1.1e-5, math.nan, math.inf])
def test_what_is_not_a_log_probability_is_an_error_naming_step_and_sentence(wrong: float) -> None:
    sentences = [Sentence((0,), max_length=5), Sentence((0,), max_length=5)]
    with pytest.raises(ModelError, match=f"sentence 1, step 2: the model gave {wrong}"):
        beam_search(Faulty(wrong), sentences, Decoding(2, "log-prob", "exhaustive"))


def test_a_hair_above_zero_is_rounding() -> None:
    (result,) = beam_search(Faulty(1e-5), [Sentence((0,), max_length=2)], Decoding(1, "log-prob", "exhaustive"))
    assert result.hypotheses[0].log_probs == (-0.5, 0.0)


class Attending:
    """A model that gives the attention it is told to give."""

    def __init__(self, attention: Floats, columns: int = 2) -> None:
        self.table = TableModel(np.array([[-0.5, -1.0]]), np.zeros((1, 2), dtype=np.int64))
        self.signature, self.vocab_size, self.bos, self.eos, self.attends = "attending", 2, -1, 1, True
        self.attention, self.columns = attention, columns

    def start(self, sources: Sequence[Sequence[int]]) -> TableState:
        return self.table.start(sources)

    def step(self, state: TableState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, TableState]:
        given, after = self.table.step(state, tokens, self.columns, False)
        return Continuations(given.tokens, given.log_probs, np.tile(self.attention, (len(tokens), 1))), after


def test_attention_that_is_missing_or_not_a_number_is_an_error() -> None:
    decoding, sentences = Decoding(2, "gnmt:beta=1"), [Sentence((0, 0), max_length=3)]
    with pytest.raises(ModelError, match=r"attention \(1, 1\) to 1 rows of up to 2 pieces"):
        beam_search(Attending(np.array([0.5])), sentences, decoding)
    with pytest.raises(ModelError, match="sentence 0, step 1: the model gave attention of NaN"):
        beam_search(Attending(np.array([0.5, math.nan])), sentences, decoding)
    (padded,) = beam_search(Attending(np.array([0.5, 0.5, math.nan])), sentences, decoding)
    assert math.isfinite(padded.hypotheses[0].score)


def test_a_model_that_gives_too_few_continuations_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"gave \(1, 1\) continuations instead of \(1, 2\)"):
        record(Attending(np.array([0.5]), columns=1), [Sentence((0,), max_length=3)], beam_size=2)


class Repeating(RandomModel):  # type: ignore[misc]
    """A model whose second token is another than it should be."""

    second = 0

    def step(self, state: RandomState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, RandomState]:
        given, after = RandomModel.step(self, state, tokens, k, attention)
        given.tokens[:, 1] = self.second or given.tokens[:, 0]
        return given, after


@pytest.mark.parametrize(
    ("second", "message"), [(0, "twice for one prefix"), (6, "vocabulary is 0 … 5"), (-2, "0 … 5")]
)
def test_a_token_given_twice_or_out_of_the_vocabulary_is_an_error(second: int, message: str) -> None:
    model = Repeating(seed=1, vocab_size=6)
    model.second = second
    with pytest.raises(ModelError, match=message):
        beam_search(model, [Sentence((1,), max_length=6)], Decoding(3, "log-prob"))


def test_a_fault_while_a_prefix_is_forced_names_the_token() -> None:
    with pytest.raises(ModelError, match="sentence 0, prefix token 2: the model gave nan"):
        record(Faulty(math.nan), [Sentence((0,), max_length=5, prefix=(0, 0, 0))], beam_size=2)
