"""The methods of a study follow from the registry: a score of one's own is a row, a line and a colour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.tiny_study import PLAN, a_study, evaluated, without_predictor, write_sets

from uncurse import SCORES, Paths, Rescorer, Source, UncurseError, parameter
from uncurse.arrays import Floats
from uncurse.study.methods import HORIZON, NORM, RAW, Grids, StudyMethod, study_methods
from uncurse.study.report.html_data import page_data
from uncurse.study.report.looks import look_of
from uncurse.study.report.write import all_tables, write_report


@dataclass(frozen=True)
class GaussianLength(Rescorer):
    sigma: float = parameter("σ", default=2.0, low=0.0, low_open=True, grid=(1.0, 4.0))

    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob - ((paths.length - source.expected_length) / self.sigma) ** 2 / 2


@dataclass(frozen=True)
class NeedsANumber(Rescorer):
    number: float = parameter("a number that nobody else can know")

    def score(self, source: Source, paths: Paths) -> Floats:
        return paths.log_prob + self.number


@pytest.fixture
def plugin() -> Iterator[None]:
    SCORES.register("gaussian-length", formula="S − (n − L)² / 2σ²", source="a test")(GaussianLength)
    SCORES.register("needs-a-number", formula="S + x", source="a test")(NeedsANumber)
    yield
    SCORES.unregister("gaussian-length")
    SCORES.unregister("needs-a-number")


def methods_of(
    scores: tuple[str, ...] = (), grids: Grids | None = None, knows_length: bool = True, attends: bool = True
) -> Mapping[str, StudyMethod]:
    found = study_methods(scores, grids or {}, length_ratio=1.2, knows_length=knows_length, attends=attends)
    assert len({each.name for each in found}) == len({each.label for each in found}) == len(found)
    return {each.name: each for each in found}


@pytest.mark.parametrize("name", SCORES)
def test_every_registered_score_is_a_method_with_its_usual_stopping_rule(name: str) -> None:
    rows = [method for method in methods_of().values() if method.score == name]
    usual = [method for method in rows if method.usual]
    assert usual
    assert {method.stop for method in usual} == {(SCORES[name].stops or ("optimal",))[0]}
    for method in rows:
        assert method.label.startswith(SCORES[name].label)
        assert all(SCORES.name(method.rescorer(values)) == name for values in method.values)


def test_a_score_that_can_take_a_fixed_ratio_is_judged_both_ways() -> None:
    rows = [method for method in methods_of().values() if method.score == "bounded-word-reward"]
    assert [method.reads_length for method in rows] == [False, True]
    assert all(method.aims_at_length for method in rows)
    assert dict(rows[0].given) == {"ratio": 1.2}


def test_methods_differ_in_colour_and_marker_and_keep_them_whatever_the_plan(plugin: None) -> None:
    every = methods_of()
    looks = [look_of(method) for method in every.values()]
    assert len({(look.colour, look.marker) for look in looks}) == len(looks)
    fewer = methods_of(("bp-norm", "gaussian-length"))
    assert all(look_of(method) == look_of(every[name]) for name, method in fewer.items())


def test_many_specs_of_one_score_have_looks_of_their_own() -> None:
    found = methods_of(tuple(f"word-reward:reward={value / 10}" for value in range(20)))
    looks = [look_of(method) for method in found.values()]
    assert len({(look.colour, look.marker) for look in looks}) == len(looks)


def test_the_raw_score_and_length_norm_are_always_judged() -> None:
    assert list(methods_of(("bp-norm",))) == [RAW, NORM, f"{NORM}-optimal", "bp-norm"]


def test_what_a_spec_gives_is_not_tuned_and_the_rest_is() -> None:
    found = methods_of(("gnmt:alpha=0.3", "word-reward:reward=0.5", "word-reward"), {"gnmt": {"beta": (0.0, 0.9)}})
    gnmt, fixed, tuned = list(found.values())[-3:]
    assert (gnmt.tuned, gnmt.values) == (("beta",), ((0.0,), (0.9,)))
    assert gnmt.rescorer((0.9,)) == SCORES.parse("gnmt:alpha=0.3,beta=0.9")
    assert (fixed.label, fixed.tuned) == ("word reward, reward = 0.5", ())
    assert tuned.tuned == ("reward",)


def test_a_parameter_without_a_grid_can_be_given_one() -> None:
    found = methods_of((), {"length-norm": {"alpha": (0.8, 1.0)}})
    assert found[NORM].values == ((0.8,), (1.0,))


def test_values_that_need_attention_are_not_tried_without_it() -> None:
    assert {beta for _, beta in methods_of(attends=False)["gnmt"].values} == {0.0}
    with pytest.raises(UncurseError, match="cannot be judged: the model gives no attention"):
        methods_of(("gnmt:beta=0.5",), attends=False)


def test_a_score_that_is_named_and_cannot_be_judged_is_an_error(plugin: None) -> None:
    assert "bp-norm" not in methods_of(knows_length=False)
    with pytest.raises(UncurseError, match="score 'bp-norm' cannot be judged: the model has no length predictor"):
        methods_of(("bp-norm",), knows_length=False)
    assert "needs-a-number" not in methods_of()
    with pytest.raises(UncurseError, match="needs a value: needs-a-number:number=…"):
        methods_of(("needs-a-number",))
    assert "needs-a-number:number=1" in methods_of(("needs-a-number:number=1",))


def test_a_stopping_rule_that_is_named_and_cannot_be_judged_is_an_error(tmp_path: Path) -> None:
    study = without_predictor(a_study(tmp_path, tmp_path, replace(PLAN, stops=(HORIZON,))))
    with pytest.raises(UncurseError, match="'predicted-horizon' cannot be judged"):
        _ = study.rules


def test_a_score_of_ones_own_is_in_every_table_and_figure_and_on_the_page(plugin: None, tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(
        PLAN,
        beam_sizes=(2,),
        small=(2,),
        large=(3,),
        scores=("gaussian-length", "gaussian-length:sigma=1"),
        tuning={},
    )
    found = evaluated(a_study(tmp_path, tmp_path / "out", plan))
    labels = {"gaussian length", "gaussian length, sigma = 1"}
    assert labels < {method.label for method in found.methods}
    without = {"curse", "lengths", "eos-positions"}  # these are not about methods
    for table in all_tables(found):
        seen = {*table.columns, *(cell for row in table.rows for cell in row)}
        wanted = {"gaussian length"} if table.name == "tuning" else labels
        assert wanted <= seen or table.name in without, table.name
    drawn = write_report(found, tmp_path / "out", [])
    for path in drawn:
        if path.suffix == ".svg" and path.stem not in without:
            label = "gaussian length" if path.stem == "tuning" else "sigma = 1"
            assert label in path.read_text(encoding="utf-8"), path.name
    assert "small beams (2)" in (tmp_path / "out" / "figures" / "tuning.svg").read_text(encoding="utf-8")
    data = page_data(found)
    names = {"gaussian-length", "gaussian-length:sigma=1"}
    assert names <= set(data["curves"]["test"]) & set(data["deciles"]) & set(data["sentences"][0]["choices"])
    assert names <= {cell["method"] for cell in data["stop_cells"]}
    assert [curve["method"] for curve in data["tuning"]["small"]] == ["gaussian-length"]
