"""Checks that try to refute what a score, a rule or a model promises; a failure says what was broken and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.rescorer import Paths, Rescorer, Rewards, Source
from uncurse.scoring.scores import LengthNorm
from uncurse.scoring.stopping import StoppingRule
from uncurse.search.step_model import ROUNDING, CandidateModel, Continuations, S, StepModel

_ROWS = 64
_LONGEST = (6, 60, 600)  # hypotheses that are tried, in turn


def check_rescorer(rescorer: Rescorer, seed: int = 0, trials: int = 50) -> None:
    """Raise an `AssertionError` if a score breaks what `Rescorer` asks of it."""
    random = np.random.default_rng(seed)
    with np.errstate(all="ignore"):  # what comes of it is looked at
        for trial in range(trials):
            source, paths = _hypotheses(random, _LONGEST[trial % len(_LONGEST)])
            _check_elementwise(rescorer, source, paths)
            _check_monotone(rescorer, source, paths, random)
            _check_bound(rescorer, source, paths, random)


def _hypotheses(random: np.random.Generator, longest: int) -> tuple[Source, Paths]:
    """Hypotheses short and long, likely and unlikely; the same numbers often meet."""
    max_length = random.integers(1, longest + 1, _ROWS)
    source = Source(
        random.integers(0, 80, _ROWS),
        max_length,
        random.choice([0, 0, 1, 2, 9], _ROWS),
        random.choice([0.5, 1.0, 3.7, 6.0, 11.2, 25.5, 50.0, 150.0], _ROWS),
    )
    rewards = random.integers(0, 12, (_ROWS, longest)) / 4.0
    sums = np.concatenate((np.zeros((_ROWS, 1)), np.cumsum(rewards, axis=1)), axis=1)
    return source, Paths(
        -random.integers(0, 40, _ROWS) / 8.0 * random.choice([0.01, 1.0, 4.0, 50.0, 1000.0], _ROWS),
        1 + (random.random(_ROWS) * max_length).astype(np.int64),
        Rewards(sums, np.full(_ROWS, longest)),
        -random.integers(0, 20, _ROWS) / 4.0 * random.choice([1.0, 20.0], _ROWS),
    )


def _check_elementwise(rescorer: Rescorer, source: Source, paths: Paths) -> None:
    scores = rescorer.score(source, paths)
    assert np.shape(scores) == (_ROWS,), f"{rescorer}: {_ROWS} hypotheses have scores of shape {np.shape(scores)}"
    assert not np.isnan(scores).any(), f"{rescorer}: a score is NaN"
    of_one_source = rescorer.score(source.take(np.array([0])), paths)
    assert np.shape(of_one_source) == (_ROWS,), (
        f"{rescorer}: {_ROWS} hypotheses of one source have scores of shape {np.shape(of_one_source)}"
    )
    for row in range(0, _ROWS, 7):
        only = np.array([row])
        alone = rescorer.score(source.take(only), _taken(paths, only))
        assert alone[0] == scores[row], f"{rescorer}: a score depends on the hypotheses beside it"


def _check_monotone(rescorer: Rescorer, source: Source, paths: Paths, random: np.random.Generator) -> None:
    assert paths.rewards is not None
    scores = rescorer.score(source, paths)
    closer = random.choice([0.0, 0.5, 0.9, 0.999], _ROWS)
    more_likely = rescorer.score(source, replace(paths, log_prob=paths.log_prob * closer))
    assert (more_likely >= scores).all(), f"{rescorer}: the score falls when the log-probability rises"
    covered = rescorer.score(source, replace(paths, coverage_or_none=paths.coverage / 2.0))
    assert (covered >= scores).all(), f"{rescorer}: the score falls when the coverage rises"
    raised = np.cumsum(random.integers(0, 2, paths.rewards.sums.shape), axis=1)
    rewarded = replace(paths, rewards=Rewards(paths.rewards.sums + raised, paths.rewards.seen))
    assert (rescorer.score(source, rewarded) >= scores).all(), (
        f"{rescorer}: the score falls when an adaptive reward rises"
    )


def _check_bound(rescorer: Rescorer, source: Source, paths: Paths, random: np.random.Generator) -> None:
    """Each hypothesis is a completion of a prefix of `step` tokens, whose `S` and coverage are no worse."""
    assert paths.rewards is not None
    step = (random.random(_ROWS) * paths.length).astype(np.int64)
    at_step = replace(paths, log_prob=paths.log_prob / 2.0, length=step, rewards=Rewards(paths.rewards.sums, step))
    bound = rescorer.bound(source, at_step)
    assert not np.isnan(bound).any(), f"{rescorer}: a bound is NaN"
    assert (bound >= rescorer.score(source, paths)).all(), f"{rescorer}: a completion beats the bound"
    later = Rewards(paths.rewards.sums, step + 1)
    extended = replace(at_step, length=step + 1, rewards=later)
    assert (rescorer.bound(source, extended) <= bound).all(), f"{rescorer}: a bound rises with the prefix"
    # Where a bound is finite the search may drop hopeless prefixes, and with them later rewards.
    ahead = np.arange(1, int(source.max_length.max()) + 1)
    lengths = np.minimum(step[:, None] + ahead, source.max_length[:, None])
    within = (lengths > step[:, None]) & (bound < np.inf)[:, None]
    for_sure = Paths(at_step.log_prob[:, None], lengths, paths.rewards, np.zeros((1, 1)))
    unseen = replace(for_sure, rewards=at_step.rewards)
    same = rescorer.score(source.column(), for_sure) == rescorer.score(source.column(), unseen)
    assert (same | ~within).all(), f"{rescorer}: the score depends on a reward, and is bounded in it"


def check_stopping_rule(rule: StoppingRule, seed: int = 0, trials: int = 50) -> None:
    """Raise an `AssertionError` if a rule breaks what `StoppingRule` asks of it."""
    random = np.random.default_rng(seed)
    for trial in range(trials):
        source, paths = _hypotheses(random, _LONGEST[trial % len(_LONGEST)])
        evidence = _searches(random, source, paths)
        stops = rule.stops(evidence)
        assert np.shape(stops) == (_ROWS,), f"{rule}: {_ROWS} searches have answers of shape {np.shape(stops)}"
        for row in range(0, _ROWS, 7):
            (alone,) = rule.stops(evidence.take(np.array([row])))
            assert alone == stops[row], f"{rule}: an answer depends on the searches beside it"
        sums = evidence.best_live[:, None] - np.cumsum(random.integers(0, 3, (_ROWS, 4)) / 2.0, axis=1)
        sums[:, 0] = evidence.best_live
        live = np.arange(4) < random.integers(1, 5, _ROWS)[:, None]
        kept = rule.hopeful(evidence, sums, live)
        dropped = live & (np.arange(4) >= kept[:, None])
        rows, ranks = np.nonzero(dropped & (kept > 0)[:, None])
        of_rows = evidence.take(rows)
        bound = of_rows.rescorer.bound(of_rows.source, Paths(sums[rows, ranks], of_rows.step, of_rows.rewards))
        assert (bound <= of_rows.nth_best).all(), f"{rule}: a prefix was dropped that could enter the n-best list"


def _searches(random: np.random.Generator, source: Source, paths: Paths) -> Evidence:
    """Searches that are not over: some hypotheses have finished, and a prefix may still grow."""
    source = replace(source, max_length=source.max_length + 1)
    step = np.minimum(paths.length, source.max_length - 1)
    nth_best = np.asarray(LengthNorm().score(source, paths))
    return Evidence(
        rescorer=LengthNorm(),
        beam_size=4,
        n_best=2,
        source=source,
        rewards=paths.rewards,
        step=step,
        finished=random.integers(2, 12, _ROWS),
        nth_best=nth_best,
        bth_best_or_none=nth_best - random.integers(0, 3, _ROWS) / 2.0,
        top_was_eos=random.random(_ROWS) < 0.5,
        best_live=paths.log_prob * random.choice([0.5, 1.0, 2.0], _ROWS),
    )


def _taken(paths: Paths, rows: Ints) -> Paths:
    assert paths.rewards is not None
    return Paths(paths.log_prob[rows], paths.length[rows], paths.rewards.take(rows), paths.coverage[rows])


def check_step_model(
    model: StepModel[S], sources: Sequence[Sequence[int]], steps: int = 6, tolerance: float = 1e-4
) -> None:
    """Raise an `AssertionError` if a model breaks what `StepModel` asks of it; give two sources, or better five.

    Sentences join one or two at a time, leave, and come back later; prefixes branch, are reordered and dropped.
    At every step each row must give what the same prefix gives alone.
    """
    if len(sources) < 2:
        raise UncurseError(f"{len(sources)} source(s) given: a batch needs at least 2")
    assert 0 <= model.eos < model.vocab_size, f"</s> is {model.eos}, outside 0 … {model.vocab_size - 1}"
    assert "|" not in model.signature, "a signature must not contain '|'"
    alone = _Alone(model, sources)
    counts = sorted({min(k, model.vocab_size) for k in (1, 2, 3, model.vocab_size // 2 + 1)})
    state: S | None = None
    rows: list[_Row] = []
    waiting = list(range(len(sources)))
    for step in range(1, steps + 1):
        room = len(sources) // 2 if step == 1 else 2 - step % 2
        joining, waiting = waiting[:room], waiting[room:]
        if joining:
            started = model.start([sources[index] for index in joining])
            state = started if state is None else state.append(started)
            rows += [_Row(index, ()) for index in joining]
        assert state is not None  # who leaves waits, and joins again
        tokens = np.array([row.prefix[-1] if row.prefix else model.bos for row in rows])
        k = counts[step % len(counts)]
        few, _ = model.step(state.select(np.arange(len(rows))), tokens, k, False)
        among = _candidates(model, state.select(np.arange(len(rows))), tokens)
        given, state = model.step(state, tokens, model.vocab_size, model.attends)
        found = _dense(model, given, len(rows))
        if among is not None:
            expected_among = np.take_along_axis(found, among.tokens, axis=1)
            assert all(map(_close, among.log_probs, expected_among, [tolerance] * len(rows))), (
                f"step {step}: step_among says something else of its candidates than step"
            )
        for index, row in enumerate(rows):
            expected, attention = alone.after(row)
            where = f"source {row.source}, prefix {row.prefix}"
            assert _close(found[index], expected, tolerance), (
                f"{where}: log-probabilities differ from those of the same prefix alone; is something lost when"
                " rows are selected or sentences appended?"
            )
            _check_few(few, k, index, expected, tolerance, where)
            if attention is not None:
                _check_attention(given.attention, index, attention, tolerance, where)
        there = list(dict.fromkeys(row.source for row in rows))
        leaving = there[step % len(there)] if step % 2 == 0 else None
        parents, rows = _branched(rows, found, model.eos, leaving)
        waiting += sorted(set(there) - {row.source for row in rows})
        state = state.select(parents) if rows else None


def _candidates(model: StepModel[S], state: S, tokens: Ints) -> Continuations | None:
    """What a model that can be asked about candidates says of some; None if it cannot be asked."""
    if not isinstance(model, CandidateModel):
        return None
    candidates = (np.arange(len(tokens))[:, None] + np.array([0, 1, 1, model.eos])) % model.vocab_size
    given, _ = model.step_among(state, tokens, candidates, False)
    assert np.array_equal(given.tokens, candidates), "step_among gave others than its candidates"
    return given


class _Row(NamedTuple):
    source: int
    prefix: tuple[int, ...]


@final
class _Alone(Generic[S]):
    """What a prefix says when nothing else is in the batch."""

    def __init__(self, model: StepModel[S], sources: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._sources = sources

    def after(self, row: _Row) -> tuple[Floats, Floats | None]:
        """The log-probabilities of the vocabulary after a prefix, and the attention to its source's pieces."""
        model = self._model
        state = model.start([self._sources[row.source]])
        for token in (model.bos, *row.prefix):
            given, state = model.step(state, np.array([token]), model.vocab_size, model.attends)
        pieces = len(self._sources[row.source])
        if not model.attends:
            return _dense(model, given, 1)[0], None
        assert given.attention is not None, "the model says that it attends, and gave no attention"
        assert given.attention.shape[1] >= pieces, "attention is missing for some source pieces"
        assert (given.attention[0, :pieces] >= 0).all(), "attention is NaN or negative"
        return _dense(model, given, 1)[0], given.attention[0, :pieces]


