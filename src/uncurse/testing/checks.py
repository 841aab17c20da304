"""Checks that try to refute what a score or a model promises; each failure says what was broken and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.model import Continuations, S, StepModel
from uncurse.rescoring import Paths, Rescorer, Rewards, Source

_ROWS = 64
_MOST = 12  # the longest hypothesis tried


def check_rescorer(rescorer: Rescorer, seed: int = 0, trials: int = 50) -> None:
    """Raise an `AssertionError` if a score breaks what `Rescorer` asks of it."""
    random = np.random.default_rng(seed)
    for _ in range(trials):
        source, paths = _hypotheses(random)
        _check_elementwise(rescorer, source, paths)
        _check_monotone(rescorer, source, paths, random)
        _check_bound(rescorer, source, paths, random)


def _hypotheses(random: np.random.Generator) -> tuple[Source, Paths]:
    prefix = random.integers(0, 3, _ROWS) * random.integers(0, 2, _ROWS)
    source = Source(
        random.integers(1, _MOST, _ROWS),
        np.full(_ROWS, _MOST),
        prefix,
        random.choice([0.5, 1.0, 3.7, 6.0, 11.2, 20.0], _ROWS),
    )
    rewards = random.integers(0, 12, (_ROWS, _MOST)) / 4.0
    sums = np.concatenate((np.zeros((_ROWS, 1)), np.cumsum(rewards, axis=1)), axis=1)
    return source, Paths(
        -random.integers(0, 40, _ROWS) / 8.0,
        random.integers(1, _MOST + 1, _ROWS),
        Rewards(sums, np.full(_ROWS, _MOST)),
        -random.integers(0, 20, _ROWS) / 4.0,
    )


def _check_elementwise(rescorer: Rescorer, source: Source, paths: Paths) -> None:
    scores = np.broadcast_to(rescorer.score(source, paths), (_ROWS,))
    assert not np.isnan(scores).any(), f"{rescorer}: a score is NaN"
    for row in range(0, _ROWS, 7):
        only = np.array([row])
        alone = rescorer.score(source.take(only), _taken(paths, only))
        assert alone[0] == scores[row], f"{rescorer}: a score depends on the hypotheses beside it"


def _check_monotone(rescorer: Rescorer, source: Source, paths: Paths, random: np.random.Generator) -> None:
    assert paths.rewards is not None
    scores = rescorer.score(source, paths)
    more_likely = rescorer.score(source, replace(paths, log_prob=paths.log_prob / 2.0))
    assert (more_likely >= scores).all(), f"{rescorer}: the score falls when the log-probability rises"
    covered = rescorer.score(source, replace(paths, coverage_sum=paths.coverage / 2.0))
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
    later = Rewards(paths.rewards.sums, np.minimum(step + 1, _MOST))
    extended = replace(at_step, length=step + 1, rewards=later)
    assert (rescorer.bound(source, extended) <= bound).all(), f"{rescorer}: a bound rises with the prefix"
    # Where a bound is finite the search may drop hopeless prefixes, and with them later rewards.
    lengths = step[:, None] + np.arange(1, _MOST + 1)
    within = (lengths <= source.limit[:, None]) & np.isfinite(bound)[:, None]
    lengths = np.minimum(lengths, _MOST)
    for_sure = Paths(at_step.log_prob[:, None], lengths, paths.rewards, np.zeros((1, 1)))
    unseen = replace(for_sure, rewards=at_step.rewards)
    same = rescorer.score(source.column(), for_sure) == rescorer.score(source.column(), unseen)
    assert (same | ~within).all(), f"{rescorer}: the score depends on a reward, and is bounded in it"


def _taken(paths: Paths, rows: Ints) -> Paths:
    assert paths.rewards is not None
    return Paths(paths.log_prob[rows], paths.length[rows], paths.rewards.take(rows), paths.coverage[rows])


def check_step_model(
    model: StepModel[S], sources: Sequence[Sequence[int]], steps: int = 5, tolerance: float = 1e-4
) -> None:
    """Raise an `AssertionError` if a model breaks what `StepModel` asks of it; give two sources or more."""
    if len(sources) < 2:
        raise ValueError(f"{len(sources)} source(s) given: a batch needs at least 2")
    assert 0 <= model.end < model.vocabulary, f"</s> is {model.end}, outside 0 … {model.vocabulary - 1}"
    assert "|" not in model.signature, "a signature must not contain '|'"
    rows = np.arange(len(sources))
    whole = model.start(sources)
    late = model.start(sources[:1]).append(model.start(sources[1:]))
    alone = [model.start([source]) for source in sources]
    tokens = np.full(len(sources), model.begin)
    for step in range(1, steps + 1):
        mirrored = whole.select(np.concatenate((rows[::-1], rows[:1])))
        few, _ = model.step(whole.select(rows), tokens, 2, False)
        expected, whole = _stepped(model, whole, tokens, sources, step)
        _check_few(few, expected, tolerance, step)
        found, _ = _stepped(model, mirrored, np.concatenate((tokens[::-1], tokens[:1])), None, step)
        _same(found[:-1][::-1], expected, tolerance, step, "rows are selected in another order")
        _same(found[-1:], expected[:1], tolerance, step, "a row is selected twice")
        found, late = _stepped(model, late, tokens, None, step)
        _same(found, expected, tolerance, step, "sentences are appended")
        for row in rows:
            found, alone[row] = _stepped(model, alone[row], tokens[row : row + 1], None, step)
            _same(found, expected[row : row + 1], tolerance, step, "a sentence is alone")
        expected[:, model.end] = -np.inf
        tokens = expected.argmax(axis=1)


def _stepped(
    model: StepModel[S], state: S, tokens: Ints, sources: Sequence[Sequence[int]] | None, step: int
) -> tuple[Floats, S]:
    """The log-probabilities of the whole vocabulary, [rows, vocabulary], and the state after."""
    given, after = model.step(state, tokens, model.vocabulary, model.attends)
    rows = len(tokens)
    shape = (rows, model.vocabulary)
    assert given.tokens.shape == given.log_probs.shape == shape, (
        f"step {step}: the whole vocabulary was asked for, {shape}, and {given.tokens.shape} came"
    )
    assert (np.sort(given.tokens, axis=1) == np.arange(model.vocabulary)).all(), (
        f"step {step}: a row does not give every token once"
    )
    assert (given.log_probs <= 1e-5).all(), f"step {step}: a log-probability is NaN or above 0"
    if model.attends and sources is not None:
        _check_attention(given, sources, step)
    dense = np.empty(shape)
    np.put_along_axis(dense, given.tokens, np.asarray(given.log_probs, dtype=np.float64), axis=1)
    return dense, after


def _check_attention(given: Continuations, sources: Sequence[Sequence[int]], step: int) -> None:
    assert given.attention is not None, f"step {step}: the model says that it attends, and gave no attention"
    for row, source in enumerate(sources):
        received = given.attention[row, : len(source)]
        assert len(received) == len(source), f"step {step}: attention is missing for some source pieces"
        assert (received >= 0).all(), f"step {step}: attention is NaN or negative"


def _check_few(few: Continuations, expected: Floats, tolerance: float, step: int) -> None:
    best = -np.sort(-expected, axis=1)[:, : few.tokens.shape[1]]
    found = -np.sort(-np.asarray(few.log_probs, dtype=np.float64), axis=1)
    assert _close(found, best, tolerance), f"step {step}: the k best of a row are not its best"
    named = np.take_along_axis(expected, few.tokens, axis=1)
    assert _close(named, np.asarray(few.log_probs, dtype=np.float64), tolerance), (
        f"step {step}: tokens and log-probabilities do not belong together"
    )


def _same(found: Floats, expected: Floats, tolerance: float, step: int, when: str) -> None:
    assert _close(found, expected, tolerance), f"step {step}: log-probabilities change when {when}"


def _close(found: Floats, expected: Floats, tolerance: float) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=0.0, atol=tolerance)
