"""One search seen through every score and stopping rule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass
from typing import final

import numpy as np

from uncurse.scoring.decoding import Decoding
from uncurse.scoring.needs import needs
from uncurse.scoring.registry import parameters_of
from uncurse.scoring.rescorer import Paths, Rescorer, Rewards, Source
from uncurse.scoring.result import Result
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES, StoppingRule
from uncurse.search.forced_decoding import ScoredTarget
from uncurse.search.judge import judge
from uncurse.search.scored_trace import BoundCurve, ScoredTrace
from uncurse.search.trace import Trace


def standard_scores(reward: float, attends: bool, knows_length: bool) -> list[Rescorer]:
    """Every registered score that can be computed, at its defaults; one that needs a reward gets the given one.

    A score that requires any other number is left out.
    """
    scores = []
    for entry in SCORES.values():
        required = {field.name for field, _ in parameters_of(entry.method) if field.default is MISSING}
        if required - {"reward"}:
            continue
        rescorer = entry.method(**dict.fromkeys(required, reward))
        wanted = needs(rescorer)
        if (attends or not wanted.coverage) and (knows_length or not wanted.expected_length):
            scores.append(rescorer)
    return scores


def standard_rules(knows_length: bool) -> list[StoppingRule]:
    """Every registered stopping rule that can be asked, at its defaults."""
    rules = [RULES.parse(name) for name, entry in RULES.items() if not _requires_numbers(entry.method)]
    return [rule for rule in rules if knows_length or not needs(rule).expected_length]


def _requires_numbers(method: type) -> bool:
    return any(field.default is MISSING for field, _ in parameters_of(method))


@final
@dataclass(frozen=True)
class Candidate:
    """A finished hypothesis, and the scores that prefer it to all others of its beam."""

    tokens: tuple[int, ...]
    rank: int  # its place among the continuations of the step at which it ended
    log_prob: float
    scores: tuple[float, ...]  # by each score
    chosen_by: tuple[Rescorer, ...]


@final
@dataclass(frozen=True)
class StopOutcome:
    """Where a stopping rule stops under a score, and what it loses there."""

    score: Rescorer
    stop: StoppingRule
    result: Result
    loss: float  # how much better the best of the whole beam scores


@final
class Explanation:
    """A recorded search under every score and stopping rule."""

    def __init__(self, trace: Trace, expected_length: float | None, scores: Sequence[Rescorer]) -> None:
        self.trace = trace
        self.expected_length = expected_length
        self.scores = tuple(scores)
        self.rules = tuple(standard_rules(knows_length=expected_length is not None))
        source = Source.repeated(1, trace.source_length, trace.max_length, len(trace.prefix), expected_length)
        steps, ranks = trace.finished
        lengths = steps + 1
        sums = np.broadcast_to(trace.reward_sums, (len(steps), len(trace.reward_sums)))
        paths = Paths(trace.finished_sums, lengths, Rewards(sums, lengths), trace.finished_coverage)
        self._places = list(zip(steps.tolist(), ranks.tolist(), strict=True))
        self._table = (
            np.stack([rescorer.score(source, paths) for rescorer in self.scores], axis=1)
            if len(steps)
            else np.empty((0, len(self.scores)))
        )  # [finished, scores]

    def candidates(self, most: int, wanted: Collection[tuple[int, ...]] = ()) -> list[Candidate]:
        """What any score prefers, what is wanted, and the likeliest others up to so many, by length."""
        if not self._places:
            return []
        best = self._table.argmax(axis=0)
        tokens = [self.trace.hypothesis(step, rank, 0.0).tokens for step, rank in self._places]
        chosen = {*best.tolist(), *(each for each, path in enumerate(tokens) if path in wanted)}
        for each in np.argsort(-self.trace.finished_sums, kind="stable").tolist():
            if len(chosen) < most:
                chosen.add(each)
        return [
            Candidate(
                tokens=tokens[each],
                rank=self._places[each][1],
                log_prob=float(self.trace.finished_sums[each]),
                scores=tuple(self._table[each].tolist()),
                chosen_by=tuple(
                    score for score, winner in zip(self.scores, best.tolist(), strict=True) if winner == each
                ),
            )
            for each in sorted(chosen)  # the order of the steps, and of ranks within a step
        ]

    def bound_curves(self) -> list[BoundCurve]:
        """How the search went under each score."""
        expected, most = self.expected_length, self.trace.max_length
        return [ScoredTrace(self.trace, score, 1, expected, most).bound_curve() for score in self.scores]

    def outcomes(self) -> list[StopOutcome]:
        """Every score with every stopping rule; nothing if nothing was found."""
        asked = Decoding(self.trace.beam_size, slots=self.trace.slots)
        decodings = [asked.replace(score=score, stop=rule) for score in self.scores for rule in self.rules]
        best = [asked.replace(score=score, stop="exhaustive") for score in self.scores]
        results = judge(self.trace, [*decodings, *best], expected_length=self.expected_length)
        optimum = {each.rescorer: result for each, result in zip(best, results[len(decodings) :], strict=True)}
        return [
            StopOutcome(
                score=each.rescorer,
                stop=each.stop,
                result=result,
                loss=optimum[each.rescorer].hypotheses[0].score - result.hypotheses[0].score,
            )
            for each, result in zip(decodings, results, strict=False)
            if result.hypotheses
        ]


def scores_of_target(
    target: ScoredTarget, source: Source, rewards: Sequence[float], scores: Sequence[Rescorer]
) -> dict[str, float]:
    """Every score of a given translation, by its spec; `rewards` are those of a search."""
    length = np.array([len(target.tokens)])
    sums = np.cumsum([0.0, *rewards])[None]
    coverage = None if target.coverage is None else np.array([target.coverage])
    paths = Paths(np.array([target.log_prob]), length, Rewards(sums, np.array([len(rewards)])), coverage)
    return {SCORES.spec(rescorer): float(rescorer.score(source, paths)[0]) for rescorer in scores}