def _branched(rows: list[_Row], found: Floats, end: int, leaving: int | None) -> tuple[Ints, list[_Row]]:
    """Of each sentence but one the two likeliest ways on that are possible, the less likely first."""
    ways: dict[int, list[tuple[float, int, _Row]]] = {}
    for index, row in enumerate(rows):
        likely = np.argsort(-found[index], kind="stable")
        words = likely[(likely != end) & (found[index, likely] > -np.inf)]
        ways.setdefault(row.source, []).extend(
            (float(found[index, token]), index, _Row(row.source, (*row.prefix, int(token)))) for token in words[:2]
        )
    kept = [way for source, mine in ways.items() if source != leaving for way in sorted(mine)[-2:]]
    return np.array([index for _, index, _ in kept]), [row for _, _, row in kept]


def _dense(model: StepModel[S], given: Continuations, rows: int) -> Floats:
    """The log-probabilities by token, [rows, vocabulary]."""
    shape = (rows, model.vocab_size)
    assert given.tokens.shape == given.log_probs.shape == shape, (
        f"the whole vocabulary was asked for, {shape}, and {given.tokens.shape} came"
    )
    assert (np.sort(given.tokens, axis=1) == np.arange(model.vocab_size)).all(), (
        "a row does not give every token once"
    )
    assert (given.log_probs <= ROUNDING).all(), "a log-probability is NaN or above 0"
    dense = np.empty(shape)
    np.put_along_axis(dense, given.tokens, np.asarray(given.log_probs, dtype=np.float64), axis=1)
    return dense


