"""The conformance kit finds what it is there to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pytest

from uncurse import (
    RULES,
    SCORES,
    Continuations,
    Decoding,
    Evidence,
    Paths,
    Rescorer,
    Sentence,
    Source,
    StoppingRule,
    UncurseError,
    beam_search,
)
from uncurse.arrays import Bools, Floats, Ints
from uncurse.testing import (
    RandomModel,
    TableModel,
    check_rescorer,
    check_step_model,
    check_stopping_rule,
    top_continuations,
)
from uncurse.testing.models import RandomState

SOURCES = [(1, 2, 3), (4,), (5, 6)]


@dataclass(frozen=True)
class LikesUnlikely(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return -paths.log_prob


@dataclass(frozen=True)
class DislikesCoverage(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob - paths.coverage


@dataclass(frozen=True)
class DislikesRewards(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob - paths.reward_until(paths.length)


@dataclass(frozen=True)
class CapsRewards(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob + np.minimum(paths.reward_until(paths.length), 3.0)


@dataclass(frozen=True)
class ComparesNeighbours(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        highest = float(paths.log_prob.max())
        return paths.log_prob - highest


@dataclass(frozen=True)
class NotANumber(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return np.where(paths.length > 3, np.nan, paths.log_prob)


@dataclass(frozen=True)
class LikesVeryUnlikely(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob + paths.log_prob**2 / 12


@dataclass(frozen=True)
class DislikesVeryCovered(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob + paths.coverage + paths.coverage**2 / 10


@dataclass(frozen=True)
class TurnsAtTwenty(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob * (20 - paths.length)


@dataclass(frozen=True)
class TurnsWhenMuchIsExpected(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return np.where(source.expected_length > 100, -1.0, 1.0) * paths.log_prob


@dataclass(frozen=True)
class OneForAll(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return np.zeros(1)


@dataclass(frozen=True)
class FallsNearCertainty(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return np.where(paths.log_prob > -0.05, -1.0, paths.log_prob)


@dataclass(frozen=True)
class TurnsPastAHundred(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return np.where(paths.length > 100, -1.0, 1.0) * paths.log_prob


@dataclass(frozen=True)
class TurnsAfterAPrefix(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return np.where(source.prefix > 2, -1.0, 1.0) * paths.log_prob


@dataclass(frozen=True)
class DividesByTheSource(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob / source.length


@dataclass(frozen=True)
class OfTheSourceAlone(Rescorer):
    def score(self, source: Source, paths: Paths) -> Floats:
        return source.expected_length


@dataclass(frozen=True)
class NearsTheLimit(Rescorer):
    """Odd, and within the contract: it would divide by 0 past the limit."""

    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob / (source.max_length - paths.length + 1)


def test_a_score_is_never_asked_about_lengths_past_the_limit() -> None:
    check_rescorer(NearsTheLimit())


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (LikesVeryUnlikely(), "falls when the log-probability rises"),
        (DislikesVeryCovered(), "falls when the coverage rises"),
        (TurnsAtTwenty(), "falls when the log-probability rises"),
        (TurnsWhenMuchIsExpected(), "falls when the log-probability rises"),
        (OneForAll(), "64 hypotheses have scores of shape"),
        (FallsNearCertainty(), "falls when the log-probability rises"),
        (TurnsPastAHundred(), "falls when the log-probability rises"),
        (TurnsAfterAPrefix(), "falls when the log-probability rises"),
        (DividesByTheSource(), "falls when the log-probability rises|is NaN"),
        (OfTheSourceAlone(), "of one source have scores of shape"),
        (LikesUnlikely(), "falls when the log-probability rises"),
        (DislikesCoverage(), "falls when the coverage rises"),
        (DislikesRewards(), "falls when an adaptive reward rises"),
        (CapsRewards(), "depends on a reward, and is bounded in it"),
        (ComparesNeighbours(), "depends on the hypotheses beside it"),
        (NotANumber(), "is NaN"),
    ],
)
def test_a_score_that_breaks_the_contract_is_found_out(broken: Rescorer, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_rescorer(broken)


def test_a_search_refuses_to_rank_by_a_score_that_is_nan() -> None:
    """It is NaN for short outputs of one source alone, so that nothing notices before the search."""

    @SCORES.register("nan-at-times", formula="NaN", source="a test")
    @dataclass(frozen=True)
    class NaNAtTimes(Rescorer):
        def score(self, source: Source, paths: Paths) -> Floats:
            return np.where((source.length == 2) & (paths.length < 5), np.nan, paths.log_prob)

    sentence, model = Sentence((1, 2), max_length=8), RandomModel(1, vocab_size=6)
    try:
        with pytest.raises(UncurseError, match=r"NaNAtTimes\.score is NaN"):
            beam_search(model, [sentence], Decoding(beam_size=4, score="nan-at-times", stop="beam-full"))
    finally:
        SCORES.unregister("nan-at-times")


@dataclass(frozen=True)
class StopsWithNeighbours(StoppingRule):
    def stops(self, evidence: Evidence) -> Bools:
        return evidence.step >= np.median(evidence.step)


@dataclass(frozen=True)
class OneAnswerForAll(StoppingRule):
    def stops(self, evidence: Evidence) -> Bools:
        return np.array([True])


@dataclass(frozen=True)
class DropsTheSecond(StoppingRule):
    def stops(self, evidence: Evidence) -> Bools:
        return np.zeros(len(evidence.step), dtype=bool)

    def hopeful(self, evidence: Evidence, sums: Floats, live: Bools) -> Ints:
        counts: Ints = np.minimum(live.sum(axis=1), 1)
        return counts


@pytest.mark.parametrize("name", RULES)
def test_every_stopping_rule_keeps_its_contract(name: str) -> None:
    check_stopping_rule(RULES.parse(name))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (StopsWithNeighbours(), "depends on the searches beside it"),
        (OneAnswerForAll(), "64 searches have answers of shape"),
        (DropsTheSecond(), "a prefix was dropped that could enter the n-best list"),
    ],
)
def test_a_stopping_rule_that_breaks_the_contract_is_found_out(broken: StoppingRule, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_stopping_rule(broken)


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
