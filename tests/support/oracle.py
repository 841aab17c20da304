"""Oracles in plain Python, the long way round: all sequences of a table model, and a textbook beam search."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from uncurse import Certificate, Decoding, Hypothesis, Rescorer, Result, Sentence, Slots
from uncurse.constraints.automaton import Automaton, Trie
from uncurse.constraints.constraint import AllOf, Constraint
from uncurse.constraints.phrases import BannedPhrases, NoRepeatNgram
from uncurse.scoring.rescorer import Paths, Rewards, Source
from uncurse.scoring.stopping import BeamFull, Exhaustive, FirstFinished, HFHeuristic, Optimal, PredictedHorizon


@dataclass(frozen=True)
class Table:
    """The numbers behind a `TableModel`, as lists."""

    log_probs: list[list[float]]  # [places][vocabulary], </s> last
    leads_to: list[list[int]]  # [places][vocabulary]
    attention: list[list[float]]  # [places][positions]

    @property
    def eos(self) -> int:
        return len(self.log_probs[0]) - 1


@dataclass(frozen=True)
class Path:
    """A prefix or a finished hypothesis."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    place: int  # where the next token is chosen
    received: tuple[float, ...]  # attention of each source piece, the next step's included

    @property
    def total(self) -> float:
        total = 0.0
        for value in self.log_probs:
            total += value
        return total


def start(table: Table, sentence: Sentence) -> Path:
    place = sum(sentence.source) % len(table.log_probs)
    received = tuple(table.attention[place][: len(sentence.source)])
    path = Path((), (), place, received)
    for token in sentence.prefix:
        after = extended(table, path, token, 0.0)
        path = Path((), (), after.place, after.received)
    return path


def extended(table: Table, path: Path, token: int, log_prob: float) -> Path:
    tokens, log_probs = (*path.tokens, token), (*path.log_probs, log_prob)
    if token == table.eos:
        return Path(tokens, log_probs, path.place, path.received)
    place = table.leads_to[path.place][token]
    now = table.attention[place]
    received = tuple(before + now[index] for index, before in enumerate(path.received))
    return Path(tokens, log_probs, place, received)


def continuations(table: Table, sentence: Sentence, path: Path) -> list[Path]:
    too_short = len(path.tokens) + 1 < sentence.min_length
    return [
        extended(table, path, token, log_prob)
        for token, log_prob in enumerate(table.log_probs[path.place])
        if log_prob > -math.inf
        and not (too_short and token == table.eos)
        and allows(sentence.constraint, (*sentence.prefix, *path.tokens, token), table.eos)
    ]


def allows(constraint: Constraint | None, tokens: tuple[int, ...], eos: int) -> bool:
    """Whether the last of some tokens may follow the others, straight from the definitions."""
    output = tokens[:-1] if tokens[-1] == eos else tokens
    ends = len(output) < len(tokens)
    match constraint:
        case None:
            return True
        case AllOf(constraints):
            return all(allows(each, tokens, eos) for each in constraints)
        case Trie(outputs):
            return output in outputs if ends else any(each[: len(output)] == output for each in outputs)
        case BannedPhrases(phrases):
            return not any(tokens[at : at + len(each)] == each for each in phrases for at in range(len(tokens)))
        case NoRepeatNgram(size):
            ngrams = [output[at : at + size] for at in range(len(output) - size + 1)]
            return len(set(ngrams)) == len(ngrams)
        case Automaton(pattern, pieces):
            text = "".join(pieces[token] or "" for token in output)
            more = [""] if ends else ["".join(letters) for n in range(5) for letters in product("abc", repeat=n)]
            return any(re.fullmatch(pattern, text + rest) for rest in more)
    raise AssertionError(constraint)


def all_paths(table: Table, sentence: Sentence) -> Iterator[Path]:
    """Every possible path of at most R tokens, finished or not, the empty one first."""
    level = [start(table, sentence)]
    for _ in range(sentence.max_length):
        yield from level
        level = [
            longer
            for path in level
            if path.tokens[-1:] != (table.eos,)
            for longer in continuations(table, sentence, path)
        ]
    yield from level


