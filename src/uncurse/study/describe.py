"""What is not about methods: lengths, where `</s>` comes, candidates of sentences, other systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.search.trace import Trace
from uncurse.study.findings import EosPositions, FinishedText, LengthErrors, SentenceCandidates
from uncurse.study.outputs import BleuCache
from uncurse.study.study import Study
from uncurse.study.test_set import SETS, TestSet
from uncurse.text.lines import read_lines, sample

MIN_BEAM_SIZE: Final = 3  # smaller beams seldom finish three hypotheses
MAX_TEXTS: Final = 12  # candidates of a sentence that can be read, beside those that a method chose
MAX_POINTS: Final = 80  # candidates of a sentence that are drawn


def first_eos_steps(traces: Sequence[Trace], max_lengths: Sequence[int]) -> Ints:
    """The steps of the first three `</s>` of each sentence, 0 where there are fewer, [sentences, 3]."""
    steps: Ints = np.zeros((len(traces), 3), dtype=np.int64)
    for row, trace, max_length in zip(steps, traces, max_lengths, strict=True):
        found = trace.finished[0][:3] + 1
        found = found[found <= max_length]
        row[: len(found)] = found
    return steps


def eos_positions(steps: Mapping[int, Ints]) -> EosPositions:
    """Means over the sentences that have three `</s>` at every beam size; `steps` is by beam size."""
    sizes = [size for size in steps if size >= MIN_BEAM_SIZE]
    if not sizes:
        return EosPositions(0, (), ())
    found = np.stack([steps[size] for size in sizes])  # [beam sizes, sentences, 3]
    everywhere = (found > 0).all(axis=(0, 2))
    means = found[:, everywhere].mean(axis=1) if everywhere.any() else np.zeros((len(sizes), 3))
    positions = tuple((float(first), float(second), float(third)) for first, second, third in means)
    return EosPositions(int(everywhere.sum()), tuple(sizes), positions)


def length_errors(study: Study, test_set: TestSet) -> LengthErrors:
    """Mean absolute errors over all references."""
    dev = study.test_sets["dev"]
    degree = min(len(set(dev.source_lengths)) - 1, 1)  # of sources that are all as long there is only a mean
    line = np.polyfit(dev.source_lengths, dev.reference_lengths.mean(axis=1), degree)
    lengths, sources = test_set.reference_lengths, test_set.source_lengths

    def error(expected: ArrayLike) -> float:
        return float(np.abs(np.asarray(expected)[:, None] - lengths).mean())

    expected = [each for each in test_set.expected_lengths if each is not None]
    others = tuple(combinations(lengths.T, 2))
    return LengthErrors(
        mean_length=float(lengths.mean()),
        predictor=error(expected) if expected else None,
        fixed_ratio=error(study.length_ratio * sources),
        line=error(np.polyval(line, sources)),
        reference=float(fmean(np.abs(one - other).mean() for one, other in others)) if others else None,
        within={
            name: float((lengths <= np.array(most)[:, None]).mean()) for name, most in test_set.max_lengths.items()
        },
    )


def system_statistics(study: Study, caches: Mapping[str, BleuCache]) -> dict[str, dict[str, Ints]]:
    """BLEU's statistics of the translations that other systems have made, by system and set."""
    found: dict[str, dict[str, Ints]] = {}
    for system, files in study.systems().items():
        found[system] = {}
        for name in SETS:
            lines, wanted = read_lines(files[name]), study.set_plan(name)
            total = len(read_lines(study.data / wanted.source))
            if len(lines) != total:
                raise UncurseError(f"{files[name]} has {len(lines)} lines and {wanted.source} has {total}")
            found[system][name] = caches[name].statistics(sample(lines, wanted.lines))
    return found


def candidates_of(
    test_set: TestSet, traces: Sequence[Trace], decode: Callable[[Sequence[int]], str]
) -> tuple[SentenceCandidates, ...]:
    """What finished for each sentence of a recorded search, within the maximum length that is judged."""
    return tuple(
        _candidates(trace, max_length, decode)
        for trace, max_length in zip(traces, test_set.judged_max_lengths(traces), strict=True)
    )


def _candidates(trace: Trace, max_length: int, decode: Callable[[Sequence[int]], str]) -> SentenceCandidates:
    steps, ranks = trace.finished
    likely = np.argsort(-trace.finished_sums, kind="stable")
    likely = likely[steps[likely] < max_length]
    texts: dict[str, FinishedText] = {}
    points: list[tuple[int, float]] = []
    for place in likely.tolist():
        length, log_prob = int(steps[place]) + 1, float(trace.finished_sums[place])
        if len(points) < MAX_POINTS:
            points.append((length, log_prob))
        if len(texts) < MAX_TEXTS:
            words = decode(trace.hypothesis(int(steps[place]), int(ranks[place]), 0.0).tokens)
            texts.setdefault(words, FinishedText(words, length, log_prob))
    return SentenceCandidates(max_length, tuple(points), tuple(texts.values()))
