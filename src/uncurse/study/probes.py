"""Questions to the model beside the searches: what it thinks of the references, and what the true optimum is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

from uncurse.decoding import Sentence
from uncurse.exact import exact_search
from uncurse.files import write_whole
from uncurse.forced import Forced, force_decode
from uncurse.jsonfile import SEAL, read_json, sealed_json, unsealed
from uncurse.rescoring import SCORES, needs
from uncurse.study.material import Material
from uncurse.study.plan import Plan
from uncurse.study.store import SHARD
from uncurse.translator import Encoding

REMEDY: Final = "remove it and run the study again"
EXACT_SCORES: Final = ("log-prob", "length-norm", "bp-norm")  # adaptive rewards belong to a search


@final
@dataclass(frozen=True)
class ReferenceQuestion:
    """What the model thinks of the references of some lines: their log-probabilities and coverage."""

    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[tuple[int, ...], ...], ...]  # [references][lines]

    def __call__(self, model: Encoding[Any]) -> list[list[tuple[float | None, float | None]]]:
        """The answers, [lines][references]; nothing stands for -inf."""
        columns = [force_decode(model, self.sources, targets) for targets in self.targets]
        return [
            [(each.log_prob if math.isfinite(each.log_prob) else None, each.coverage) for each in row]
            for row in zip(*columns, strict=True)
        ]


@final
@dataclass(frozen=True)
class OptimumQuestion:
    """What the best of all translations of a sentence would score."""

    sentence: Sentence
    budget: int

    def __call__(self, model: Encoding[Any]) -> dict[str, tuple[float, float]]:
        """By score: the best that was found, and by how much it could still be beaten."""
        found = {}
        for name in EXACT_SCORES:
            if self.sentence.predicted is None and needs(SCORES.parse(name)).prediction:
                continue
            result = exact_search(model, self.sentence, SCORES.parse(name), budget=self.budget)
            if result.hypothesis is not None and result.gap < float("inf"):
                found[name] = (result.hypothesis.score, result.gap)
        return found


Question = ReferenceQuestion | OptimumQuestion


@final
class Probes:
    """The answers, kept in a folder; a question that was answered is not asked again."""

    def __init__(self, folder: Path, model: str, plan: Plan) -> None:
        self._folder = folder
        self._model = model
        self._plan = plan

    def open_work(self, materials: Sequence[Material]) -> Iterator[tuple[Path, Question]]:
        """The questions that have not been answered, and where the answers go."""
        for material in materials:
            for start in range(0, len(material.lines), SHARD):
                path = self._references(material, start)
                if not path.exists():
                    end = start + SHARD
                    sources = tuple(sentence.source for sentence in material.sentences[start:end])
                    targets = tuple(targets[start:end] for targets in material.targets)
                    yield path, ReferenceQuestion(sources, targets)
            for index in self._short(material):
                path = self._exact(material, index)
                if not path.exists():
                    yield path, OptimumQuestion(material.sentences[index], self._plan.exact_budget)

    def keep(self, path: Path, answer: object) -> None:
        """Write an answer."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, sealed_json({"answers": answer}))

    def ask(self, model: Encoding[Any], materials: Sequence[Material]) -> Iterator[str]:
        """Ask what has not been answered, and say what was written."""
        for path, question in self.open_work(materials):
            self.keep(path, question(model))
            yield path.name

    def missing(self, materials: Sequence[Material]) -> int:
        """How many questions are open."""
        return sum(1 for _ in self.open_work(materials))

    def references(self, material: Material) -> list[list[Forced]]:
        """The references of each line as the model sees them."""
        found: list[list[Forced]] = []
        for shard in range(0, len(material.lines), SHARD):
            path = self._references(material, shard)
            rows = _read(path)
            wanted = len(material.lines[shard : shard + SHARD]), len(material.targets)
            if not _is_table(rows, wanted) or not all(_is_pair(each) for row in rows for each in row):
                raise ValueError(f"{path} does not have an answer for each reference; {REMEDY}")
            for row in rows:
                found.append([])
                for number, (log_prob, coverage) in enumerate(row):
                    tokens = material.targets[number][len(found) - 1]
                    known = -math.inf if log_prob is None else log_prob
                    found[-1].append(Forced((*tokens, -1), (), known, coverage))
        return found

    def optima(self, material: Material) -> dict[int, Mapping[str, tuple[float, float]]]:
        """The best score of all sequences and by how much it could still be beaten, for some short sentences."""
        found: dict[int, Mapping[str, tuple[float, float]]] = {}
        for index in self._short(material):
            path = self._exact(material, index)
            scores = _read(path)
            if not isinstance(scores, dict) or not scores.keys() <= set(EXACT_SCORES):
                raise ValueError(f"{path} does not have the scores of a sentence; {REMEDY}")
            if not all(_is_pair(pair) and None not in pair for pair in scores.values()):
                raise ValueError(f"{path} has a score that is none; {REMEDY}")
            found[index] = {name: (float(best), float(gap)) for name, (best, gap) in scores.items()}
        return found

    def _short(self, material: Material) -> list[int]:
        """The shortest sentences, of which there are the fewest possible translations."""
        order = sorted(range(len(material.lines)), key=lambda index: (material.sentences[index].limit, index))
        return order[: self._plan.exact]

    def _references(self, material: Material, shard: int) -> Path:
        end = shard + SHARD
        key = (
            self._model,
            [sentence.source for sentence in material.sentences[shard:end]],
            [reference[shard:end] for reference in material.targets],
        )
        return self._folder / f"references-{_short_hash(key)}.json"

    def _exact(self, material: Material, index: int) -> Path:
        key = (self._model, material.sentences[index], self._plan.exact_budget, EXACT_SCORES)
        return self._folder / f"exact-{_short_hash(key)}.json"


def _short_hash(key: object) -> str:
    return sha256(repr(key).encode()).hexdigest()[:20]


def _read(path: Path) -> Any:  # noqa: ANN401  (JSON)
    """The answers of a file; once they were written without a seal around them."""
    try:
        content = read_json(path)
        return unsealed(content)["answers"] if isinstance(content, dict) and SEAL in content else content
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged; {REMEDY}: {error}") from error


def _is_table(rows: object, shape: tuple[int, int]) -> bool:
    return (
        isinstance(rows, list)
        and len(rows) == shape[0]
        and all(isinstance(row, list) and len(row) == shape[1] for row in rows)
    )


def _is_pair(pair: object) -> bool:
    """Whether something is two numbers, of which any can be nothing."""
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, float | int | None) for each in pair)
