"""The figures of a study: which there are, that they are the same each time, and what missing data does."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image

from uncurse.study import figures
from uncurse.study.drawing import LOOKS, marked, settings, spread
from uncurse.study.figures import FIGURES, draw_figures, draw_sentence
from uncurse.study.methods import METHODS

NAMES = {"curse", "ends", "methods", "methods-dev", "deciles", "speed", "faults", "limits", "tuning", "sentence"}
WIDTHS = [1, 2, 3, 4, 5, 19, 20, 21]
PREDICTING = {method.name for method in METHODS if method.predicts}


def measures(number: int, width: int) -> dict[str, float]:
    """A made-up point of a curve."""
    return {
        "bleu": 20 + number / 3 - (width / 10 if number == 0 else 0),
        "brevity_penalty": 1 - width / 100,
        "ratio": 1.05 - width / 100 + number / 100,
        "empty": width / 1000 if number == 0 else 0.0,
        "repeating": 0.01 * number,
        "rows": 30.0 * width + number,
    }


def curves(number: int) -> list[dict[str, float]]:
    return [{"width": width, **measures(number, width)} for width in WIDTHS]


def sentence(index: int) -> dict[str, Any]:
    """A sentence on which the methods choose `index + 1` different candidates."""
    points = [[10 + place, -5.0 - place / 2] for place in range(12 + index)]
    choices = {
        method.name: {
            "text": f"candidate {number % (index + 1)}",
            "length": points[number % (index + 1)][0],
            "log_prob": points[number % (index + 1)][1],
        }
        for number, method in enumerate(METHODS)
    }
    return {"source": "源", "predicted": 15.25, "limit": 24, "points": points, "choices": choices}


def tuning() -> dict[str, Any]:
    rewards = [[0.0], [0.5], [1.0]]
    pairs = [[alpha, beta] for alpha in (0.0, 0.5, 1.0) for beta in (0.0, 0.2)]
    names = ("word-reward", "bounded-ratio", "bounded")
    found = [{"name": name, "values": rewards, "bleu": [20.0, 21.0, 19.0], "best": [0.5]} for name in names]
    found.append({"name": "gnmt", "values": pairs, "bleu": [20.0, 21, 22, 23, 22, 21], "best": [0.5, 0.2]})
    return {"curves": found, "perceptron": {"word-reward": 0.7, "bounded-ratio": 9.0}}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    names = {method.name: number for number, method in enumerate(METHODS)}
    ends = {"sentences": 3, "widths": WIDTHS[2:], "positions": [[30 - w, 32 - w, 33 - w] for w in WIDTHS[2:]]}
    limits = {"predicted": 12.0, "q0.5": 11.5, "2x+10": 30.0}
    return {
        "widths": WIDTHS,
        "groups": {"small": [4, 5], "large": [19, 20, 21]},
        "focus": 20,
        "methods": [{"name": method.name, "label": method.label} for method in METHODS],
        "sets": {"dev": {"lines": 4}, "test": {"lines": 4}},
        "curves": {name: {each: curves(number) for each, number in names.items()} for name in ("dev", "test")},
        "ends": {"dev": ends, "test": ends},
        "deciles": {
            each: [{"source_length": 5.0 + tenth, "bleu": 20.0 + number, "ratio": 1.0} for tenth in range(10)]
            for each, number in names.items()
        },
        "tuning": {"small": tuning(), "large": tuning()},
        "limits": [
            {"limit": limit, "method": each, "stop": stop, "mean_limit": mean, "measures": measures(number, 5)}
            for limit, mean in limits.items()
            for each, number in names.items()
            for stop in ("optimal", "predicted-horizon")
        ],
        "limits_width": 5,
        "sentences": [sentence(0), sentence(8), sentence(3)],
    }


def without_predictor(data: dict[str, Any]) -> dict[str, Any]:
    """What a model without a length predictor and without attention leaves."""
    less = copy.deepcopy(data)
    less["methods"] = [method for method in less["methods"] if method["name"] not in PREDICTING]
    parts = [*less["curves"].values(), less["deciles"], *(each["choices"] for each in less["sentences"])]
    for part in parts:
        for name in PREDICTING:
            del part[name]
    less["limits"] = [
        cell for cell in less["limits"] if cell["method"] not in PREDICTING and cell["stop"] == "optimal"
    ]
    for group in less["tuning"].values():
        group["curves"] = [curve for curve in group["curves"] if curve["name"] not in PREDICTING]
        group["curves"][-1] |= {"values": [[0.0, 0.0], [0.5, 0.0]], "bleu": [20.0, 21.0], "best": [0.5, 0.0]}
    for each in less["sentences"]:
        each["predicted"] = None
    return less


def texts_of(path: Path) -> list[str]:
    found = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(each.itertext()) for each in found]


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Draw some figures, for the sake of time."""
    monkeypatch.setattr(figures, "FIGURES", {name: FIGURES[name] for name in names})


