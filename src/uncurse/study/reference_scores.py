"""What a study asks of its model besides the searches: scores of the references, and the true optimum."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import TranslationModel
from uncurse.scoring.decoding import Sentence
from uncurse.scoring.registry import source_digest
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.scores import SCORES
from uncurse.search.exact import exact_search
from uncurse.search.forced_decoding import ScoredTarget, force_decode
from uncurse.storage.atomic import atomic_write
from uncurse.storage.checksums import dump_checksummed, load_checksummed
from uncurse.storage.strict_json import read_json
from uncurse.study.test_set import TestSet
from uncurse.study.trace_store import SHARD_SIZE, seconds_of

REMEDY: Final = "remove it and run the study again"


@final
@dataclass(frozen=True)
class Optimum:
    """The best score that was found among all sequences, and by how much it could still be beaten."""

    score: float
    gap: float


@final
@dataclass(frozen=True)
class ScoreReferences:
    """A job: the log-probability and the coverage of the references of some lines."""

    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[tuple[int, ...], ...], ...]  # [references][lines]

    def __call__(self, model: TranslationModel[Any]) -> dict[str, Any]:
        """The answers, [lines][references], and the seconds that they took; null stands for -inf."""
        start = time.perf_counter()
        columns = [force_decode(model, self.sources, targets) for targets in self.targets]
        answers = [
            [(each.log_prob if math.isfinite(each.log_prob) else None, each.coverage) for each in row]
            for row in zip(*columns, strict=True)
        ]
        return {"answers": answers, "seconds": time.perf_counter() - start}


@final
@dataclass(frozen=True)
class FindOptimum:
    """A job: the best score that any translation of a sentence has."""

    sentence: Sentence
    score: Rescorer
    budget: int

    def __call__(self, model: TranslationModel[Any]) -> dict[str, Any]:
        """The best score and by how much it could be beaten, null if that is unknown; and the seconds."""
        start = time.perf_counter()
        found = exact_search(model, self.sentence, self.score, budget=self.budget)
        known = found.hypothesis is not None and math.isfinite(found.gap)
        answers = [found.hypothesis.score, found.gap] if found.hypothesis and known else None
        return {"answers": answers, "seconds": time.perf_counter() - start}


@final
class ReferenceScores:
    """The answers, kept in a folder; a question that was answered is not asked again."""

    def __init__(
        self, folder: Path, model: str, *, exact: int, exact_budget: int, exact_scores: Sequence[Rescorer]
    ) -> None:
        self._folder = folder
        self._model = model  # signature
        self._exact = exact
        self._budget = exact_budget
        self._scores = {SCORES.spec(score): score for score in exact_scores}

    @property
    def exact_scores(self) -> Mapping[str, Rescorer]:
        """The scores whose optimum is looked for, by their specs."""
        return self._scores

    def jobs(self, test_sets: Sequence[TestSet]) -> Iterator[tuple[Path, ScoreReferences | FindOptimum]]:
        """What has not been answered: where the answer goes, and the job."""
        for path, job in self._all_jobs(test_sets).items():
            if not path.exists():
                yield path, job

    def save(self, path: Path, answer: Mapping[str, Any]) -> None:
        """Write an answer."""
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, dump_checksummed(answer))

    def ask(self, model: TranslationModel[Any], test_sets: Sequence[TestSet]) -> Iterator[str]:
        """Ask what has not been answered; give the name of each file when it is written."""
        for path, job in self.jobs(test_sets):
            self.save(path, job(model))
            yield path.name

    def missing(self, test_sets: Sequence[TestSet]) -> int:
        """How many questions are open."""
        return sum(1 for _ in self.jobs(test_sets))

    def seconds(self, test_sets: Sequence[TestSet]) -> float:
        """How long the answers took."""
        return sum(seconds_of(path) for path in self._all_jobs(test_sets))

    def references(self, test_set: TestSet) -> list[list[ScoredTarget]]:
        """The references of each line as the model sees them."""
        found: list[list[ScoredTarget]] = []
        for start in range(0, len(test_set.lines), SHARD_SIZE):
            path = self._references_path(test_set, start)
            answers = _read(path)
            shape = min(SHARD_SIZE, len(test_set.lines) - start), len(test_set.targets)
            if not _is_table(answers, shape) or not all(_is_pair(pair) for row in answers for pair in row):
                raise UncurseError(f"{path} does not have two numbers for each reference; {REMEDY}")
            for index, row in enumerate(answers, start):
                tokens = [targets[index] for targets in test_set.targets]
                found.append([_scored(each, *pair) for each, pair in zip(tokens, row, strict=True)])
        return found

    def optima(self, test_set: TestSet) -> dict[int, dict[str, Optimum]]:
        """By sentence and score: the best of all sequences, for some short sentences."""
        found: dict[int, dict[str, Optimum]] = {}
        for index in self._shortest(test_set):
            found[index] = {}
            for spec, score in self._scores.items():
                path = self._exact_path(test_set.sentences[index], score)
                answer = _read(path)
                if answer is None:
                    continue
                if not _is_pair(answer) or None in answer:
                    raise UncurseError(f"{path} does not have a score and a gap; {REMEDY}")
                found[index][spec] = Optimum(*map(float, answer))
        return found

    def _all_jobs(self, test_sets: Sequence[TestSet]) -> dict[Path, ScoreReferences | FindOptimum]:
        """By where the answer goes: a sentence may occur more than once."""
        jobs: dict[Path, ScoreReferences | FindOptimum] = {}
        for test_set in test_sets:
            for start in range(0, len(test_set.lines), SHARD_SIZE):
                part = slice(start, start + SHARD_SIZE)
                sources = tuple(sentence.source for sentence in test_set.sentences[part])
                targets = tuple(targets[part] for targets in test_set.targets)
                jobs[self._references_path(test_set, start)] = ScoreReferences(sources, targets)
            for index in self._shortest(test_set):
                for score in self._scores.values():
                    sentence = test_set.sentences[index]
                    jobs[self._exact_path(sentence, score)] = FindOptimum(sentence, score, self._budget)
        return jobs

    def _shortest(self, test_set: TestSet) -> list[int]:
        """The sentences that have the fewest possible translations."""
        order = sorted(range(len(test_set.lines)), key=lambda index: (test_set.sentences[index].max_length, index))
        return order[: self._exact]

    def _references_path(self, test_set: TestSet, start: int) -> Path:
        part = slice(start, start + SHARD_SIZE)
        sources = [sentence.source for sentence in test_set.sentences[part]]
        key = (self._model, sources, [reference[part] for reference in test_set.targets])
        return self._folder / f"references-{_digest(key)}.json"

    def _exact_path(self, sentence: Sentence, score: Rescorer) -> Path:
        key = (self._model, sentence, self._budget, SCORES.spec(score), source_digest(score))
        return self._folder / f"exact-{_digest(key)}.json"


def _digest(key: object) -> str:
    return sha256(repr(key).encode()).hexdigest()[:20]


def _scored(tokens: tuple[int, ...], log_prob: float | None, coverage: float | None) -> ScoredTarget:
    """A reference; what a study reads of its tokens is how many there are."""
    return ScoredTarget((*tokens, -1), (), -math.inf if log_prob is None else log_prob, coverage)


def _read(path: Path) -> Any:  # noqa: ANN401  (JSON)
    try:
        return load_checksummed(read_json(path))["answers"]
    except (UncurseError, KeyError) as error:
        raise UncurseError(f"{path} is damaged; {REMEDY}: {error}") from error


def _is_table(rows: object, shape: tuple[int, int]) -> bool:
    return (
        isinstance(rows, list)
        and len(rows) == shape[0]
        and all(isinstance(row, list) and len(row) == shape[1] for row in rows)
    )


def _is_pair(pair: object) -> bool:
    """Whether something is two numbers, of which any can be null."""
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, float | int | None) for each in pair)
