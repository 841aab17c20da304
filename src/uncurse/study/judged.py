"""What ways of scoring and stopping make of a test set, sentence by sentence, from its traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.evaluation.bootstrap import bleu_statistics
from uncurse.evaluation.quality import repeats
from uncurse.forced import Forced
from uncurse.judging import judge_all
from uncurse.rescoring import Paths, Rescorer, Rewards, Source
from uncurse.result import Optimality, Result
from uncurse.study.material import Material
from uncurse.study.methods import Way
from uncurse.trace import Trace

TIE = 1e-4  # the model's log-probabilities of one sequence differ by less from batch to batch


@final
class Meter:
    """Measures outputs of a test set; each distinct output of a sentence is decoded and measured once."""

    def __init__(self, material: Material, text: Callable[[Sequence[int]], str], lowercase: bool) -> None:
        self._material = material
        self._text = text
        self._lowercase = lowercase
        self._texts: dict[tuple[int, ...], str] = {}
        self._rows: dict[tuple[int, str], Ints] = {}
        self._repeats: dict[str, bool] = {}

    def text(self, tokens: tuple[int, ...]) -> str:
        """What tokens spell."""
        if tokens not in self._texts:
            self._texts[tokens] = self._text(tokens)
        return self._texts[tokens]

    def statistics(self, texts: Sequence[str]) -> Ints:
        """What BLEU adds up, for one output of each sentence, [sentences, 10]."""
        return np.stack([self.row(index, text) for index, text in enumerate(texts)])

    def row(self, index: int, text: str) -> Ints:
        """The same for one output of one sentence, [10]."""
        if (index, text) not in self._rows:
            references = [[each] for each in self._material.references_of(index)]
            self._rows[index, text] = bleu_statistics([text], references, self._lowercase)[0]
        return self._rows[index, text]

    def repeats(self, text: str) -> bool:
        """Whether an output goes in circles."""
        if text not in self._repeats:
            self._repeats[text] = repeats(text)
        return self._repeats[text]


@final
@dataclass(frozen=True, eq=False)
class Judged:
    """The outputs of one way at one width; every array is [sentences]."""

    texts: tuple[str, ...]
    statistics: Ints  # [sentences, 10]
    lengths: Ints  # tokens with </s>
    log_probs: Floats  # -inf where nothing was left to give
    scores: Floats
    steps: Ints
    rows: Ints
    optimality: tuple[Optimality, ...]
    repeating: Bools
    search_errors: Bools  # a reference within the limit has a higher score
    model_errors: Bools  # every reference has a lower one


def judge_set(
    material: Material,
    traces: Sequence[Trace],
    ways: Sequence[Way],
    meter: Meter,
    references: Sequence[Sequence[Forced]],
    limits: Sequence[int] | None = None,
    lengths: Sequence[float] | None = None,
) -> list[Judged]:
    """Judge every sentence in every way, under other limits or expected lengths than its own if they are given."""
    pairs = [(way.score, way.stop) for way in ways]
    results: list[list[Result]] = [[] for _ in ways]
    errors: list[list[tuple[bool, bool]]] = [[] for _ in ways]
    for index, (trace, limit) in enumerate(zip(traces, material.limits_in(traces, limits), strict=True)):
        sentence = material.sentences[index]
        length = sentence.predicted if lengths is None else lengths[index]
        found = judge_all(trace, pairs, length=length, limit=limit)
        known: dict[Rescorer, Floats] = {}
        for place, (way, result) in enumerate(zip(ways, found, strict=True)):
            if way.score not in known:
                known[way.score] = _reference_scores(way.score, trace, limit, length, references[index])
            results[place].append(result)
            errors[place].append(_errors(result, known[way.score], references[index]))
    return [_judged(each, meter, wrong) for each, wrong in zip(results, errors, strict=True)]


def _judged(results: list[Result], meter: Meter, errors: list[tuple[bool, bool]]) -> Judged:
    best = [result.hypotheses[0] if result.hypotheses else None for result in results]
    texts = tuple("" if each is None else meter.text(each.tokens) for each in best)
    wrong = np.array(errors)
    return Judged(
        texts,
        meter.statistics(texts),
        np.array([0 if each is None else each.length for each in best]),
        np.array([-np.inf if each is None else each.log_prob for each in best]),
        np.array([-np.inf if each is None else each.score for each in best]),
        np.array([result.steps for result in results]),
        np.array([result.rows for result in results]),
        tuple(result.optimality for result in results),
        np.array([meter.repeats(text) for text in texts]),
        wrong[:, 0],
        wrong[:, 1],
    )


def _reference_scores(
    score: Rescorer, trace: Trace, limit: int, predicted: float | None, references: Sequence[Forced]
) -> Floats:
    """The score of each reference under the rewards of this search, -inf beyond the limit, [references]."""
    lengths = np.array([len(each.tokens) for each in references])
    within = np.minimum(lengths, limit)
    source = Source.repeated(len(references), trace.source_length, limit, len(trace.prefix), predicted)
    sums = np.broadcast_to(trace.reward_sums, (len(references), trace.steps + 1))
    rewards = Rewards(sums, np.full(len(references), trace.steps))
    coverage = None
    if trace.coverage is not None:
        coverage = np.array([each.coverage for each in references], dtype=np.float64)
    paths = Paths(np.array([each.log_prob for each in references]), within, rewards, coverage)
    scores = score.score(source, paths)
    return np.where((lengths <= limit) & (scores < np.inf), scores, -np.inf)


def _errors(result: Result, scores: Floats, references: Sequence[Forced]) -> tuple[bool, bool]:
    """Whether a reference beats the output, and whether all lose to it; neither if the output is a reference."""
    best = float(scores.max(initial=-np.inf))
    if not result.hypotheses or best == -np.inf:
        return False, False
    output = result.hypotheses[0]
    if any(output.tokens[:-1] == each.tokens[:-1] for each in references):
        return False, False
    return best > output.score + TIE, best < output.score - TIE