def _check_few(few: Continuations, k: int, row: int, expected: Floats, tolerance: float, where: str) -> None:
    assert few.tokens.shape[1] == k, f"{where}: {k} continuations were asked for, and {few.tokens.shape[1]} came"
    best = np.lexsort((np.arange(len(expected)), -expected))[:k]
    values = np.asarray(few.log_probs[row], dtype=np.float64)
    assert _close(-np.sort(-values), expected[best], tolerance), f"{where}: the k best of a row are not its best"
    assert _close(expected[few.tokens[row]], values, tolerance), (
        f"{where}: tokens and log-probabilities do not belong together"
    )
    if tolerance == 0:  # else ties cannot be told from differences of rounding
        assert set(few.tokens[row].tolist()) == set(best.tolist()), f"{where}: a tie goes to the higher token"


def _check_attention(attention: Floats | None, row: int, expected: Floats, tolerance: float, where: str) -> None:
    assert attention is not None, f"{where}: the model says that it attends, and gave no attention"
    assert attention.shape[1] >= len(expected), f"{where}: attention is missing for some source pieces"
    assert _close(np.asarray(attention[row, : len(expected)], dtype=np.float64), expected, tolerance), (
        f"{where}: the attention differs from that of the same prefix alone"
    )


def _close(found: Floats, expected: Floats, tolerance: float) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=0.0, atol=tolerance)
