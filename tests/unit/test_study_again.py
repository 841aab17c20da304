"""Studies in which what was searched in vain is searched again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_study import PLAN, a_study, decode, tuning_is_judging, write_sets

from uncurse import Decoding, Optimality, beam_search
from uncurse.decoding import Slots
from uncurse.search import record
from uncurse.stopping import Optimal
from uncurse.study.evaluating import evaluate
from uncurse.study.findings import Findings
from uncurse.study.methods import METHODS
from uncurse.study.pagedata import page_data
from uncurse.study.reporting import all_tables
from uncurse.translator import recorded_in_vain


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """A study with limits within which little ends; what is searched in vain is searched again."""
    folder = tmp_path_factory.mktemp("short")
    write_sets(folder)
    plan = replace(
        PLAN,
        large=(2, 3),
        limit="0.5x",
        record_limit=None,
        again="2x+4",
        limits=("0.3x", "0.5x", "2x+5"),
        slots="refill",
    )
    study = a_study(folder, folder / "out", plan)
    decode(study)
    return evaluate(study, lambda _: None)


def test_what_is_searched_in_vain_is_judged_as_a_second_search_returns_it(short: Findings) -> None:
    study, material = short.study, short.study.materials["test"]
    again = [replace(each, limit=2 * len(each.source) + 4) for each in material.sentences]
    seconds = 0
    for width in study.plan.all_widths:
        scores = short.scores(study.plan.group(width))
        traces = record(study.model, material.sentences, width, Slots.REFILL)
        vain = [recorded_in_vain(trace) for trace in traces]
        seconds += sum(vain)
        searched = [
            wider if one else each for each, wider, one in zip(material.sentences, again, vain, strict=True)
        ]
        for method in METHODS:
            decoding = Decoding(width, scores[method.name], method.stop, slots=Slots.REFILL)
            live = beam_search(study.model, searched, decoding)
            judged = short.at["test"][width].judged[method.name]
            assert judged.texts == tuple(study.translator.text(each.hypotheses[0].tokens) for each in live)
            assert judged.optimality == tuple(each.optimality for each in live)
            assert judged.steps.tolist() == [each.steps for each in live]
            assert judged.rows.tolist() == [each.rows for each in live]
    assert 0 < seconds < len(study.plan.all_widths) * len(material.lines)


def test_a_limit_is_compared_as_a_study_with_that_limit_judges_it(short: Findings) -> None:
    width = short.study.limits_width
    compared = {(cell.limit, cell.method, cell.stop): cell.measures for cell in short.limits}
    measured = short.at["dev"][width].measures
    for method in METHODS:
        if method.stop == Optimal():
            assert compared["0.5x", method.name, "optimal"] == measured[method.name]


def test_what_compares_no_limits_decodes_nothing_for_it(short: Findings) -> None:
    before = short.study
    study = a_study(before.data, before.folder, replace(before.plan, limits=("0.5x",)))
    widths = [(name, recording.width) for name, recording in study.recordings()]
    assert widths == [(name, width) for name in ("dev", "test") for width in study.plan.all_widths]
    study.check_complete()
    found = evaluate(study, lambda _: None)
    assert [table.name for table in all_tables(short) if table not in all_tables(found)] == ["limits", "lengths"]


def test_everything_that_is_shown_of_a_second_search_has_its_limit(short: Findings) -> None:
    study, material = short.study, short.study.materials["test"]
    width = study.plan.focus
    limits = material.limits_in(study.store.load(study.recording("test", width)))
    assert [each["limit"] for each in page_data(short)["sentences"]] == limits
    wider = [index for index, limit in enumerate(limits) if limit > material.sentences[index].limit]
    assert wider
    candidates = [page_data(short)["sentences"][index]["points"] for index in wider]
    assert all(candidates)
    assert all(
        length > material.sentences[index].limit
        for index, found in zip(wider, candidates, strict=True)
        for length, _ in found
        if length > 1
    )
    assert (short.at["test"][width].ends[wider].max(axis=1) > 0).any()
    by_limit = {cell.limit: cell for cell in short.limits if cell.method == "bp-norm" and cell.stop == "optimal"}
    assert by_limit["0.5x"].measures.steps <= by_limit["0.5x"].mean_limit
    note = all_tables(short)[0].note
    assert "0.5x, 2x+4 where nothing ends within it; slots: refill" in note
    assert (page_data(short)["limit"], page_data(short)["slots"]) == ("0.5x, then 2x+4", "refill")


def test_a_second_limit_that_is_shorter_changes_nothing(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, limit="0.5x", record_limit=None)
    plain, shorter = (a_study(tmp_path, tmp_path / "out", replace(plan, again=each)) for each in (None, "0.3x"))
    decode(plain)
    decode(shorter)
    found, other = (evaluate(each, lambda _: None) for each in (plain, shorter))
    for width in PLAN.all_widths:
        for method in METHODS:
            one, two = (each.at["test"][width].judged[method.name].texts for each in (found, other))
            assert one == two


def test_where_traces_lie_depends_on_all_that_decides_them(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plain = replace(PLAN, record_limit=None)
    plans = (plain, replace(plain, again="2x+4"), replace(plain, again="2x+5"), replace(plain, slots="refill"))
    keys = [a_study(tmp_path, tmp_path, plan).recording("test", 3).key for plan in plans]
    assert len(set(keys)) == len(keys)


def test_true_optima_are_missed_where_nothing_ended(tmp_path: Path) -> None:
    write_sets(tmp_path)
    study = a_study(
        tmp_path, tmp_path / "out", replace(PLAN, limit="2", record_limit=None, limits=("2",), exact=12)
    )
    decode(study)
    at = evaluate(study, lambda _: None).at["test"][1]
    ended = at.judged["raw"].optimality
    known = study.probes.optima(study.materials["test"])
    unfinished = sum(ended[index] is Optimality.TRUNCATED for index in known)
    missed, among = at.missed["log-prob"]
    assert among == len(known)
    assert missed >= unfinished > 0


def test_tuning_judges_what_is_searched_in_vain_by_its_second_search(short: Findings) -> None:
    tuning_is_judging(short)
