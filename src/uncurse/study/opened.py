"""A study with its model, its sentences and the folder of what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

from uncurse.decoding import Sentence, Slots
from uncurse.loading import open_model
from uncurse.models.opened import OpenModel
from uncurse.study.material import Material, prepare
from uncurse.study.plan import Plan, SetPlan
from uncurse.study.probes import Probes
from uncurse.study.store import Recording, Store
from uncurse.translator import Encoding, Translator

SETS: Final = ("dev", "test")
BASELINE: Final = "phrase-based"


@final
@dataclass(frozen=True, eq=False)
class Study:
    """Everything that a study is made of; what it writes lies in one folder."""

    plan: Plan
    data: Path
    folder: Path
    opened: OpenModel

    @cached_property
    def translator(self) -> Translator:
        """The model as a translator."""
        return Translator(self.opened.model, self.opened.source, self.opened.target, self.opened.predictor)

    @cached_property
    def materials(self) -> dict[str, Material]:
        """The test sets by name."""
        return {name: prepare(name, self.plan, self.set_plan(name), self.data, self.translator) for name in SETS}

    def set_plan(self, name: str) -> SetPlan:
        """The files of a test set."""
        return self.plan.dev if name == "dev" else self.plan.test

    def systems(self) -> dict[str, dict[str, Path]]:
        """Files of translations that something else has made, by name and set; the baseline's if it was run."""
        found = {}
        baseline = {name: self.folder / BASELINE / f"{name}.txt" for name in SETS}
        if all(path.exists() for path in baseline.values()):
            found[BASELINE] = baseline
        for each in self.plan.systems:
            found[each.name] = {"dev": self.data / each.dev, "test": self.data / each.test}
        return found

    @cached_property
    def ratio(self) -> float:
        """`gr`: of the plan, else of the model's training text, else of dev."""
        known = self.plan.ratio if self.plan.ratio is not None else self.opened.ratio
        if known is not None:
            return known
        dev = self.materials["dev"]
        return float(dev.reference_lengths.mean(axis=1).sum() / dev.source_lengths.sum())

    @cached_property
    def store(self) -> Store:
        """The recorded searches."""
        return Store(self.folder / "traces")

    @cached_property
    def probes(self) -> Probes:
        """What else the model was asked."""
        return Probes(self.folder / "probes", self.model.signature, self.plan)

    @property
    def model(self) -> Encoding[Any]:
        """The step model."""
        return self.opened.model

    def recording(self, name: str, width: int) -> Recording:
        """The search of a test set at a width."""
        material = self.materials[name]
        return replace(self._recording(material.recorded, width), again=material.again)

    @property
    def limits_recording(self) -> Recording:
        """The search of dev that has room for every limit."""
        return self._recording(self.materials["dev"].longest, self.limits_width)

    @property
    def compares_limits(self) -> bool:
        """Whether the plan names limits beside the one of all judgements."""
        return not {self.plan.limit}.issuperset(self.plan.limits)

    @property
    def limits_width(self) -> int:
        """The width at which limits are compared: the middle one of the small."""
        return sorted(self.plan.small)[len(self.plan.small) // 2]

    def recordings(self) -> Iterator[tuple[str, Recording]]:
        """Every search of the study with the name of its test set."""
        for name in SETS:
            for width in self.plan.all_widths:
                yield name, self.recording(name, width)
        if self.compares_limits:
            yield "dev, longest limit", self.limits_recording

    def check_complete(self) -> None:
        """Raise a `ValueError` if a search is missing."""
        left = sum(len(self.store.missing(recording)) for _, recording in self.recordings())
        left += self.probes.missing(tuple(self.materials.values()))
        if left:
            raise ValueError(f"{left} parts of this study have not been decoded: use uncurse study run first")

    def _recording(self, sentences: tuple[Sentence, ...], width: int) -> Recording:
        return Recording(self.model.signature, sentences, width, Slots(self.plan.slots), self.plan.threads)


def open_study(plan: Plan, data: Path, folder: Path) -> Study:
    """Load the model of a plan."""
    return Study(plan, data, folder, open_model(plan.model, dtype=plan.dtype))
