"""Studies in which a sentence is searched again if nothing ends within its maximum length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.tiny_study import PLAN, a_study, check_tuning_by_judging, evaluated, write_sets

from uncurse import Certificate, Decoding, Slots, beam_search, record
from uncurse.lengths.policy import hit_max_length
from uncurse.study.evaluate import evaluate
from uncurse.study.findings import Findings
from uncurse.study.methods import OPTIMAL, RAW
from uncurse.study.report.html_data import page_data
from uncurse.study.report.write import all_tables


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """A study with maximum lengths within which little ends."""
    folder = tmp_path_factory.mktemp("short")
    write_sets(folder)
    plan = replace(
        PLAN,
        large=(2, 3),
        max_length="0.5x",
        record_max_length=None,
        retry_max_length="2x+4",
        max_lengths=("0.3x", "0.5x", "2x+5"),
        slots="refill",
    )
    return evaluated(a_study(folder, folder / "out", plan))


def test_a_second_search_is_judged_as_a_live_one_returns_it(short: Findings) -> None:
    study, test_set = short.study, short.study.test_sets["test"]
    again = [replace(each, max_length=2 * len(each.source) + 4) for each in test_set.sentences]
    retried = 0
    for size in study.plan.all_beam_sizes:
        traces = record(study.model, test_set.sentences, size, Slots.REFILL)
        hit = [hit_max_length(trace, trace.max_length) for trace in traces]
        retried += sum(hit)
        searched = [
            longer if one else each for each, longer, one in zip(test_set.sentences, again, hit, strict=True)
        ]
        for method in short.methods:
            score = short.score(method, study.plan.group_of(size))
            live = beam_search(study.model, searched, Decoding(size, score, method.stop, slots=Slots.REFILL))
            outputs = short.at["test"][size].outputs[method.name]
            assert outputs.texts == tuple(study.translator.decode(each.hypotheses[0].tokens) for each in live)
            assert outputs.certificates == tuple(each.certificate for each in live)
            assert outputs.steps.tolist() == [each.steps for each in live]
            assert outputs.model_rows.tolist() == [each.model_rows for each in live]
    assert 0 < retried < len(study.plan.all_beam_sizes) * len(test_set.lines)


def test_a_maximum_length_is_compared_as_a_study_with_it_judges(short: Findings) -> None:
    compared = {(cell.max_length, cell.method, cell.stop): cell.measures for cell in short.max_length_cells}
    measured = short.at["dev"][short.study.comparison_beam_size].measures
    for method in short.methods:
        if method.stop == OPTIMAL:
            assert compared["0.5x", method.name, OPTIMAL] == measured[method.name]


def test_without_maximum_lengths_to_compare_nothing_is_decoded_for_it(short: Findings) -> None:
    before = short.study
    study = a_study(before.data, before.folder, replace(before.plan, max_lengths=("0.5x",)))
    decoded = [(name, recording.beam_size) for name, recording in study.recordings()]
    assert decoded == [(name, size) for name in ("dev", "test") for size in study.plan.all_beam_sizes]
    study.check_complete()
    found = evaluate(study, lambda _: None)
    different = [table.name for table in all_tables(short) if table not in all_tables(found)]
    assert different == ["max-lengths", "lengths"]


def test_everything_that_is_shown_of_a_second_search_has_its_maximum_length(short: Findings) -> None:
    study, test_set = short.study, short.study.test_sets["test"]
    size = study.plan.display_beam_size
    judged = test_set.judged_max_lengths(study.traces.load(study.recording("test", size)))
    shown = page_data(short)["sentences"]
    assert [each["max_length"] for each in shown] == judged
    longer = [index for index, most in enumerate(judged) if most > test_set.sentences[index].max_length]
    assert longer
    candidates = [shown[index]["points"] for index in longer]
    assert all(candidates)
    assert all(
        length > test_set.sentences[index].max_length
        for index, points in zip(longer, candidates, strict=True)
        for length, _ in points
        if length > 1
    )
    assert (short.at["test"][size].eos_steps[longer].max(axis=1) > 0).any()
    cells = [cell for cell in short.max_length_cells if cell.method == "bp-norm" and cell.stop == OPTIMAL]
    for cell in cells:
        assert cell.measures.steps <= cell.mean_max_length
    assert "0.5x, 2x+4 where nothing ends within it; slots: refill" in all_tables(short)[0].note


def test_a_second_maximum_length_that_is_shorter_changes_nothing(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, max_length="0.5x", record_max_length=None, small=(2,), large=(3,), beam_sizes=(2,))
    plain, shorter = (
        evaluated(a_study(tmp_path, tmp_path / "out", replace(plan, retry_max_length=each)))
        for each in (None, "0.3x")
    )
    for size in plan.all_beam_sizes:
        for method in plain.methods:
            one, two = (each.at["test"][size].outputs[method.name].texts for each in (plain, shorter))
            assert one == two


def test_where_traces_lie_depends_on_all_that_decides_them(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plain = replace(PLAN, record_max_length=None)
    retries = (replace(plain, retry_max_length=each) for each in ("2x+4", "2x+5"))
    plans = (plain, *retries, replace(plain, slots="refill"))
    keys = [a_study(tmp_path, tmp_path, plan).recording("test", 3).key for plan in plans]
    assert len(set(keys)) == len(keys)


def test_true_optima_are_missed_where_nothing_ended(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, max_length="2", record_max_length=None, max_lengths=("2",), exact=12)
    study = a_study(tmp_path, tmp_path / "out", replace(plan, beam_sizes=(1,), small=(1,), large=(2,)))
    at = evaluated(study).at["test"][1]
    certificates = at.outputs[RAW].certificates
    known = study.reference_scores.optima(study.test_sets["test"])
    unfinished = sum(certificates[index] is Certificate.TRUNCATED for index in known)
    assert at.missed["log-prob"].known == len(known)
    assert at.missed["log-prob"].missed >= unfinished > 0


def test_tuning_judges_a_second_search_where_there_is_one(short: Findings) -> None:
    check_tuning_by_judging(short)
