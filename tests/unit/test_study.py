"""A study of a model of random numbers: everything in it follows from its traces."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_study import PLAN, a_study, decode, tuning_is_judging, without_predictor, write_sets

from uncurse import Decoding, Optimality, beam_search
from uncurse.evaluation.bootstrap import bleu_of, bleu_statistics
from uncurse.forced import force_decode
from uncurse.study.beyond import tuning_table
from uncurse.study.evaluating import evaluate
from uncurse.study.findings import GROUPS, Findings
from uncurse.study.methods import METHODS
from uncurse.study.opened import SETS
from uncurse.study.plan import SystemPlan, read_plan
from uncurse.study.reporting import all_tables, headline
from uncurse.study.store import Store


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    folder = tmp_path_factory.mktemp("study")
    write_sets(folder)
    study = a_study(folder, folder / "out")
    decode(study)
    return evaluate(study, lambda _: None)


def test_what_is_judged_is_what_a_live_search_returns(found: Findings) -> None:
    material = found.study.materials["test"]
    for width in found.study.plan.all_widths:
        scores = found.scores(found.study.plan.group(width))
        for method in METHODS:
            live = beam_search(
                found.study.model, material.sentences, Decoding(width, scores[method.name], method.stop)
            )
            judged = found.at["test"][width].judged[method.name]
            assert judged.texts == tuple(found.study.translator.text(each.hypotheses[0].tokens) for each in live)
            assert judged.steps.tolist() == [each.steps for each in live]
            assert judged.rows.tolist() == [each.rows for each in live]
            assert judged.optimality == tuple(each.optimality for each in live)


def test_a_study_of_narrow_beams_has_no_third_end(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(tmp_path, tmp_path / "out", replace(PLAN, widths=(1,), small=(1,), large=(2,)))
    decode(study)
    narrow = evaluate(study, lambda _: None)
    assert narrow.ends["test"].widths == ()
    assert all_tables(narrow)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"again": "2x+10"}, "record_limit and again are not allowed together"),
        ({"slots": "full"}, "slots = 'full' is not allowed"),
    ],
)
def test_plans_that_contradict_themselves_are_refused(changes: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(PLAN, **changes)  # type: ignore[arg-type]


def test_tuning_gives_the_bleu_that_judging_gives(found: Findings) -> None:
    tuning_is_judging(found)


def test_gnmt_is_tuned_with_the_stopping_rule_it_is_judged_with(found: Findings) -> None:
    for group in GROUPS:
        curve = next(each for each in found.tuning[group].curves if each.name == "gnmt")
        widths = found.widths(group)
        judged = [bleu_of(each.sum(axis=0)) for each in found.statistics("dev", "gnmt", widths)]
        assert np.isclose(max(curve.bleu), np.mean(judged))


def test_hindsight_gives_the_bleu_of_the_methods_on_test_and_says_what_would_have_been_best(
    found: Findings,
) -> None:
    for group in GROUPS:
        for curve in found.tuning[group].curves:
            hindsight = found.hindsight[group][curve.name]
            judged = found.statistics("test", curve.name, found.widths(group))
            bleu = np.mean([bleu_of(each.sum(axis=0)) for each in judged])
            assert np.isclose(hindsight.at(curve.best), bleu)
            assert hindsight.values == curve.values
            row = next(row for row in tuning_table(found).rows if row[:2] == (curve.name, group))
            assert row[4] == f"{bleu:.2f}"
            assert row[-2] == ", ".join(f"{value:g}" for value in hindsight.best)
            assert row[-1] == f"{max(hindsight.bleu):.2f}"


def test_nothing_that_is_tuned_sees_the_test_set(found: Findings, tmp_path: Path) -> None:
    write_sets(tmp_path)
    for suffix in ("0", "1"):
        (tmp_path / f"test.{suffix}").write_text("f f f f f f f f\n" * 20, encoding="utf-8")
    study = a_study(tmp_path, tmp_path / "out")
    decode(study)
    other = evaluate(study, lambda _: None)
    assert other.tuning == found.tuning
    assert other.at["test"][2].measures["raw"].bleu != found.at["test"][2].measures["raw"].bleu


def test_bleu_statistics_of_a_set_are_those_of_its_outputs(found: Findings) -> None:
    material = found.study.materials["test"]
    judged = found.at["test"][6].judged["raw"]
    assert (judged.statistics == bleu_statistics(judged.texts, material.references, lowercase=True)).all()


def test_an_optimal_search_loses_no_optimum_and_the_others_may(found: Findings) -> None:
    lost = {(cell.score, cell.stop): cell.lost for cell in found.grid}
    assert all(value == 0 for (_, stop), value in lost.items() if stop in ("optimal", "exhaustive"))
    assert any(value > 0 for (_, stop), value in lost.items() if stop == "first-finished")


def test_the_ends_come_earlier_in_wider_beams(found: Findings) -> None:
    ends = found.ends["dev"]
    assert ends.widths == (3, 4, 6, 7)
    assert ends.sentences > 0
    assert all(first <= second <= third for first, second, third in ends.positions)
    assert ends.positions[-1][0] <= ends.positions[0][0]


def test_a_wider_beam_never_misses_an_optimum_that_the_exact_search_lacks(found: Findings) -> None:
    for score, widths in found.missed("test", found.study.plan.all_widths).items():
        for missed, known in widths.values():
            assert 0 <= missed <= known <= found.study.plan.exact, score


def test_a_reference_that_beats_the_output_is_a_search_error(found: Findings) -> None:
    for at in found.at["test"].values():
        for method, judged in at.judged.items():
            assert not (judged.search_errors & judged.model_errors).any(), method
    narrow, wide = (found.at["test"][width].judged["raw"] for width in (1, 7))
    assert wide.search_errors.sum() <= narrow.search_errors.sum()


def test_every_table_has_its_forms(found: Findings) -> None:
    tables = all_tables(found)
    assert len({table.name for table in tables}) == len(tables)
    for table in tables:
        assert len(table.csv().splitlines()) == len(table.rows) + 1
        assert table.latex().count(r"\\") == len(table.rows) + 1
        assert table.markdown().startswith(f"**{table.title}**")
    main = tables[0]
    assert [row[0] for row in main.rows] == ["raw score, b = 2", *(method.label for method in METHODS)]
    assert {column for _, column in main.strong} == {1, 3, 5, 7}
    assert len(headline(found)) == 3


def test_an_outside_system_is_a_row(found: Findings, tmp_path: Path) -> None:
    data = found.study.data
    plan = replace(PLAN, systems=(SystemPlan("a person", "dev.0", "test.0"),))
    study = a_study(data, data / "out", plan)
    row = all_tables(evaluate(study, lambda _: None))[0].rows[0]
    assert row[0] == "a person"
    assert row[1] == "100.00"


def test_a_model_without_a_predictor_is_judged_by_what_needs_none(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, limits=("2x+3", "2x+5"))
    study = without_predictor(a_study(tmp_path, tmp_path / "out", plan))
    decode(study)
    found = evaluate(study, lambda _: None)
    judged = found.at["test"][6].judged
    assert list(judged) == [method.name for method in METHODS if not method.predicts]
    assert {cell.stop for cell in found.grid} == set(plan.stops) - {"predicted-horizon"}
    assert found.lengths["test"].predictor is None
    assert len(all_tables(found)) == 20
    assert len(headline(found)) == 1


def test_true_lengths_are_those_of_the_references_in_a_search_of_their_own(found: Findings) -> None:
    width = found.study.plan.focus
    scores = found.scores(found.study.plan.group(width))
    for name in SETS:
        material = found.study.materials[name]
        known = tuple(
            replace(sentence, predicted=float(np.mean([len(targets[index]) + 1 for targets in material.targets])))
            for index, sentence in enumerate(material.sentences)
        )
        assert set(found.true_lengths[name]) == {method.name for method in METHODS if method.predicts}
        for method in METHODS:
            if method.predicts:
                live = beam_search(found.study.model, known, Decoding(width, scores[method.name], method.stop))
                texts = [found.study.translator.text(each.hypotheses[0].tokens) for each in live]
                statistics = bleu_statistics(texts, material.references, lowercase=True)
                assert found.true_lengths[name][method.name].bleu == bleu_of(statistics.sum(axis=0))


def test_references_are_as_far_from_one_another_as_their_lengths(found: Findings) -> None:
    assert found.lengths["dev"].reference == 0.5  # every other of them has one word more


def test_a_study_that_is_not_decoded_cannot_be_judged(tmp_path: Path) -> None:
    write_sets(tmp_path)
    with pytest.raises(ValueError, match="have not been decoded"):
        evaluate(a_study(tmp_path, tmp_path / "out"), lambda _: None)


def test_a_broken_recording_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(tmp_path, tmp_path / "out")
    recording = study.recording("dev", 4)
    assert len(recording.shards) == 2
    whole, broken = Store(tmp_path / "whole"), Store(tmp_path / "broken")
    assert list(whole.record(study.model, recording)) == [0, 1]
    assert next(broken.record(study.model, recording)) == 0
    assert broken.missing(recording) == [1]
    assert list(Store(tmp_path / "broken").record(study.model, recording)) == [1]
    assert list(broken.record(study.model, recording)) == []
    for shard in ("0000.npz", "0001.npz"):
        one, other = (tmp_path / folder / recording.key / shard for folder in ("whole", "broken"))
        assert one.read_bytes() == other.read_bytes()


def test_what_changes_a_beam_changes_where_it_is_kept(tmp_path: Path) -> None:
    write_sets(tmp_path)
    recording = a_study(tmp_path, tmp_path / "out").recording("dev", 4)
    longer = tuple(replace(each, limit=each.limit + 1) for each in recording.sentences)
    others = [
        replace(recording, width=5),
        replace(recording, model="another"),
        replace(recording, threads=2),
        replace(recording, sentences=longer),
        replace(recording, sentences=recording.sentences[1:]),
    ]
    assert len({recording.key, *(other.key for other in others)}) == 6
    expecting = tuple(replace(each, predicted=3.0) for each in recording.sentences)
    assert replace(recording, sentences=expecting).key == recording.key  # lengths are for judging


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(tmp_path, tmp_path / "out")
    recording = study.recording("test", 2)
    list(study.store.record(study.model, recording))
    path = tmp_path / "out" / "traces" / recording.key / "0000.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"0000.npz is not a whole trace file"):
        study.store.load(recording)


def test_a_damaged_answer_is_named(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(tmp_path, tmp_path / "out")
    material = study.materials["test"]
    list(study.probes.ask(study.model, (material,)))
    for path in (tmp_path / "out" / "probes").iterdir():
        path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged; remove it"):
        study.probes.references(material)


def test_references_are_seen_as_forced_decoding_sees_them(found: Findings) -> None:
    material = found.study.materials["test"]
    forced = found.study.probes.references(material)
    for index in (0, 5, len(forced) - 1):
        for number, pieces in enumerate(targets[index] for targets in material.targets):
            alone = force_decode(found.study.model, [material.sentences[index].source], [pieces])[0]
            assert forced[index][number].log_prob == pytest.approx(alone.log_prob)
            assert forced[index][number].coverage == pytest.approx(alone.coverage)
            assert len(forced[index][number].tokens) == len(alone.tokens)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel = 'x'", r"unknown key 'titel'; did you mean 'title'\?"),
        ("title = 'x'", "the key 'model' is missing"),
        ("widths = ['5-2']", "holds no width"),
        ("widths = ['five']", "is not understood"),
        ("widths = [0]", "widths = 0 is not allowed"),
        ("widths = [5]\nscores = ['bp-nrom']", r"did you mean 'bp-norm'\?"),
        ("widths = [5]\nstops = ['soon']", "unknown stopping rule 'soon'"),
        ("widths = [5]\nlimit = 'far'", "limit 'far' is not understood"),
        ("widths = [5]\nexact = -1", "exact = -1 is not allowed"),
    ],
)
def test_a_wrong_plan_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    rest = "" if "tit" in text else "title = 'x'\nmodel = 'm'\n"
    sets = "[dev]\nsource = 's'\nreferences = ['r']\n[test]\nsource = 's'\nreferences = ['r']\n"
    path = tmp_path / "plan.toml"
    path.write_text(f"{rest}{text}\n{sets if rest else ''}", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_plan(path)


def test_the_widths_of_the_main_table_are_always_decoded() -> None:
    assert PLAN.all_widths == (1, 2, 3, 4, 6, 7)
    assert [PLAN.group(width) for width in (1, 4, 5, 7)] == ["small", "small", "large", "large"]


def test_files_of_different_lengths_are_named(tmp_path: Path) -> None:
    write_sets(tmp_path)
    (tmp_path / "dev.1").write_text("a b\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev.src has 40 lines and .*dev.1 has 1"):
        _ = a_study(tmp_path, tmp_path / "out").materials


def test_certificates_are_counted(found: Findings) -> None:
    for name in SETS:
        for at in found.at[name].values():
            for method, judged in at.judged.items():
                proved = [each in (Optimality.BEAM, Optimality.GLOBAL) for each in judged.optimality]
                assert at.measures[method].proved == np.mean(proved)


def test_seconds_are_kept_beside_the_traces(found: Findings) -> None:
    study = found.study
    recording = study.recording("dev", 4)
    folder = study.folder / "traces" / recording.key
    written = [json.loads(path.read_text(encoding="utf-8"))["seconds"] for path in folder.glob("*.json")]
    assert len(written) == len(recording.shards)
    assert study.store.seconds(recording) == pytest.approx(sum(written))