def all_finished(table: Table, sentence: Sentence) -> list[Path]:
    return [path for path in all_paths(table, sentence) if path.tokens[-1:] == (table.eos,)]


def coverage_sum(path: Path) -> float:
    total = 0.0
    for received in path.received:
        total += float(np.log(min(max(received, 1e-6), 1.0)))
    return total


def source_of(sentence: Sentence) -> Source:
    return Source.repeated(
        1, len(sentence.source), sentence.max_length, len(sentence.prefix), sentence.expected_length
    )


def rewards_of(rewards: list[float], seen: int) -> Rewards:
    sums = [0.0]
    for reward in rewards:
        sums.append(sums[-1] + reward)
    return Rewards(np.array([sums]), np.array([seen]))


def score_of(rescorer: Rescorer, sentence: Sentence, path: Path, rewards: list[float]) -> float:
    paths = Paths(
        np.array([path.total]),
        np.array([len(path.tokens)]),
        rewards_of(rewards, len(rewards)),
        np.array([coverage_sum(path)]),
    )
    return float(rescorer.score(source_of(sentence), paths)[0])


def bound_of(rescorer: Rescorer, sentence: Sentence, path: Path, rewards: list[float], seen: int) -> float:
    """The bound of a prefix when the first `seen` rewards are known."""
    paths = Paths(np.array([path.total]), np.array([len(path.tokens)]), rewards_of(rewards, seen))
    return float(rescorer.bound(source_of(sentence), paths)[0])


@dataclass
class Step:
    """What a textbook beam search holds after a step."""

    live: list[Path]
    finished: list[Path]
    top_was_eos: bool
    reward: float
    pruned: float  # best total of what was let go, -inf if nothing was


def textbook_steps(table: Table, sentence: Sentence, decoding: Decoding) -> list[Step]:
    """Every step of an exhaustive search, by sorting all continuations of all prefixes."""
    live, beam_size = [start(table, sentence)], decoding.beam_size
    steps: list[Step] = []
    while live and len(steps) < sentence.max_length:
        ranked = sorted(
            ((rank, longer) for rank, path in enumerate(live) for longer in continuations(table, sentence, path)),
            key=lambda pair: (-pair[1].total, pair[0], -pair[1].log_probs[-1], pair[1].tokens[-1]),
        )
        paths = [path for _, path in ranked]
        ends = [path.tokens[-1] == table.eos for path in paths]
        finished = [path for path, end in zip(paths[:beam_size], ends, strict=False) if end]
        if decoding.slots is Slots.OCCUPY:
            live = [path for path, end in zip(paths[:beam_size], ends, strict=False) if not end]
        else:
            others = [path for path, end in zip(paths[: 2 * beam_size], ends, strict=False) if not end]
            live = others[:beam_size]
        kept = [*live, *finished]
        let_go = [path.total for path in paths if path not in kept]
        best = paths[:beam_size]
        total = 0.0
        for path in best:
            total += -path.log_probs[-1]
        steps.append(
            Step(
                live, finished, bool(ends[:1] == [True]), total / max(len(best), 1), max(let_go, default=-math.inf)
            )
        )
    return steps


