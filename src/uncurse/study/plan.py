"""Plans: everything that decides what a study decodes and judges, as a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, final

from uncurse.errors import UncurseError
from uncurse.lengths.limits import parse_max_length
from uncurse.lengths.predictors import FixedRatio
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import Slots, checked_count
from uncurse.scoring.stopping import RULES
from uncurse.storage.toml_config import built, read_toml
from uncurse.study.methods import study_methods
from uncurse.text.parallel import ParallelFiles

GROUPS: Final = ("small", "large")  # beams whose means the main table shows
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # of a folder
_RANGE: Final = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(\d{1,5}))?")


@final
@dataclass(frozen=True)
class SetPlan:
    """Sentences with one or more translations by people."""

    source: str
    references: tuple[str, ...]
    lines: int | None = None  # a sample of so many, evenly spread

    def __post_init__(self) -> None:
        if self.lines is not None:
            checked_count("lines", self.lines)


@final
@dataclass(frozen=True)
class PerceptronPlan:
    """How the perceptron looks for a reward (Murray and Chiang 2018)."""

    rate: float = 0.1  # η, per sentence and token
    rounds: int = 20

    def __post_init__(self) -> None:
        checked_count("rounds", self.rounds)


@final
@dataclass(frozen=True)
class SystemPlan:
    """Translations that another system has made."""

    name: str
    dev: str
    test: str


@final
@dataclass(frozen=True)
class Plan:
    """A whole study."""

    title: str
    model: str  # a name, a folder or a Hugging Face id
    dev: SetPlan
    test: SetPlan
    beam_sizes: tuple[int | str, ...]  # 5, "1-20" or "2-20/2"
    small: tuple[int, ...] = (14, 15, 16)  # beam sizes whose mean stands for small beams
    large: tuple[int, ...] = (39, 40, 41)
    baseline_beam_size: int = 5  # of the raw score in the main table
    max_length: str = "q0.8"  # R of everything but the table that compares maximum lengths
    record_max_length: str | None = None  # R of the recorded searches, from which any shorter one can be judged
    retry_max_length: str | None = None  # R of sentences for which nothing ends within theirs
    max_lengths: tuple[str, ...] = ("predicted", "q0.5", "q0.8", "q0.9", "q0.95", "q0.99", "2x+10")  # compared
    scores: tuple[str, ...] = ()  # names or specs; none: every registered score
    stops: tuple[str, ...] = ()  # names or specs; none: every registered stopping rule
    tuning: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)  # by score and parameter
    perceptron: PerceptronPlan = field(default_factory=PerceptronPlan)
    slots: str = "occupy"
    prompt: str | None = None  # of a decoder-only model: the text around a line, with {text} where the line goes
    length_predictor: str | None = None  # a file that was fitted to the model; else the model's own
    length_ratio: float | None = None  # target tokens per source token; else the model's, else that of dev
    lowercase: bool = True  # BLEU
    dtype: str = "float32"
    vocabulary_selection: bool = False  # compute only the output tokens that a selector expects for a sentence
    vocabulary_selector: str | None = None  # a file that was fitted to the model; else the model's own
    threads: int = 1
    exact: int = 20  # so many of the shortest sentences are searched exactly
    exact_budget: int = 3000  # calls of the model for each of them
    systems: tuple[SystemPlan, ...] = ()
    training: tuple[ParallelFiles, ...] = ()  # of the phrase-based baseline

    def __post_init__(self) -> None:
        study_methods(self.scores, self.tuning, length_ratio=1.0, knows_length=True, attends=True)
        for spec in self.stops:
            RULES.parse(spec)
        for max_length in self.all_max_lengths:
            parse_max_length(max_length)
        if self.record_max_length is not None and self.retry_max_length is not None:
            raise UncurseError(
                "record_max_length and retry_max_length are not allowed together: with a second search, what is"
                " recorded is what is judged"
            )
        Slots.parse(self.slots)
        if self.length_ratio is not None:
            FixedRatio(self.length_ratio)
        checked_count("exact", self.exact, low=0)
        for name in ("threads", "exact_budget", "baseline_beam_size"):
            checked_count(name, getattr(self, name))
        for beam_size in self.all_beam_sizes:
            checked_count("beam_sizes", beam_size)

    @property
    def model_options(self) -> ModelOptions:
        """Which model is loaded, and how it runs."""
        return ModelOptions(
            model=self.model,
            dtype=self.dtype,
            prompt=self.prompt,
            vocabulary_selection=self.vocabulary_selection,
            vocabulary_selector=self.vocabulary_selector,
            length_predictor=self.length_predictor,
        )

    @cached_property
    def all_beam_sizes(self) -> tuple[int, ...]:
        """Every beam size that is decoded, rising; those of the main table are always among them."""
        found = {*self.small, *self.large, self.baseline_beam_size}
        for each in self.beam_sizes:
            match = _RANGE.fullmatch(str(each))
            if match is None:
                raise UncurseError(f"beam_sizes = {each!r} is not allowed: write 5, '1-20' or '2-20/2'")
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            if not first <= last or step < 1:
                raise UncurseError(f"beam_sizes = {each!r} is not allowed: there is nothing in this range")
            found.update(range(first, last + 1, step))
        return tuple(sorted(found))

    @property
    def all_max_lengths(self) -> tuple[str, ...]:
        """Every maximum length that is asked for, that of the judgements first."""
        others = (each for each in (self.record_max_length, self.retry_max_length) if each is not None)
        return tuple(dict.fromkeys((self.max_length, *others, *self.max_lengths)))

    @property
    def display_beam_size(self) -> int:
        """The beam size at which sentences are shown one by one: the middle one of the large."""
        return sorted(self.large)[len(self.large) // 2]

    def beam_sizes_of(self, group: str) -> tuple[int, ...]:
        """The beam sizes of a group."""
        return self.small if group == "small" else self.large

    def group_of(self, beam_size: int) -> str:
        """Whose tuned values a beam size uses: those of the nearer group."""
        between = (max(self.small) + min(self.large)) / 2
        return "small" if beam_size < between else "large"


def read_plans(path: Path) -> dict[str, Plan]:
    """Read the plans of a file, by name; a key that does not exist is refused with the nearest that does.

    A file with tables `[texts.NAME]` is a plan for each of them: any key there takes the place of the same key of
    the file. A file without is one plan, whose name is empty.
    """
    table = read_toml(path)
    texts = table.pop("texts", None)
    try:
        if texts is None:
            return {"": built(Plan, table, "")}
        if not isinstance(texts, dict) or not texts:
            raise UncurseError("texts must be a table of tables")
        return {name: _plan_of_text(table, name, text) for name, text in texts.items()}
    except UncurseError as error:
        raise UncurseError(f"{path}: {error}") from error


def _plan_of_text(table: Mapping[str, object], name: str, text: object) -> Plan:
    if not _NAME.fullmatch(name):
        raise UncurseError(f"texts.{name!r} is not allowed: a name has letters, digits, - and _")
    if not isinstance(text, dict):
        raise UncurseError(f"texts.{name} must be a table")
    title = {"title": f"{table['title']}: {name}"} if "title" in table else {}
    try:
        return built(Plan, {**table, **title, **text}, "")
    except UncurseError as error:
        raise UncurseError(f"texts.{name}: {error}") from error
