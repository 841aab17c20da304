"""A study with its model, its test sets and the folder of what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

from uncurse.errors import UncurseError
from uncurse.models.load import load_model
from uncurse.models.loaded_model import LoadedModel, TranslationModel
from uncurse.scoring.decoding import Decoding, Sentence, Slots
from uncurse.scoring.needs import needs
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.stopping import RULES, StoppingRule
from uncurse.search.explain import standard_rules
from uncurse.study.methods import HORIZON, StudyMethod, study_methods
from uncurse.study.plan import Plan, SetPlan
from uncurse.study.reference_scores import ReferenceScores
from uncurse.study.test_set import SETS, TestSet, read_test_set
from uncurse.study.trace_store import Recording, TraceStore
from uncurse.translation.translator import Translator

BASELINE: Final = "phrase-based"


@final
@dataclass(frozen=True, eq=False)
class Study:
    """Everything that a study is made of; what it writes lies in one folder."""

    plan: Plan
    data: Path
    folder: Path
    loaded: LoadedModel

    @cached_property
    def translator(self) -> Translator:
        """The model as a translator."""
        return Translator(self.loaded.model, self.loaded.source, self.loaded.target, self.loaded.predictor)

    @cached_property
    def test_sets(self) -> dict[str, TestSet]:
        """The test sets by name."""
        return {
            name: read_test_set(name, self.plan, self.set_plan(name), self.data, self.translator) for name in SETS
        }

    def set_plan(self, name: str) -> SetPlan:
        """The files of a test set."""
        return self.plan.dev if name == "dev" else self.plan.test

    @cached_property
    def methods(self) -> tuple[StudyMethod, ...]:
        """The methods that are compared, in the order of the tables."""
        return study_methods(
            self.plan.scores,
            self.plan.tuning,
            length_ratio=self.length_ratio,
            knows_length=self.knows_length,
            attends=self.model.attends,
        )

    @cached_property
    def horizon_methods(self) -> tuple[StudyMethod, ...]:
        """Methods that aim at a length, with the stopping rule of the paper's own runs."""
        chosen = [method for method in self.methods if method.aims_at_length]
        return tuple(method.with_stop(HORIZON) for method in chosen) if self.knows_length else ()

    @cached_property
    def rules(self) -> dict[str, StoppingRule]:
        """The stopping rules that are compared, by their specs."""
        if not self.plan.stops:
            return {RULES.spec(rule): rule for rule in standard_rules(self.knows_length)}
        rules = {spec: RULES.parse(spec) for spec in self.plan.stops}
        for spec, rule in rules.items():
            if needs(rule).expected_length and not self.knows_length:
                raise UncurseError(f"stopping rule {spec!r} cannot be judged: the model has no length predictor")
        return rules

    def systems(self) -> dict[str, dict[str, Path]]:
        """Files of translations that other systems have made, by name and set; the baseline's if it was run."""
        found = {}
        baseline = {name: self.folder / BASELINE / f"{name}.txt" for name in SETS}
        if all(path.exists() for path in baseline.values()):
            found[BASELINE] = baseline
        for each in self.plan.systems:
            found[each.name] = {"dev": self.data / each.dev, "test": self.data / each.test}
        return found

    @cached_property
    def length_ratio(self) -> float:
        """Target tokens per source token: of the plan, else of the model's training text, else of dev."""
        known = self.plan.length_ratio if self.plan.length_ratio is not None else self.loaded.length_ratio
        if known is not None:
            return known
        dev = self.test_sets["dev"]
        return float(dev.reference_lengths.mean(axis=1).sum() / dev.source_lengths.sum())

    @property
    def knows_length(self) -> bool:
        """Whether the model has a length predictor."""
        return self.loaded.predictor is not None

    @cached_property
    def traces(self) -> TraceStore:
        """The recorded searches."""
        return TraceStore(self.folder / "traces")

    @cached_property
    def reference_scores(self) -> ReferenceScores:
        """What else the model was asked."""
        return ReferenceScores(
            self.folder / "reference-scores",
            self.model.signature,
            exact=self.plan.exact,
            exact_budget=self.plan.exact_budget,
            exact_scores=self.exact_scores,
        )

    @cached_property
    def exact_scores(self) -> tuple[Rescorer, ...]:
        """The scores whose true optimum is looked for: those that need no tuning and no rewards."""
        scores = dict.fromkeys(method.rescorer(()) for method in self.methods if not method.tuned)
        return tuple(score for score in scores if not needs(score).rewards)

    @property
    def model(self) -> TranslationModel[Any]:
        """The step model."""
        return self.loaded.model

    def decoding(self, beam_size: int, score: Rescorer, stop: StoppingRule | str) -> Decoding:
        """A score and a stopping rule at a beam size of this study."""
        return Decoding(beam_size, score, stop, slots=self.plan.slots)

    def recording(self, name: str, beam_size: int) -> Recording:
        """The search of a test set at a beam size."""
        test_set = self.test_sets[name]
        found = self._recording(test_set.recorded, beam_size)
        return replace(found, retry_max_lengths=test_set.retry_max_lengths)

    @property
    def long_recording(self) -> Recording:
        """The search of dev that has room for every maximum length."""
        return self._recording(self.test_sets["dev"].longest, self.comparison_beam_size)

    @property
    def compares_max_lengths(self) -> bool:
        """Whether the plan names maximum lengths beside the one of all judgements."""
        return not {self.plan.max_length}.issuperset(self.plan.max_lengths)

    @property
    def comparison_beam_size(self) -> int:
        """The beam size at which maximum lengths are compared: the middle one of the small."""
        return sorted(self.plan.small)[len(self.plan.small) // 2]

    def recordings(self) -> Iterator[tuple[str, Recording]]:
        """Every search of the study with the name of its test set."""
        for name in SETS:
            for beam_size in self.plan.all_beam_sizes:
                yield name, self.recording(name, beam_size)
        if self.compares_max_lengths:
            yield "dev, longest max_length", self.long_recording

    def check_complete(self) -> None:
        """Raise an `UncurseError` if a search is missing."""
        left = sum(len(self.traces.missing(recording)) for _, recording in self.recordings())
        left += self.reference_scores.missing(tuple(self.test_sets.values()))
        if left:
            raise UncurseError(f"{left} parts of this study have not been decoded: use uncurse study run first")

    def _recording(self, sentences: tuple[Sentence, ...], beam_size: int) -> Recording:
        slots = Slots.parse(self.plan.slots)
        return Recording(
            model=self.model.signature,
            sentences=sentences,
            beam_size=beam_size,
            slots=slots,
            threads=self.plan.threads,
        )


def load_study(plan: Plan, data: Path, folder: Path) -> Study:
    """A study with the model of its plan."""
    return Study(plan, data, folder, load_model(plan.model_options))
