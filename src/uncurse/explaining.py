"""One search seen through every score and stopping rule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import final

import numpy as np

from uncurse.forced import Forced
from uncurse.judging import Case, Course, Terms, judge_all
from uncurse.rescoring import SCORES, Paths, Rescorer, Rewards, Source, needs
from uncurse.result import Result
from uncurse.stopping import RULES, Exhaustive, StoppingRule
from uncurse.trace import Trace


def standard_scores(reward: float, attends: bool) -> list[Rescorer]:
    """Every registered score at its defaults; those that need a reward get the given one.

    A score that needs anything else is left out: nobody has said what.
    """
    scores = []
    for entry in SCORES:
        required = {field.name for field in fields(entry.method) if field.default is MISSING}  # type: ignore[arg-type]
        if required - {"reward"}:
            continue
        rescorer = entry.method(**dict.fromkeys(required, reward))
        if attends or not needs(rescorer).coverage:
            scores.append(rescorer)
    return scores


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
class Verdict:
    """Where a stopping rule stops under a score, and what it loses there."""

    score: Rescorer
    rule: StoppingRule
    result: Result
    loss: float  # how much better the best of the whole beam scores


@final
class Explanation:
    """A recorded search, judged in every way."""

    def __init__(self, trace: Trace, length: float, scores: Sequence[Rescorer]) -> None:
        self.trace = trace
        self.length = length
        self.scores = tuple(scores)
        self._source = Source.repeated(1, trace.source_length, trace.limit, len(trace.prefix), length)
        steps, ranks = trace.finished
        lengths = steps + 1
        sums = np.broadcast_to(trace.reward_sums, (len(steps), len(trace.reward_sums)))
        paths = Paths(trace.finished_sums, lengths, Rewards(sums, lengths), trace.finished_coverage)
        self._places = list(zip(steps.tolist(), ranks.tolist(), strict=True))
        self._table = (
            np.stack([rescorer.score(self._source, paths) for rescorer in self.scores], axis=1)
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
                tokens[each],
                self._places[each][1],
                float(self.trace.finished_sums[each]),
                tuple(self._table[each].tolist()),
                tuple(score for score, winner in zip(self.scores, best.tolist(), strict=True) if winner == each),
            )
            for each in sorted(chosen)  # the order of the steps, and of ranks within a step
        ]

    def courses(self) -> list[Course]:
        """How the search went under each score."""
        terms = Terms(self.trace, 1, self.length, self.trace.limit)
        return [Case(terms, score).course() for score in self.scores]

    def verdicts(self) -> list[Verdict]:
        """Every score with every stopping rule."""
        rules = [entry.method() for entry in RULES]
        ways = [(score, rule) for score in self.scores for rule in rules]
        results = judge_all(self.trace, ways, length=self.length)
        best = {
            score: result
            for (score, rule), result in zip(ways, results, strict=True)
            if isinstance(rule, Exhaustive)
        }
        return [
            Verdict(score, rule, result, best[score].hypotheses[0].score - result.hypotheses[0].score)
            for (score, rule), result in zip(ways, results, strict=True)
            if result.hypotheses
        ]


def scores_of(
    forced: Forced, source: Source, rewards: Sequence[float], scores: Sequence[Rescorer]
) -> dict[str, float]:
    """Every score of a given translation, by its spec; `rewards` are those of a search."""
    length = np.array([len(forced.tokens)])
    sums = np.cumsum([0.0, *rewards])[None]
    coverage = None if forced.coverage is None else np.array([forced.coverage])
    paths = Paths(np.array([forced.log_prob]), length, Rewards(sums, np.array([len(rewards)])), coverage)
    return {SCORES.spec(rescorer): float(rescorer.score(source, paths)[0]) for rescorer in scores}
