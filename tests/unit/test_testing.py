"""The conformance kit finds the faults of scores and stopping rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from uncurse import (
    RULES,
    SCORES,
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
    check_rescorer,
    check_stopping_rule,
)

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
