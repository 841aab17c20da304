"""Plans: everything that decides what a study decodes and judges, as a TOML file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, final

from uncurse.decoding import Slots, checked_count
from uncurse.length import FixedRatio, parse_limit
from uncurse.rescoring import SCORES
from uncurse.settings import read_settings
from uncurse.stopping import RULES
from uncurse.training.recipe import Corpus

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
class TuningPlan:
    """The values that are tried on dev."""

    rewards: tuple[float, ...] = tuple(round(0.1 * step, 1) for step in range(26))
    alphas: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    betas: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4, 0.6)
    perceptron_rate: float = 0.1  # η, per sentence and token; Murray and Chiang 2018
    perceptron_rounds: int = 20


@final
@dataclass(frozen=True)
class SystemPlan:
    """Translations that something else has made."""

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
    widths: tuple[int | str, ...]  # 5, "1-20" or "2-20/2"
    small: tuple[int, ...] = (14, 15, 16)  # their mean stands for small beams
    large: tuple[int, ...] = (39, 40, 41)
    baseline_width: int = 5  # of the raw score in the main table
    limit: str = "q0.8"  # R of everything but the table that compares limits
    record_limit: str | None = None  # R of the recorded searches, from which any shorter one can be judged
    again: str | None = None  # R of sentences for which nothing ends within theirs, as `translate` has 2x+10
    limits: tuple[str, ...] = ("predicted", "q0.5", "q0.8", "q0.9", "q0.95", "q0.99", "2x+10")
    scores: tuple[str, ...] = tuple(entry.name for entry in SCORES)
    stops: tuple[str, ...] = tuple(entry.name for entry in RULES)
    slots: str = "occupy"
    ratio: float | None = None  # gr; else the model's, else that of dev
    lowercase: bool = True  # BLEU
    dtype: str = "float32"
    threads: int = 1
    exact: int = 20  # so many of the shortest sentences are searched exactly
    exact_budget: int = 3000  # calls of the model for each of them
    tuning: TuningPlan = field(default_factory=TuningPlan)
    systems: tuple[SystemPlan, ...] = ()
    training: tuple[Corpus, ...] = ()  # of the phrase-based baseline

    def __post_init__(self) -> None:
        for name in self.scores:
            SCORES[name]
        for name in self.stops:
            RULES[name]
        for limit in self.all_limits:
            parse_limit(limit)
        if self.record_limit is not None and self.again is not None:
            raise ValueError("record_limit and again are not allowed together: what is recorded is what is judged")
        Slots.named(self.slots)
        if self.ratio is not None:
            FixedRatio(self.ratio)
        if self.exact < 0:
            raise ValueError(f"exact = {self.exact} is not allowed: it must be 0 or more")
        for name in ("threads", "exact_budget", "baseline_width"):
            checked_count(name, getattr(self, name))
        for width in self.all_widths:
            checked_count("widths", width)

    @cached_property
    def all_widths(self) -> tuple[int, ...]:
        """Every width that is decoded, rising; those of the main table are always among them."""
        found = {*self.small, *self.large, self.baseline_width}
        for each in self.widths:
            match = _RANGE.fullmatch(str(each))
            if match is None:
                raise ValueError(f"widths: {each!r} is not understood: write 5, '1-20' or '2-20/2'")
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            if not first <= last or step < 1:
                raise ValueError(f"widths: {each!r} holds no width")
            found.update(range(first, last + 1, step))
        return tuple(sorted(found))

    @property
    def all_limits(self) -> tuple[str, ...]:
        """Every limit that is asked for, that of the judgements first."""
        others = (limit for limit in (self.record_limit, self.again) if limit is not None)
        return tuple(dict.fromkeys((self.limit, *others, *self.limits)))

    @property
    def focus(self) -> int:
        """The width at which sentences are shown one by one: the middle one of the large."""
        return sorted(self.large)[len(self.large) // 2]

    def group(self, width: int) -> str:
        """Whose tuned values a width uses: those of the nearer group."""
        between = (max(self.small) + min(self.large)) / 2
        return "small" if width < between else "large"


def read_plan(path: Path) -> Plan:
    """Read a plan; a key that does not exist is refused with the nearest that does."""
    return read_settings(Plan, path)
