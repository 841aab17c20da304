"""The conformance kit finds the faults of step models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest

from uncurse import (
    Continuations,
)
from uncurse.arrays import Floats, Ints
from uncurse.testing import (
    RandomModel,
    TableModel,
    check_step_model,
    top_continuations,
)
from uncurse.testing.models import RandomState

SOURCES = [(1, 2, 3), (4,), (5, 6)]


@pytest.mark.parametrize("attends", [False, True])
def test_the_models_of_the_kit_pass_their_own_check(attends: bool) -> None:
    check_step_model(RandomModel(seed=1, vocab_size=7, attends=attends), SOURCES, tolerance=0.0)
    attention = np.full((3, 4), 0.25) if attends else None
    table = TableModel(np.log(np.full((3, 4), 0.25)), np.arange(12).reshape(3, 4) % 3, attention)
    check_step_model(table, SOURCES, tolerance=0.0)


class Wrapped:
    """A random model with something broken in it."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.inner = RandomModel(seed=1, vocab_size=7, attends=True)
        self.signature = "a|b" if fault == "signature" else "wrapped"
        self.vocab_size, self.bos = 7, -1
        self.eos = 7 if fault == "end" else 6
        self.attends = True

    def start(self, sources: Sequence[Sequence[int]]) -> FaultyState:
        if self.fault == "batch" and len(sources) == 1:
            sources = [(0, *sources[0])]
        return FaultyState(self.inner.start(sources), self.fault)

    def step(self, state: FaultyState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, FaultyState]:
        given, after = self.inner.step(state.inner, tokens, k, attention)
        ids, values, received = given.tokens, given.log_probs.copy(), given.attention
        if self.fault == "positive":
            values[0, 0] = 0.5
        if self.fault == "repeated":
            ids = np.where(ids == 3, 4, ids)
        if self.fault == "k best" and k < 7:
            values = values - 0.5
        if self.fault == "few" and k == 7:
            ids, values = ids[:, :5], values[:, :5]
        if self.fault == "attention":
            received = None
        if self.fault == "negative attention" and received is not None:
            received = received - 0.9
        if self.fault == "short attention" and received is not None:
            received = received[:, :1]
        if self.fault == "mirrored attention" and received is not None:
            received = received[::-1]
        if self.fault == "one column" and k < 7:
            ids, values = ids[:, :1], values[:, :1]
        if self.fault == "capped" and k < 7:
            ids, values = ids[:, :3], values[:, :3]
        if self.fault == "middling k" and 2 < k < 7:
            ids, values = np.roll(ids, 1, axis=0), np.roll(values, 1, axis=0)
        if self.fault == "used up":
            state.inner.keys[:] = after.keys
        return Continuations(ids, values, received), FaultyState(after, self.fault)


@dataclass(frozen=True)
class FaultyState:
    inner: RandomState
    fault: str

    def select(self, rows: Ints) -> Self:
        if self.fault == "select":
            rows = np.sort(rows)
        if self.fault == "used up":
            return self
        return type(self)(self.inner.select(rows), self.fault)

    def append(self, other: Self) -> Self:
        newcomers = len(other.inner.keys)
        turned = self.fault == "append" or (self.fault == "append two" and newcomers == 2)
        one, two = (other, self) if turned else (self, other)
        return type(self)(one.inner.append(two.inner), self.fault)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("signature", "must not contain"),
        ("end", "outside 0 … 6"),
        ("batch", "differ from those of the same prefix alone"),
        ("positive", "above 0"),
        ("repeated", "every token once"),
        ("k best", "are not its best"),
        ("few", "the whole vocabulary was asked for"),
        ("attention", "gave no attention"),
        ("negative attention", "attention is NaN or negative"),
        ("short attention", "attention is missing"),
        ("select", "differ from those of the same prefix alone"),
        ("append", "differ from those of the same prefix alone"),
        ("append two", "differ from those of the same prefix alone"),
        ("capped", "4 continuations were asked for, and 3 came"),
        ("middling k", "are not its best"),
        ("mirrored attention", "the attention differs"),
        ("one column", "2 continuations were asked for, and 1 came"),
        ("used up", "differ from those of the same prefix alone|not its best"),
    ],
)
def test_a_model_that_breaks_the_contract_is_found_out(fault: str, complaint: str) -> None:
    check_step_model(Wrapped("none"), SOURCES)
    with pytest.raises((AssertionError, ValueError), match=complaint):
        check_step_model(Wrapped(fault), SOURCES)