def textbook_search(table: Table, sentence: Sentence, decoding: Decoding, cancelled: int | None = None) -> Result:
    """What a search should return, by the definitions alone; the signature is left to other tests.

    A cancelled search is one that has no more than so many steps.
    """
    steps = textbook_steps(table, sentence, decoding)[:cancelled]
    rewards = [step.reward for step in steps]
    scored: list[tuple[float, Path]] = []
    rows = len(sentence.prefix) + 1
    top_was_eos = False
    for t, step in enumerate(steps, start=1):
        scored += [(score_of(decoding.rescorer, sentence, path, rewards[:t]), path) for path in step.finished]
        top_was_eos |= step.top_was_eos
        ranking = sorted(scored, key=lambda pair: -pair[0])  # stable: earlier step and rank first
        if t == len(steps) or (
            len(scored) >= decoding.n_best
            and _rule_says_stop(decoding, sentence, t, step.live, ranking, rewards[:t], top_was_eos)
        ):
            certificate, gap = _certificate(decoding, sentence, steps[:t], ranking, rewards[:t])
            best = ranking[: decoding.n_best] or _cut_off(decoding, sentence, steps[:t], rewards[:t])
            return Result(
                hypotheses=tuple(
                    Hypothesis(path.tokens, path.total, score, path.log_probs) for score, path in best
                ),
                finished=len(scored),
                certificate=certificate,
                gap=gap,
                steps=t,
                model_rows=rows,
                decoding=decoding,
                signature="",
            )
        nth = ranking[decoding.n_best - 1][0] if len(ranking) >= decoding.n_best else -math.inf
        hopeful = [path for path in step.live if bound_of(decoding.rescorer, sentence, path, rewards[:t], t) > nth]
        rows += len(hopeful) if isinstance(decoding.stop, Optimal) else len(step.live)
    raise AssertionError("a search has at least one step")


def _rule_says_stop(
    decoding: Decoding,
    sentence: Sentence,
    t: int,
    live: list[Path],
    ranking: list[tuple[float, Path]],
    rewards: list[float],
    top_was_eos: bool,
) -> bool:
    rule, beam_size, scorer = decoding.stop, decoding.beam_size, decoding.rescorer
    nth = ranking[decoding.n_best - 1][0]
    best = live[0]

    def ended_at(length: int) -> float:
        paths = Paths(
            np.array([best.total]), np.array([length]), rewards_of(rewards, len(rewards)), np.array([0.0])
        )
        return float(scorer.score(source_of(sentence), paths)[0])

    if isinstance(rule, Optimal):
        return all(nth >= bound_of(scorer, sentence, path, rewards, t) for path in live)
    if isinstance(rule, FirstFinished):
        return top_was_eos
    if isinstance(rule, BeamFull):
        return len(ranking) >= max(1, math.floor(rule.patience * beam_size + 0.5))
    if isinstance(rule, HFHeuristic):
        return len(ranking) >= beam_size and ranking[beam_size - 1][0] >= ended_at(t)
    if isinstance(rule, PredictedHorizon):
        expected_length = float(source_of(sentence).expected_length[0])
        return nth >= ended_at(min(math.ceil(expected_length), sentence.max_length))
    assert isinstance(rule, Exhaustive)
    return False


def _certificate(
    decoding: Decoding,
    sentence: Sentence,
    steps: list[Step],
    ranking: list[tuple[float, Path]],
    rewards: list[float],
) -> tuple[Certificate, float]:
    if not ranking:
        return Certificate.TRUNCATED, math.inf
    n, t, scorer = decoding.n_best, len(steps), decoding.rescorer
    nth = ranking[n - 1][0] if len(ranking) >= n else -math.inf
    live = max((bound_of(scorer, sentence, path, rewards, t) for path in steps[-1].live), default=-math.inf)
    if nth < live:
        return Certificate.NONE, live - nth
    for index, step in enumerate(steps):
        pruned = Paths(np.array([step.pruned]), np.array([index]), rewards_of(rewards, t))
        if scorer.bound(source_of(sentence), pruned)[0] > nth:
            return Certificate.BEAM, 0.0
    return Certificate.GLOBAL, 0.0


def _cut_off(
    decoding: Decoding, sentence: Sentence, steps: list[Step], rewards: list[float]
) -> list[tuple[float, Path]]:
    alive = [step.live for step in steps if step.live]
    paths = alive[-1][: decoding.n_best] if alive else []
    covered = [replace(path, received=()) for path in paths]
    return [
        (score_of(decoding.rescorer, sentence, full, rewards), path)
        for full, path in zip(covered, paths, strict=True)
    ]
