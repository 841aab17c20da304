"""What decodings make of a test set, sentence by sentence, from its traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.evaluation.bleu import bleu_statistics, repeats
from uncurse.scoring.decoding import Decoding
from uncurse.scoring.rescorer import Paths, Rescorer, Rewards, Source
from uncurse.scoring.result import Certificate, Result
from uncurse.search.forced_decoding import ScoredTarget
from uncurse.search.judge import judge
from uncurse.search.trace import Trace
from uncurse.study.test_set import TestSet

TIE: Final = 1e-4  # the model's log-probabilities of one sequence differ by less from batch to batch


@final
class BleuCache:
    """Measures outputs of a test set; each distinct output of a sentence is detokenized and measured once."""

    def __init__(self, test_set: TestSet, decode: Callable[[Sequence[int]], str], lowercase: bool) -> None:
        self._test_set = test_set
        self._decode = decode
        self._lowercase = lowercase
        self._texts: dict[tuple[int, ...], str] = {}
        self._rows: dict[tuple[int, str], Ints] = {}
        self._repeats: dict[str, bool] = {}

    def text(self, tokens: tuple[int, ...]) -> str:
        """The text of an output."""
        if tokens not in self._texts:
            self._texts[tokens] = self._decode(tokens)
        return self._texts[tokens]

    def statistics(self, texts: Sequence[str]) -> Ints:
        """What BLEU adds up, for one output of each sentence, [sentences, 10]."""
        return np.stack([self.row(index, text) for index, text in enumerate(texts)])

    def row(self, index: int, text: str) -> Ints:
        """The same for one output of one sentence, [10]."""
        if (index, text) not in self._rows:
            references = [[each] for each in self._test_set.references_of(index)]
            self._rows[index, text] = bleu_statistics([text], references, self._lowercase)[0]
        return self._rows[index, text]

    def repeats(self, text: str) -> bool:
        """Whether an output repeats itself."""
        if text not in self._repeats:
            self._repeats[text] = repeats(text)
        return self._repeats[text]


@final
@dataclass(frozen=True, eq=False)
class Outputs:
    """The outputs of one decoding; every array is [sentences]."""

    texts: tuple[str, ...]
    statistics: Ints  # [sentences, 10]
    lengths: Ints  # tokens with </s>
    log_probs: Floats  # -inf where there is no output
    scores: Floats
    steps: Ints
    model_rows: Ints
    certificates: tuple[Certificate, ...]
    repeating: Bools
    search_errors: Bools  # a reference within the maximum length has a higher score
    model_errors: Bools  # every reference has a lower one


def judge_set(
    test_set: TestSet,
    traces: Sequence[Trace],
    decodings: Sequence[Decoding],
    cache: BleuCache,
    references: Sequence[Sequence[ScoredTarget]],
    max_lengths: Sequence[int] | None = None,
    expected_lengths: Sequence[float] | None = None,
) -> list[Outputs]:
    """Judge every sentence by every decoding, with other maximum or expected lengths than its own if given.

    Maximum lengths are final: nothing is searched again.
    """
    results: list[list[Result]] = [[] for _ in decodings]
    errors: list[list[tuple[bool, bool]]] = [[] for _ in decodings]
    judged = test_set.judged_max_lengths(traces) if max_lengths is None else max_lengths
    expected = test_set.expected_lengths if expected_lengths is None else expected_lengths
    for trace, max_length, length, targets in zip(traces, judged, expected, references, strict=True):
        found = judge(trace, decodings, expected_length=length, max_length=max_length)
        known: dict[Rescorer, Floats] = {}
        for place, result in enumerate(found):
            score = result.decoding.rescorer
            if score not in known:
                known[score] = _reference_scores(score, trace, max_length, length, targets)
            results[place].append(result)
            errors[place].append(_errors(result, known[score], targets))
    return [_outputs(each, cache, wrong) for each, wrong in zip(results, errors, strict=True)]


def _outputs(results: list[Result], cache: BleuCache, errors: list[tuple[bool, bool]]) -> Outputs:
    best = [result.hypotheses[0] if result.hypotheses else None for result in results]
    texts = tuple("" if each is None else cache.text(each.tokens) for each in best)
    wrong = np.array(errors)
    return Outputs(
        texts=texts,
        statistics=cache.statistics(texts),
        lengths=np.array([0 if each is None else each.length for each in best]),
        log_probs=np.array([-np.inf if each is None else each.log_prob for each in best]),
        scores=np.array([-np.inf if each is None else each.score for each in best]),
        steps=np.array([result.steps for result in results]),
        model_rows=np.array([result.model_rows for result in results]),
        certificates=tuple(result.certificate for result in results),
        repeating=np.array([cache.repeats(text) for text in texts]),
        search_errors=wrong[:, 0],
        model_errors=wrong[:, 1],
    )


def _reference_scores(
    score: Rescorer,
    trace: Trace,
    max_length: int,
    expected_length: float | None,
    references: Sequence[ScoredTarget],
) -> Floats:
    """The score of each reference under the rewards of this search, -inf beyond its maximum length."""
    lengths = np.array([len(each.tokens) for each in references])
    within = np.minimum(lengths, max_length)
    source = Source.repeated(len(references), trace.source_length, max_length, len(trace.prefix), expected_length)
    sums = np.broadcast_to(trace.reward_sums, (len(references), trace.steps + 1))
    rewards = Rewards(sums, np.full(len(references), trace.steps))
    coverage = None
    if trace.coverage is not None:
        coverage = np.array([each.coverage for each in references], dtype=np.float64)
    paths = Paths(np.array([each.log_prob for each in references]), within, rewards, coverage)
    scores = score.score(source, paths)
    return np.where((lengths <= max_length) & (scores < np.inf), scores, -np.inf)


def _errors(result: Result, scores: Floats, references: Sequence[ScoredTarget]) -> tuple[bool, bool]:
    """Whether a reference beats the output, and whether all lose to it; neither if the output is a reference."""
    best = float(scores.max(initial=-np.inf))
    if not result.hypotheses or best == -np.inf:
        return False, False
    output = result.hypotheses[0]
    if any(output.tokens[:-1] == each.tokens[:-1] for each in references):
        return False, False
    return best > output.score + TIE, best < output.score - TIE