def test_two_sources_are_enough_to_find_a_broken_append() -> None:
    with pytest.raises(AssertionError, match="of the same prefix alone"):
        check_step_model(Wrapped("append"), SOURCES[:2])


def test_tokens_that_are_not_possible_are_never_fed() -> None:
    """Place 0 leads on by its first token alone; its second leads nowhere."""
    table = TableModel(np.array([[-0.5, -np.inf, -1.0]]), np.array([[0, 99, 0]]))
    check_step_model(table, SOURCES, tolerance=0.0)


def test_a_model_that_can_only_end_passes() -> None:
    check_step_model(TableModel(np.zeros((1, 1)), np.zeros((1, 1), dtype=np.int64)), SOURCES, tolerance=0.0)


def test_ties_go_to_the_lower_token() -> None:
    given = top_continuations(np.array([[-1.0, -0.5, -1.0, -0.5, -1.0]]), 3)
    assert given.tokens.tolist() == [[1, 3, 0]]


def test_one_source_is_no_batch() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        check_step_model(RandomModel(seed=1, vocab_size=7), [(1,)])


@dataclass(frozen=True)
class CountingState:
    """The commonest mistake with caches: one position for the whole batch."""

    inner: RandomState
    position: int

    def select(self, rows: Ints) -> Self:
        return type(self)(self.inner.select(rows), self.position)

    def append(self, other: Self) -> Self:
        return type(self)(self.inner.append(other.inner), self.position)


@dataclass(frozen=True)
class StoredState:
    """Sentences stored once, but not renumbered when one leaves."""

    inner: RandomState
    sentence: Ints  # [rows]
    store: Floats  # [sentences]

    def select(self, rows: Ints) -> Self:
        staying = np.unique(self.sentence[rows])
        return type(self)(self.inner.select(rows), self.sentence[rows], self.store[staying])

    def append(self, other: Self) -> Self:
        return type(self)(
            self.inner.append(other.inner),
            np.concatenate((self.sentence, other.sentence + len(self.store))),
            np.concatenate((self.store, other.store)),
        )


class Counting:
    """A random model that adds its position to the token it is fed."""

    signature, vocab_size, bos, eos, attends = "counting", 7, -1, 6, False
    inner = RandomModel(seed=1, vocab_size=7)

    def start(self, sources: Sequence[Sequence[int]]) -> CountingState:
        return CountingState(self.inner.start(sources), 0)

    def step(
        self, state: CountingState, tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, CountingState]:
        given, after = self.inner.step(state.inner, tokens + state.position, k, attention)
        return given, CountingState(after, state.position + 1)


class Storing:
    """A random model that reads something of each row's sentence."""

    signature, vocab_size, bos, eos, attends = "storing", 7, -1, 6, False
    inner = RandomModel(seed=1, vocab_size=7)

    def start(self, sources: Sequence[Sequence[int]]) -> StoredState:
        return StoredState(
            self.inner.start(sources),
            np.arange(len(sources)),
            np.array([float(len(source)) for source in sources]),
        )

    def step(self, state: StoredState, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, StoredState]:
        told = state.store[np.minimum(state.sentence, len(state.store) - 1)].astype(np.int64)
        given, after = self.inner.step(state.inner, tokens + told, k, attention)
        return given, StoredState(after, state.sentence, state.store)


@pytest.mark.parametrize("model", [Counting(), Storing()])
def test_states_that_mix_up_sentences_are_found_out(model: Counting | Storing) -> None:
    with pytest.raises((AssertionError, IndexError), match=r"of the same prefix alone|out of bounds"):
        check_step_model(model, [(1, 2, 3), (4,), (5, 6), (7, 8, 9, 10)])  # type: ignore[misc]
