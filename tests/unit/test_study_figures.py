"""The figures of a study: which there are, that they are the same each time, and what missing findings do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image
from support.tiny_study import PLAN, a_study, evaluated, shared_findings, without_predictor, write_sets

from uncurse.scoring.result import Certificate
from uncurse.study.findings import EosPositions, Findings
from uncurse.study.outputs import Outputs
from uncurse.study.report import figures
from uncurse.study.report.figures import FIGURES, draw_figures
from uncurse.study.report.looks import LABEL_LINE, look_of
from uncurse.study.report.plot_style import marked, pictures, settings
from uncurse.study.report.sentence_figure import sentence_figure, spread

SIZES = [1, 2, 3, 4, 5, 19, 20, 21]


@pytest.fixture(scope="module")
def found() -> Findings:
    found = shared_findings()
    return replace(found, gains={"test": found.gains["dev"]})  # the test set is too small for two bins


@pytest.fixture(scope="module")
def drawn(found: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "figures"
    paths = draw_figures(found, folder)
    assert sorted(paths) == sorted(folder.iterdir())
    return folder


def texts_of(svg: Path | bytes) -> list[str]:
    content = svg.read_bytes() if isinstance(svg, Path) else svg
    found = ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(each.itertext()) for each in found]


def label_texts(found: Findings) -> set[str]:
    return {line for method in found.methods for line in look_of(method).label_lines()}


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Draw some figures, for the sake of time."""
    monkeypatch.setattr(figures, "FIGURES", {name: FIGURES[name] for name in names})


def truncated(found: Findings, index: int) -> Findings:
    """The same findings as if nothing had finished for a test sentence as it is displayed."""

    def changed(outputs: Outputs) -> Outputs:
        certificates = list(outputs.certificates)
        certificates[index] = Certificate.TRUNCATED
        return replace(outputs, certificates=tuple(certificates))

    sentences = list(found.sentences)
    sentences[index] = replace(sentences[index], points=(), texts=())
    size = found.study.plan.display_beam_size
    at = found.at["test"][size]
    outputs = {name: changed(each) for name, each in at.outputs.items()}
    test = {**found.at["test"], size: replace(at, outputs=outputs)}
    return replace(found, at={**found.at, "test": test}, sentences=tuple(sentences))


def test_every_figure_is_a_small_picture_of_both_kinds(drawn: Path) -> None:
    assert {path.name for path in drawn.iterdir()} == {
        f"{name}{kind}" for name in FIGURES for kind in (".png", ".svg")
    }
    for name in FIGURES:
        with Image.open(drawn / f"{name}.png") as picture:
            picture.load()
            assert picture.size[0] == 525
            assert picture.info["dpi"] == pytest.approx((150, 150), abs=0.1)
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
            assert {"Software", "Creation Time"}.isdisjoint(picture.info)
        svg = (drawn / f"{name}.svg").read_bytes()
        assert len(svg) < 100_000
        assert b"<dc:date>" not in svg
        assert texts_of(svg)


@pytest.mark.slow
def test_the_same_study_gives_the_same_bytes_in_another_process(
    found: Findings, drawn: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from dataclasses import replace; from pathlib import Path;"
        "from support.tiny_study import shared_findings; from uncurse.study.report.figures import draw_figures;"
        "found = shared_findings(); found = replace(found, gains={'test': found.gains['dev']});"
        "draw_figures(found, Path(sys.argv[1]))"
    )
    tests = str(Path(__file__).parents[1])
    surroundings = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "0", "PYTHONPATH": tests}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=surroundings)
    assert digests(tmp_path) == digests(drawn)


