"""The eight formulas, worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import SCORE_NAMES, rescorers

from uncurse import SCORES, Source, UncurseError
from uncurse.arrays import Floats
from uncurse.scoring.needs import needs
from uncurse.scoring.rescorer import Paths, Rescorer, Rewards
from uncurse.scoring.scores import LengthNorm, WordReward
from uncurse.scoring.stopping import Optimal
from uncurse.testing import check_rescorer

SOURCE = Source.repeated(1, length=4, max_length=20, prefix=0, expected_length=5.5)
REWARDS = Rewards(np.cumsum([[0.0, 2.0, 1.0, 0.5, 0.25, 0.125, 4.0]], axis=1), np.array([6]))
SHORT = Paths(np.array([-3.0]), np.array([3]), REWARDS, np.array([-0.5]))  # n = 3 < L
LONG = Paths(np.array([-4.5]), np.array([6]), REWARDS, np.array([-0.25]))  # n = 6 > L


@pytest.mark.parametrize(
    ("spec", "short", "long"),
    [
        ("log-prob", -3.0, -4.5),
        ("length-norm", -1.0, -0.75),
        ("length-norm:alpha=0.5", -3.0 / math.sqrt(3.0), -4.5 / math.sqrt(6.0)),
        ("gnmt:alpha=1", -3.0 / (8 / 6), -4.5 / (11 / 6)),
        ("gnmt:alpha=0,beta=2", -4.0, -5.0),
        ("word-reward:reward=1.5", 1.5, 4.5),
        ("word-reward:reward=-1", -6.0, -10.5),
        ("bounded-word-reward:reward=1.5", 1.5, 3.75),
        ("bounded-word-reward:reward=1.5,ratio=0.5", 0.0, -1.5),
        ("adaptive-reward", 0.5, -4.5 + 3.875),
        ("bp-norm", 1 - 5.5 / 3 - 1.0, -0.75),
        (
            "f1-norm",
            1 - (8.5 + 2 * 3.0) / (8.5 - math.sqrt(11.75)),
            1 - (11.5 + 2 * 4.5) / (11.5 - math.sqrt(5.75)),
        ),
    ],
)
def test_a_score_follows_its_formula(spec: str, short: float, long: float) -> None:
    rescorer = SCORES.parse(spec)
    assert rescorer.score(SOURCE, SHORT) == pytest.approx([short], rel=1e-15)
    assert rescorer.score(SOURCE, LONG) == pytest.approx([long], rel=1e-15)


@pytest.mark.parametrize(("ratio", "expected"), [(2.0, 8.0), (0.5, 2.0)])
def test_a_fixed_ratio_is_target_over_source(ratio: float, expected: float) -> None:
    assert SOURCE.fixed_ratio(ratio)[0] == expected


@pytest.mark.parametrize(("prefix", "expected"), [(0, 5.5), (2, 3.5), (5, 1.0), (9, 1.0)])
def test_a_forced_prefix_is_taken_off_the_predicted_length(prefix: int, expected: float) -> None:
    source = Source.repeated(1, 4, 20, prefix, 5.5)
    assert source.expected_length[0] == expected
    assert source.fixed_ratio(5.5 / 4)[0] == expected


@pytest.mark.parametrize(
    ("spec", "reads"),
    [
        ("log-prob", []),
        ("length-norm", []),
        ("gnmt", []),
        ("gnmt:beta=0.1", ["coverage"]),
        ("word-reward:reward=1", []),
        ("bounded-word-reward:reward=1", ["expected_length"]),
        ("bounded-word-reward:reward=1,ratio=2", []),
        ("adaptive-reward", ["rewards", "expected_length"]),
        ("bp-norm", ["expected_length"]),
        ("f1-norm", ["expected_length"]),
    ],
)
def test_what_a_score_reads_is_found_out(spec: str, reads: list[str]) -> None:
    found = needs(SCORES.parse(spec))
    assert [name for name in found._fields if getattr(found, name)] == reads


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("length-norm:alpha=-1", r"alpha = -1\.0 is not allowed: alpha must be a number in \[0, 10\]"),
        ("length-norm:alpha=nan", "alpha = nan is not allowed"),
        ("gnmt:beta=-0.1", r"beta = -0\.1 is not allowed: beta must be a number in \[0, 1000\]"),
        ("word-reward:reward=inf", r"reward = inf is not allowed: reward must be a number in \[-1000, 1000\]"),
        (
            "bounded-word-reward:reward=1,ratio=0",
            r"ratio = 0\.0 is not allowed: ratio must be a number in \(0, 1000\]",
        ),
        ("bp-nrom", "unknown score 'bp-nrom'; did you mean 'bp-norm'?"),
        ("zzz", "unknown score 'zzz'; valid: log-prob, length-norm"),
        ("word-reward", "needs a value: word-reward:reward="),
        ("gnmt:alhpa=1", "no parameter 'alhpa'; did you mean 'alpha'?"),
        ("bp-norm:alpha=1", "no parameter 'alpha'; it takes none"),
        ("gnmt:alpha=1,alpha=2", "gives 'alpha' twice"),
        ("gnmt:alpha", "write name=value after the colon"),
        ("gnmt:alpha=x", "alpha = 'x' is not a number"),
    ],
)
def test_a_bad_spec_is_refused_with_what_would_be_right(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        SCORES.parse(spec)


def test_what_a_score_reads_at_some_lengths_alone_is_found_out() -> None:
    class Late(Rescorer):
        def score(self, source: Source, paths: Paths) -> Floats:
            return paths.log_prob + (paths.coverage if (paths.length > 100).any() else 0.0)

    assert needs(Late()).coverage


def test_a_parameter_of_another_kind_computes_as_a_float_does() -> None:
    single = LengthNorm(np.float32(0.2))  # type: ignore[arg-type]
    double = LengthNorm(float(np.float32(0.2)))
    assert type(single.alpha) is float
    lengths = np.arange(1, 9)
    paths = Paths(np.full(8, -3.0), lengths)
    assert (single.score(SOURCE, paths) == double.score(SOURCE, paths)).all()


def test_a_parameter_is_checked_where_it_is_given() -> None:
    for wrong in (math.nan, -0.5, True, "1", 10**400):
        with pytest.raises(ValueError, match="alpha"):
            LengthNorm(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reward = None is not allowed"):
        WordReward(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spec", ["gnmt:alpha=0.5,beta=0.25", "bounded-word-reward:reward=1.0,ratio=2.0", "bp-norm"]
)
def test_a_spec_names_the_method_it_makes(spec: str) -> None:
    assert SCORES.spec(SCORES.parse(spec)) == spec


def test_a_score_at_its_defaults_is_named_without_them() -> None:
    assert SCORES.spec(SCORES.parse("length-norm:alpha=1")) == "length-norm"


@pytest.mark.parametrize("name", SCORE_NAMES)
@given(data=st.data())
def test_every_registered_score_keeps_the_contract(name: str, data: st.DataObject) -> None:
    check_rescorer(data.draw(rescorers(name)), trials=3)


def test_a_score_cannot_have_a_bound_of_its_own() -> None:
    with pytest.raises(TypeError, match="must not define bound"):
        type("Sly", (Rescorer,), {"bound": lambda self, source, prefixes: source})
    bounded = type("Bounded", (), {"bound": lambda self, source, prefixes: source})
    with pytest.raises(TypeError, match="must not define bound"):
        type("Sly", (bounded, Rescorer), {})


@final
@dataclass(frozen=True)
class Inverted(Rescorer):
    """A score with the wrong sign: every certificate would be false."""

    def score(self, source: Source, paths: Paths) -> Floats:
        return -paths.log_prob / paths.length


@final
@dataclass(frozen=True)
class Constant(Rescorer):
    """A score that is one number."""

    def score(self, source: Source, paths: Paths) -> Floats:
        return 0.0  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("score", "complaint"),
    [
        (Inverted(), "falls when the log-probability rises"),
        (Constant(), "must return a float64 for each hypothesis"),
    ],
)
def test_a_score_that_could_prove_nothing_is_refused_before_the_search(score: Rescorer, complaint: str) -> None:
    with pytest.raises(UncurseError, match=complaint):
        needs(score)


def test_a_rule_is_not_registered_as_a_score() -> None:
    with pytest.raises(UncurseError, match="must be derived from Rescorer"):
        SCORES.register("optimal", formula="", source="a test")(Optimal)  # type: ignore[arg-type]
