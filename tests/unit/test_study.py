"""A study of a model of random numbers: everything in it follows from its traces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.tiny_study import (
    PLAN,
    a_study,
    check_tuning_by_judging,
    evaluated,
    shared_findings,
    without_predictor,
    write_sets,
)

from uncurse import Certificate, Decoding, UncurseError, beam_search
from uncurse.evaluation.bleu import bleu_of, bleu_statistics
from uncurse.search.forced_decoding import force_decode
from uncurse.study.evaluate import evaluate
from uncurse.study.findings import Findings
from uncurse.study.methods import RAW
from uncurse.study.plan import GROUPS, SystemPlan, read_plans
from uncurse.study.report.extra_tables import tuning_table
from uncurse.study.report.headline import headline
from uncurse.study.report.write import all_tables
from uncurse.study.test_set import SETS
from uncurse.study.trace_store import TraceStore


@pytest.fixture(scope="module")
def found() -> Findings:
    return shared_findings()


def test_what_is_judged_is_what_a_live_search_returns(found: Findings) -> None:
    study, test_set = found.study, found.study.test_sets["test"]
    for size in study.plan.all_beam_sizes:
        for method in found.methods:
            score = found.score(method, study.plan.group_of(size))
            live = beam_search(study.model, test_set.sentences, Decoding(size, score, method.stop))
            outputs = found.at["test"][size].outputs[method.name]
            assert outputs.texts == tuple(study.translator.decode(each.hypotheses[0].tokens) for each in live)
            assert outputs.steps.tolist() == [each.steps for each in live]
            assert outputs.model_rows.tolist() == [each.model_rows for each in live]
            assert outputs.certificates == tuple(each.certificate for each in live)


def test_a_study_of_small_beams_has_no_third_eos(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, beam_sizes=(1,), small=(1,), large=(2,))
    narrow = evaluated(a_study(tmp_path, tmp_path / "out", plan))
    assert narrow.eos_positions["test"].beam_sizes == ()
    assert "eos-positions" not in {table.name for table in all_tables(narrow)}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"retry_max_length": "2x+10"}, "record_max_length and retry_max_length are not allowed together"),
        ({"slots": "full"}, "slots = 'full' is not allowed"),
    ],
)
def test_plans_that_contradict_themselves_are_refused(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(UncurseError, match=complaint):
        replace(PLAN, **changes)  # type: ignore[arg-type]


def test_tuning_gives_the_bleu_that_judging_gives(found: Findings) -> None:
    check_tuning_by_judging(found)


def test_a_method_is_tuned_with_the_stopping_rule_it_is_judged_with(found: Findings) -> None:
    for group in GROUPS:
        for method, curve in found.tuning[group].curves.items():
            statistics = found.statistics("dev", method, found.study.plan.beam_sizes_of(group))
            assert np.isclose(max(curve.bleu), np.mean([bleu_of(each.sum(axis=0)) for each in statistics]))


def test_oracle_tuning_gives_the_bleu_on_test_and_what_would_have_been_best(
    found: Findings,
) -> None:
    for group in GROUPS:
        for method, curve in found.tuning[group].curves.items():
            oracle = found.oracle_tuning[group][method]
            statistics = found.statistics("test", method, found.study.plan.beam_sizes_of(group))
            bleu = np.mean([bleu_of(each.sum(axis=0)) for each in statistics])
            assert np.isclose(oracle.at(curve.best), bleu)
            assert oracle.values == curve.values
            row = next(row for row in tuning_table(found).rows if row[:2] == (found.label(method), group))
            assert row[4] == f"{bleu:.2f}"
            named = zip(oracle.parameters, oracle.best, strict=True)
            assert row[-2] == ", ".join(f"{name} = {value:g}" for name, value in named)
            assert row[-1] == f"{max(oracle.bleu):.2f}"


def test_nothing_that_is_tuned_sees_the_test_set(found: Findings, tmp_path: Path) -> None:
    write_sets(tmp_path)
    for suffix in ("0", "1"):
        (tmp_path / f"test.{suffix}").write_text("f f f f f f f f\n" * 20, encoding="utf-8")
    other = evaluated(a_study(tmp_path, tmp_path / "out"))
    assert other.tuning == found.tuning
    assert other.at["test"][2].measures[RAW].bleu != found.at["test"][2].measures[RAW].bleu


def test_bleu_statistics_of_a_set_are_those_of_its_outputs(found: Findings) -> None:
    references = found.study.test_sets["test"].references
    outputs = found.at["test"][6].outputs[RAW]
    assert (outputs.statistics == bleu_statistics(outputs.texts, references, lowercase=True)).all()


def test_an_optimal_search_loses_no_optimum_and_the_others_may(found: Findings) -> None:
    lost = {(cell.method, cell.stop): cell.lost for cell in found.stop_cells}
    assert all(value == 0 for (_, stop), value in lost.items() if stop in ("optimal", "exhaustive"))
    assert any(value > 0 for (_, stop), value in lost.items() if stop == "first-finished")


def test_eos_comes_earlier_in_larger_beams(found: Findings) -> None:
    eos = found.eos_positions["dev"]
    assert eos.beam_sizes == (3, 4, 6, 7)
    assert eos.sentences > 0
    assert all(first <= second <= third for first, second, third in eos.positions)
    assert eos.positions[-1][0] <= eos.positions[0][0]


def test_optima_are_missed_by_small_beams_alone(found: Findings) -> None:
    for size, at in found.at["test"].items():
        assert set(at.missed) == set(found.study.reference_scores.exact_scores)
        for each in at.missed.values():
            assert 0 <= each.missed <= each.known <= found.study.plan.exact
            assert size < 6 or not each.missed


def test_a_reference_that_beats_the_output_is_a_search_error(found: Findings) -> None:
    for at in found.at["test"].values():
        for method, outputs in at.outputs.items():
            assert not (outputs.search_errors & outputs.model_errors).any(), method
    small, large = (found.at["test"][size].outputs[RAW] for size in (1, 7))
    assert large.search_errors.sum() <= small.search_errors.sum()


def test_every_table_has_its_forms(found: Findings) -> None:
    tables = all_tables(found)
    assert len({table.name for table in tables}) == len(tables)
    for table in tables:
        assert len(table.csv().splitlines()) == len(table.rows) + 1
        assert table.latex().count(r"\\") == len(table.rows) + 1
        assert table.markdown().startswith(f"**{table.title}**")
    main = tables[0]
    assert [row[0] for row in main.rows] == ["raw score, b = 2", *(method.label for method in found.methods)]
    assert {column for _, column in main.strong} == {1, 3, 5, 7}
    assert headline(found)


def test_an_outside_system_is_a_row(found: Findings, tmp_path: Path) -> None:
    data = found.study.data
    plan = replace(PLAN, systems=(SystemPlan("a person", "dev.0", "test.0"),))
    study = a_study(data, data / "out", plan)
    row = all_tables(evaluate(study, lambda _: None))[0].rows[0]
    assert row[0] == "a person"
    assert row[1] == "100.00"


def test_a_model_without_a_predictor_is_judged_by_what_needs_none(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, max_lengths=("2x+3", "2x+5"), tuning={})
    found = evaluated(without_predictor(a_study(tmp_path, tmp_path / "out", plan)))
    every = shared_findings()
    assert [each.name for each in found.methods] == [each.name for each in every.methods if not each.reads_length]
    assert {cell.stop for cell in found.stop_cells} == {cell.stop for cell in every.stop_cells} - {
        "predicted-horizon"
    }
    assert found.length_errors["test"].predictor is None
    missing = {table.name for table in all_tables(every)} - {table.name for table in all_tables(found)}
    assert missing == {"horizon", "true-lengths", "paper-setting", "gains-dev", "gains-test"}
    assert not any("F1-Norm" in conclusion for conclusion in headline(found))


def test_true_lengths_are_those_of_the_references_in_a_search_of_their_own(found: Findings) -> None:
    study, size = found.study, found.study.plan.display_beam_size
    for name in SETS:
        test_set = study.test_sets[name]
        known = tuple(
            replace(
                sentence, expected_length=float(np.mean([len(targets[index]) + 1 for targets in test_set.targets]))
            )
            for index, sentence in enumerate(test_set.sentences)
        )
        reading = [method for method in found.methods if method.reads_length]
        assert set(found.true_lengths[name]) == {method.name for method in reading}
        for method in reading:
            score = found.score(method, study.plan.group_of(size))
            live = beam_search(study.model, known, Decoding(size, score, method.stop))
            texts = [study.translator.decode(each.hypotheses[0].tokens) for each in live]
            statistics = bleu_statistics(texts, test_set.references, lowercase=True)
            assert found.true_lengths[name][method.name].bleu == bleu_of(statistics.sum(axis=0))


def test_references_are_as_far_from_one_another_as_their_lengths(found: Findings) -> None:
    assert found.length_errors["dev"].reference == 0.5  # every other of them has one word more


def test_a_study_that_is_not_decoded_cannot_be_judged(tmp_path: Path) -> None:
    write_sets(tmp_path)
    with pytest.raises(UncurseError, match="have not been decoded"):
        evaluate(a_study(tmp_path, tmp_path / "out"), lambda _: None)


def test_a_broken_recording_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(tmp_path, tmp_path / "out")
    recording = study.recording("dev", 4)
    assert len(recording.shards) == 2
    whole, broken = TraceStore(tmp_path / "whole"), TraceStore(tmp_path / "broken")
    assert list(whole.record(study.model, recording)) == [0, 1]
    assert next(broken.record(study.model, recording)) == 0
    assert broken.missing(recording) == [1]
    assert list(TraceStore(tmp_path / "broken").record(study.model, recording)) == [1]
    assert list(broken.record(study.model, recording)) == []
    for shard in ("0000.npz", "0001.npz"):
        one, other = (tmp_path / folder / recording.key / shard for folder in ("whole", "broken"))
        assert one.read_bytes() == other.read_bytes()


def test_what_changes_a_beam_changes_where_it_is_kept(tmp_path: Path) -> None:
    write_sets(tmp_path)
    recording = a_study(tmp_path, tmp_path / "out").recording("dev", 4)
    longer = tuple(replace(each, max_length=each.max_length + 1) for each in recording.sentences)
    others = [
        replace(recording, beam_size=5),
        replace(recording, model="another"),
        replace(recording, threads=2),
        replace(recording, sentences=longer),
        replace(recording, sentences=recording.sentences[1:]),
    ]
    assert len({recording.key, *(other.key for other in others)}) == 6
    expecting = tuple(replace(each, expected_length=3.0) for each in recording.sentences)
    assert replace(recording, sentences=expecting).key == recording.key  # lengths are for judging


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(tmp_path, tmp_path / "out")
    recording = study.recording("test", 2)
    list(study.traces.record(study.model, recording))
    path = tmp_path / "out" / "traces" / recording.key / "0000.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UncurseError, match=r"0000.npz is not a whole trace file"):
        study.traces.load(recording)


def test_a_damaged_answer_is_named(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(tmp_path, tmp_path / "out")
    test_set = study.test_sets["test"]
    list(study.reference_scores.ask(study.model, (test_set,)))
    for path in (tmp_path / "out" / "reference-scores").iterdir():
        path.write_text("{", encoding="utf-8")
    with pytest.raises(UncurseError, match="is damaged; remove it"):
        study.reference_scores.references(test_set)


def test_references_are_seen_as_forced_decoding_sees_them(found: Findings) -> None:
    test_set = found.study.test_sets["test"]
    scored = found.study.reference_scores.references(test_set)
    for index in (0, 5, len(scored) - 1):
        for number, tokens in enumerate(targets[index] for targets in test_set.targets):
            alone = force_decode(found.study.model, [test_set.sentences[index].source], [tokens])[0]
            assert scored[index][number].log_prob == pytest.approx(alone.log_prob)
            assert scored[index][number].coverage == pytest.approx(alone.coverage)
            assert len(scored[index][number].tokens) == len(alone.tokens)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 'x'", r"unknown key 'titel'; did you mean 'title'\?"),
        ("title = 'x'", "the key 'model' is missing"),
        ("beam_sizes = ['5-2']", "there is nothing in this range"),
        ("beam_sizes = ['five']", "beam_sizes = 'five' is not allowed"),
        ("beam_sizes = [0]", "beam_sizes = 0 is not allowed"),
        ("beam_sizes = [5]\nscores = ['bp-nrom']", r"did you mean 'bp-norm'\?"),
        ("beam_sizes = [5]\nstops = ['soon']", "unknown stopping rule 'soon'"),
        ("beam_sizes = [5]\nmax_length = 'far'", "max_length = 'far' is not allowed"),
        ("beam_sizes = [5]\nexact = -1", "exact = -1 is not allowed"),
        ("beam_sizes = [5]\n[tuning.gnmt]\nalpa = [0.1]", r"did you mean 'alpha'\?"),
        ("beam_sizes = [5]\n[tuning.gnmt]\nalpha = [-0.1]", "tuning.gnmt.alpha = -0.1 is not allowed"),
        ("beam_sizes = [5]\nscores = ['bp-norm']\n[tuning.gnmt]\nalpha = [0.1]", "none of the scores of the plan"),
    ],
)
def test_a_wrong_plan_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    rest = "" if "tit" in text else "title = 'x'\nmodel = 'm'\n"
    sets = "[dev]\nsource = 's'\nreferences = ['r']\n[test]\nsource = 's'\nreferences = ['r']\n"
    path = tmp_path / "plan.toml"
    path.write_text(f"{rest}{text}\n{sets if rest else ''}", encoding="utf-8")
    with pytest.raises(UncurseError, match=message):
        read_plans(path)


SETS_OF_TEXT = "dev = {source = 's', references = ['r']}\ntest = {source = 's', references = ['r']}\n"


def test_every_text_of_a_plan_is_a_plan_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    shared = "title = 'x'\nmodel = 'm'\nbeam_sizes = [5]\nexact = 3\n"
    path.write_text(
        f"{shared}[texts.one]\n{SETS_OF_TEXT}[texts.two]\nexact = 7\ntitle = 'y'\n{SETS_OF_TEXT}", encoding="utf-8"
    )
    plans = read_plans(path)
    assert {name: (plan.title, plan.exact, plan.model) for name, plan in plans.items()} == {
        "one": ("x: one", 3, "m"),
        "two": ("y", 7, "m"),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("texts = 3", "texts must be a table of tables"),
        ("[texts]", "texts must be a table of tables"),
        ("[texts]\none = 3", "texts.one must be a table"),
        (f"[texts.'../one']\n{SETS_OF_TEXT}", "a name has letters"),
        (f"[texts.one]\nexakt = 3\n{SETS_OF_TEXT}", r"texts.one: unknown key 'exakt'; did you mean 'exact'\?"),
        ("[texts.one]", "texts.one: the key 'dev' is missing"),
    ],
)
def test_a_wrong_text_of_a_plan_is_one_sentence(tmp_path: Path, texts: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(f"title = 'x'\nmodel = 'm'\nbeam_sizes = [5]\n{texts}\n", encoding="utf-8")
    with pytest.raises(UncurseError, match=message):
        read_plans(path)


def test_the_plans_that_come_with_the_project_can_be_read() -> None:
    folder = Path(__file__).parents[2] / "studies"
    plans = {path.name: read_plans(path) for path in folder.glob("*.toml")}
    assert list(plans["paper.toml"]) == ["msdocs", "pydocs", "bible", "news"]
    assert all(plans.values())


def test_the_beam_sizes_of_the_main_table_are_always_decoded() -> None:
    assert PLAN.all_beam_sizes == (1, 2, 3, 4, 6, 7)
    assert [PLAN.group_of(size) for size in (1, 4, 5, 7)] == ["small", "small", "large", "large"]


def test_files_of_different_lengths_are_named(tmp_path: Path) -> None:
    write_sets(tmp_path)
    (tmp_path / "dev.1").write_text("a b\n", encoding="utf-8")
    with pytest.raises(UncurseError, match=r"dev.src has 40 lines and .*dev.1 has 1"):
        _ = a_study(tmp_path, tmp_path / "out").test_sets


def test_certificates_are_counted(found: Findings) -> None:
    for name in SETS:
        for at in found.at[name].values():
            for method, outputs in at.outputs.items():
                proved = [each in (Certificate.BEAM, Certificate.GLOBAL) for each in outputs.certificates]
                assert at.measures[method].proved == np.mean(proved)


def test_seconds_are_kept_beside_the_traces(found: Findings) -> None:
    study = found.study
    recording = study.recording("dev", 4)
    folder = study.folder / "traces" / recording.key
    written = [json.loads(path.read_text(encoding="utf-8"))["seconds"] for path in folder.glob("*.json")]
    assert len(written) == len(recording.shards)
    assert study.traces.seconds(recording) == pytest.approx(sum(written))