def test_the_settings_of_matplotlib_neither_matter_nor_change(
    found: Findings, drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "curse", "tuning", "sentence")
    with matplotlib.rc_context({"font.size": 20.0, "axes.facecolor": "black", "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        draw_figures(found, tmp_path)
        assert dict(matplotlib.rcParams) == before
    assert digests(tmp_path).items() <= digests(drawn).items()


def test_figures_say_what_they_show(found: Findings, drawn: Path) -> None:
    assert {"sentences", "BLEU above length norm", "BP-Norm"} <= set(texts_of(drawn / "gains.svg"))
    for name in ("methods", "methods-dev", "deciles", "cost", "degenerate"):
        assert label_texts(found) <= set(texts_of(drawn / f"{name}.svg")), name
    assert {"BLEU", "brevity penalty", "length ratio", "beam size"} <= set(texts_of(drawn / "curse.svg"))
    assert {"dev: 39 of 40 sentences", "first </s>", "third </s>"} <= set(texts_of(drawn / "eos-positions.svg"))
    assert {"predicted (8)", "2x+5 (18)"} <= set(texts_of(drawn / "max-lengths.svg"))
    assert {"small beams (2–3)", "GNMT: alpha", "beta", "reward"} <= set(texts_of(drawn / "tuning.svg"))


@pytest.mark.slow
def test_no_text_lies_on_another_or_leaves_its_figure(found: Findings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Bbox]] = []
    draw = Text.draw

    def noting(text: Text, renderer: RendererBase) -> None:
        if (
            text.get_visible() and text.get_text() and text.get_rotation() in (0, 90)
        ):  # boxes of others are too large
            seen.append((text.get_text(), text.get_window_extent(renderer)))
        draw(text, renderer)

    monkeypatch.setattr(Text, "draw", noting)
    for name, make in FIGURES.items():
        with settings():
            figure = make(found)
            assert figure is not None
            figure.draw_without_rendering()
            seen.clear()  # what was noted before the layout was known
            figure.draw_without_rendering()
        width, height = figure.bbox.size
        for place, (text, box) in enumerate(seen):
            assert 0 <= box.x0 < box.x1 <= width, (name, text)
            assert 0 <= box.y0 < box.y1 <= height, (name, text)
            assert not [other for other, its in seen[:place] if box.overlaps(its)], (name, text)


def test_the_sentence_is_the_one_on_which_methods_agree_least(found: Findings, drawn: Path) -> None:
    outputs = [found.displayed(method).texts for method in found.methods]
    most = max(len(set(texts)) for texts in zip(*outputs, strict=True))
    title = next(text for text in texts_of(drawn / "sentence.svg") if text.startswith("test sentence"))
    index = int(title.split(",")[0].split()[-1]) - 1
    assert len({texts[index] for texts in outputs}) == most
    assert title.endswith(f"beam size {found.study.plan.display_beam_size}")


def test_a_long_label_is_broken_after_its_comma(found: Findings) -> None:
    for method in found.methods:
        lines = look_of(method).label_lines()
        assert " ".join(lines) == method.label
        assert all(len(line) <= LABEL_LINE for line in lines)


@pytest.mark.slow
def test_a_model_without_predictor_gets_every_figure_but_the_one_of_gains(tmp_path: Path) -> None:
    write_sets(tmp_path)
    plan = replace(PLAN, max_lengths=("2x+3", "2x+5"), tuning={})
    less = evaluated(without_predictor(a_study(tmp_path, tmp_path / "out", plan)))
    draw_figures(less, tmp_path / "figures")
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == set(FIGURES) - {"gains"}
    assert not any(text.startswith("L =") for text in texts_of(tmp_path / "figures" / "sentence.svg"))


def test_what_has_no_findings_is_left_out(
    found: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "eos-positions", "max-lengths", "gains", "cost")
    nothing = dict.fromkeys(found.eos_positions, EosPositions(0, (), ()))
    bare = replace(found, max_length_cells=(), gains={}, eos_positions=nothing)
    draw_figures(bare, tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {"cost"}


def test_a_sentence_where_nothing_finished_says_so(found: Findings) -> None:
    with settings():
        assert "nothing finished:" in texts_of(pictures(sentence_figure(truncated(found, 0), 0))[".svg"])


def test_a_figure_that_cannot_be_drawn_leaves_everything_as_it_was(
    found: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "curse.png").write_bytes(b"of an earlier study")

    def fails(_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(figures, "FIGURES", {"curse": FIGURES["curse"], "cost": fails})
    with pytest.raises(RuntimeError):
        draw_figures(found, tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"of an earlier study"]


def test_markers_keep_their_distance_and_end_with_the_last_beam_size() -> None:
    assert [SIZES[place] for place in marked(SIZES)] == [1, 2, 3, 4, 5, 21]
    many = [*range(1, 11), 14, 15, 16, 20, 30, 39, 40, 41, 50, 60, 80]
    even, odd = marked(many, 0), marked(many, 1)
    assert set(even) & set(odd) == {len(many) - 1}


def test_names_are_spread_without_overlaps_and_in_order() -> None:
    heights = [0.3, 0.2, 0.5, 0.2]
    centres = spread([1.9, 1.9, 0.1, 0.1], heights, 2.0)
    edges = [(centre + height / 2, centre - height / 2) for centre, height in zip(centres, heights, strict=True)]
    assert edges[0][0] <= 2.0 + 1e-9
    assert edges[-1][1] >= -1e-9
    assert all(upper[1] >= lower[0] - 1e-9 for upper, lower in pairwise(edges))