@pytest.fixture(scope="module")
def drawn(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "figures"
    paths = draw_figures(data, folder)
    assert sorted(paths) == sorted(folder.iterdir())
    return folder


def test_every_figure_is_a_small_picture_of_both_kinds(drawn: Path) -> None:
    assert {path.name for path in drawn.iterdir()} == {
        f"{name}{kind}" for name in NAMES for kind in (".png", ".svg")
    }
    assert set(FIGURES) == NAMES
    for name in NAMES:
        with Image.open(drawn / f"{name}.png") as picture:
            picture.load()
            assert picture.size[0] == 525
            assert picture.info["dpi"] == pytest.approx((150, 150), abs=0.1)
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
            assert {"Software", "Creation Time"}.isdisjoint(picture.info)
        svg = (drawn / f"{name}.svg").read_bytes()
        assert len(svg) < 100_000
        assert b"<dc:date>" not in svg
        assert texts_of(drawn / f"{name}.svg")


def test_the_same_data_gives_the_same_bytes_in_another_process(
    data: dict[str, Any], drawn: Path, tmp_path: Path
) -> None:
    (tmp_path / "page.json").write_text(json.dumps(data), encoding="utf-8")
    code = (
        "import json, sys; from pathlib import Path; from uncurse.study.figures import draw_figures;"
        "folder = Path(sys.argv[1]); draw_figures(json.loads((folder / 'page.json').read_text()), folder / 'out')"
    )
    surroundings = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "0"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=surroundings)
    assert digests(tmp_path / "out") == digests(drawn)


