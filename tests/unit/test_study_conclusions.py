"""What a study concludes: where a score helps, what holds in the paper's own setting, and the words for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.tiny_study import PLAN, a_study, evaluated, shared_findings, without_predictor, write_sets

from uncurse import Decoding, beam_search
from uncurse.evaluation.bleu import bleu_of
from uncurse.evaluation.bootstrap import paired_bootstrap
from uncurse.study.findings import Findings
from uncurse.study.forecast import time_saved
from uncurse.study.gains import MIN_SENTENCES, bins_of
from uncurse.study.methods import NORM, RAW
from uncurse.study.plan import GROUPS
from uncurse.study.report.extra_tables import gains_table
from uncurse.study.report.headline import headline
from uncurse.study.report.paper_tables import main_table, paper_setting_table, widening_table
from uncurse.study.report.write import all_tables
from uncurse.study.test_set import SETS


@pytest.fixture(scope="module")
def found() -> Findings:
    return shared_findings()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """A study whose largest beam is that of the baseline."""
    folder = tmp_path_factory.mktemp("narrow")
    write_sets(folder)
    plan = replace(PLAN, beam_sizes=(1,), small=(1,), large=(2,), baseline_beam_size=2, max_lengths=("2x+3",))
    return evaluated(a_study(folder, folder / "out", plan))


# Where a score helps.


def test_bins_cover_every_sentence_once_and_are_never_tiny() -> None:
    random = np.random.default_rng(0)
    for spread in (0.02, 0.1, 0.5):
        ratios = np.maximum(random.normal(0.95, spread, size=500), 0.01)
        bins = bins_of(ratios)
        assert sorted(index for _, indices in bins for index in indices.tolist()) == list(range(500))
        assert all(len(indices) >= MIN_SENTENCES for _, indices in bins)
    assert len(bins_of(np.full(3, 0.5))) == 1


def test_the_gain_of_a_bin_is_that_of_its_sentences(found: Findings) -> None:
    size = found.study.plan.display_beam_size
    for name in SETS:
        test_set, at = found.study.test_sets[name], found.at[name][size]
        expected = np.array(test_set.expected_lengths, dtype=np.float64)
        bins = bins_of(at.outputs[NORM].lengths / expected)
        assert [(each.label, each.sentences) for each in found.gains[name]] == [
            (label, len(indices)) for label, indices in bins
        ]
        for gain, (_, indices) in zip(found.gains[name], bins, strict=True):
            first, second = (at.outputs[method].statistics[indices] for method in (NORM, "bp-norm"))
            assert gain.gains["bp-norm"] == paired_bootstrap([first], [second])
            assert set(gain.gains) == {method.name for method in found.methods} - {NORM}


def test_the_table_of_gains_has_a_row_for_each_bin_and_one_for_all(found: Findings) -> None:
    table = gains_table(found, "dev")
    assert len(found.gains["dev"]) > 1
    assert [row[0] for row in table.rows] == [*(each.label for each in found.gains["dev"]), "all"]
    assert [row[0] for row in gains_table(found, "test").rows] == ["all"]  # too few sentences for two bins
    sizes = [found.study.plan.display_beam_size]
    column = table.columns.index("BP-Norm")
    everything = found.difference("dev", (NORM, sizes), ("bp-norm", sizes))
    assert table.rows[-1][column] == f"{everything.bleu:+.2f} ({everything.low:+.2f} … {everything.high:+.2f})"
    assert int(table.rows[-1][1]) == sum(int(row[1]) for row in table.rows[:-1])


# The paper's own setting.


def test_the_papers_setting_is_a_live_search_whose_maximum_length_is_the_expected_length(found: Findings) -> None:
    study, test_set = found.study, found.study.test_sets["test"]
    sentences = []
    for sentence in test_set.sentences:
        assert sentence.expected_length is not None
        sentences.append(replace(sentence, max_length=math.ceil(sentence.expected_length)))
    for group in GROUPS:
        for size in study.plan.beam_sizes_of(group):
            for method in found.methods:
                live = beam_search(study.model, sentences, Decoding(size, found.score(method, group), method.stop))
                texts = [study.translator.decode(each.hypotheses[0].tokens) for each in live]
                (statistics,) = found.paper_statistics("test", method.name, [size])
                total = sum(len(text.split()) for text in texts)
                assert statistics[:, -2].sum() == total, (method.name, size)


def test_the_table_of_the_papers_setting_has_the_rows_of_the_main_table(found: Findings) -> None:
    main, paper = main_table(found), paper_setting_table(found)
    assert [row[0] for row in paper.rows] == [row[0] for row in main.rows]
    assert paper.columns == main.columns
    bleu = bleu_of(found.paper_statistics("dev", RAW, [PLAN.baseline_beam_size])[0].sum(axis=0))
    assert paper.rows[0][1] == f"{bleu:.2f}"
    assert "⌈L⌉" in paper.title


def test_a_recording_that_is_too_short_for_the_papers_setting_is_told(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, beam_sizes=(2,), small=(2,), large=(3,), max_length="1x", record_max_length=None)
    found = evaluated(a_study(tmp_path, tmp_path / "out", replace(plan, max_lengths=("1x",))))
    assert "40 of 40 dev and 12 of 12 test sentences were recorded to a shorter maximum length" in (
        paper_setting_table(found).note
    )
    assert "shorter" not in paper_setting_table(shared_findings()).note


# In words.


def test_the_headline_says_what_to_conclude_with_intervals(found: Findings) -> None:
    said = " ".join(headline(found))
    change = found.difference("test", (RAW, [2]), (RAW, [7]))
    assert f"{change.low:+.2f} to {change.high:+.2f}" in said
    assert "From a beam of 2 to one of 7" in said
    assert "length norm" in said
    assert all(sentence.endswith(".") for sentence in headline(found))


def test_the_headline_says_what_optimal_stopping_does_to_length_norm(found: Findings) -> None:
    (said,) = [each for each in headline(found) if "optimal stopping" in each]
    change = found.difference("test", (NORM, PLAN.large), (f"{NORM}-optimal", PLAN.large))
    assert f"{change.bleu:+.2f} BLEU, 95 % interval {change.low:+.2f} to {change.high:+.2f}" in said


def test_beams_are_compared_only_if_they_differ(narrow: Findings) -> None:
    assert "From a beam of 1 to one of 2" in headline(narrow)[0]
    assert widening_table(narrow, "test").title == "From b = 1 to b = 2 on test"


def test_one_beam_size_is_compared_with_nothing(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, beam_sizes=(2,), small=(2,), large=(2,), baseline_beam_size=2, max_lengths=("2x+3",))
    found = evaluated(a_study(tmp_path, tmp_path / "out", plan))
    assert headline(found)[0].startswith("With a beam of 2 the raw score has BLEU")
    assert not any("From a beam" in each for each in headline(found))
    assert not [table.name for table in all_tables(found) if table.name.startswith("widening")]


def test_a_study_without_expected_lengths_says_what_it_can(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, beam_sizes=(2,), small=(2,), large=(3,), max_lengths=("2x+3",), tuning={})
    found = evaluated(without_predictor(a_study(tmp_path, tmp_path / "out", plan)))
    assert found.gains == {}
    names = {table.name for table in all_tables(found)}
    assert names.isdisjoint({"paper-setting", "gains-dev", "gains-test", "horizon"})
    assert headline(found)


def test_the_time_of_a_study_counts_everything_that_was_decoded(found: Findings) -> None:
    study = found.study
    asked = study.reference_scores.seconds(tuple(study.test_sets.values()))
    assert asked > 0
    assert "references and exact optima scored in" in time_saved(found, 1.0)