def test_the_settings_of_matplotlib_neither_matter_nor_change(
    data: dict[str, Any], drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "curse", "tuning", "sentence")
    with matplotlib.rc_context({"font.size": 20.0, "axes.facecolor": "black", "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        draw_figures(data, tmp_path)
        assert dict(matplotlib.rcParams) == before
    assert digests(tmp_path).items() <= digests(drawn).items()


def test_figures_say_what_they_show(drawn: Path) -> None:
    for name in ("methods", "methods-dev", "deciles", "speed", "faults"):
        assert {look.label for look in LOOKS.values()} <= set(texts_of(drawn / f"{name}.svg")), name
    assert {"BLEU", "brevity penalty", "length ratio", "beam width"} <= set(texts_of(drawn / "curse.svg"))
    assert {"dev: 3 of 4 sentences", "first </s>", "third </s>"} <= set(texts_of(drawn / "ends.svg"))
    assert {"q0.5 (12)", "2x+10 (30)"} <= set(texts_of(drawn / "limits.svg"))
    assert {"small beams (4–5)", "GNMT α", "GNMT β", "reward r"} <= set(texts_of(drawn / "tuning.svg"))


def test_no_text_lies_on_another_or_leaves_its_figure(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, Bbox]] = []
    draw = Text.draw

    def noting(text: Text, renderer: RendererBase) -> None:
        if (
            text.get_visible() and text.get_text() and text.get_rotation() in (0, 90)
        ):  # boxes of others are too large
            found.append((text.get_text(), text.get_window_extent(renderer)))
        draw(text, renderer)

    monkeypatch.setattr(Text, "draw", noting)
    for name, make in FIGURES.items():
        with settings():
            figure = make(data)
            assert figure is not None
            figure.draw_without_rendering()
            found.clear()  # what was noted before the layout was known
            figure.draw_without_rendering()
        width, height = figure.bbox.size
        for place, (text, box) in enumerate(found):
            assert 0 <= box.x0 < box.x1 <= width, (name, text)
            assert 0 <= box.y0 < box.y1 <= height, (name, text)
            assert not [other for other, its in found[:place] if box.overlaps(its)], (name, text)


def test_the_sentence_is_the_one_on_which_methods_agree_least(drawn: Path) -> None:
    texts = texts_of(drawn / "sentence.svg")
    assert "test sentence 2, beam width 20" in texts
    assert {"predicted 15.2", "limit 24", *(look.label for look in LOOKS.values())} <= set(texts)


def test_every_method_has_a_look_of_its_own() -> None:
    assert set(LOOKS) == {method.name for method in METHODS}
    for part in ("label", "colour", "marker"):
        assert len({getattr(look, part) for look in LOOKS.values()}) == len(METHODS)


def test_a_model_without_predictor_and_attention_still_gets_every_figure(
    data: dict[str, Any], tmp_path: Path
) -> None:
    draw_figures(without_predictor(data), tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == NAMES
    for path in tmp_path.glob("*.svg"):
        texts = set(texts_of(path))
        assert texts.isdisjoint(LOOKS[name].label for name in PREDICTING), path.name
    assert "GNMT β" not in texts_of(tmp_path / "tuning.svg")
    assert not any(text.startswith("predicted") for text in texts_of(tmp_path / "sentence.svg"))


def test_what_has_no_data_is_left_out(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "curse", "ends", "limits", "tuning", "sentence", "speed")
    bare = copy.deepcopy(data)
    del bare["curves"]["dev"]["raw"], bare["curves"]["test"]["raw"]
    for ends in bare["ends"].values():
        ends["sentences"] = 0
    bare |= {"limits": [], "sentences": [], "tuning": {}}
    draw_figures(bare, tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {"speed"}


def test_one_width_is_enough(data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "curse", "ends", "speed")
    narrow = copy.deepcopy(data)
    narrow["widths"] = [5]
    for each in narrow["curves"].values():
        for name, rows in each.items():
            each[name] = [row for row in rows if row["width"] == 5]
    for ends in narrow["ends"].values():
        ends["widths"], ends["positions"] = [5], [[25.0, 27.0, 28.0]]
    draw_figures(narrow, tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {"curse", "ends", "speed"}


def test_a_method_that_is_not_known_is_drawn_too(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, "methods")
    more = copy.deepcopy(data)
    more["methods"].append({"name": "new", "label": "a new method"})
    more["curves"]["test"]["new"] = curves(4)
    draw_figures(more, tmp_path)
    assert "a new method" in texts_of(tmp_path / "methods.svg")


def test_a_sentence_where_nothing_finished_says_so(data: dict[str, Any], tmp_path: Path) -> None:
    cut = copy.deepcopy(data)
    cut["sentences"][0] |= {"points": []}
    for choice in cut["sentences"][0]["choices"].values():
        choice["log_prob"] = None
    png, svg = draw_sentence(cut, 0, tmp_path / "some.1")
    assert (png.name, svg.name) == ("some.1.png", "some.1.svg")
    assert "nothing finished:" in texts_of(svg)


@pytest.mark.parametrize("index", [-1, 3])
def test_a_sentence_that_does_not_exist_is_refused(data: dict[str, Any], tmp_path: Path, index: int) -> None:
    with pytest.raises(ValueError, match=rf"sentence {index} does not exist: there are 0 to 2"):
        draw_sentence(data, index, tmp_path / "sentence")
    assert not list(tmp_path.iterdir())


def test_a_figure_that_cannot_be_drawn_leaves_everything_as_it_was(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "curse.png").write_bytes(b"of an earlier study")

    def fails(_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(figures, "FIGURES", {"curse": FIGURES["curse"], "ends": fails})
    with pytest.raises(RuntimeError):
        draw_figures(data, tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"of an earlier study"]


def test_markers_keep_their_distance_and_end_with_the_last_width() -> None:
    assert [WIDTHS[place] for place in marked(WIDTHS)] == [1, 2, 3, 4, 5, 21]
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
