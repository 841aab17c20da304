"""The notebook runs from top to bottom, offline, and its stored outputs are those that it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from uncurse import SCORES

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_the_notebook_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    names: dict[str, Any] = {}
    cells = json.loads((EXAMPLES / "quick-start.ipynb").read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate(each for each in cells if each["cell_type"] == "code"):
        exec(compile("".join(cell["source"]), f"cell {number + 1}", "exec", dont_inherit=True), names)
        shown = "".join(text for each in cell["outputs"] for text in each.get("text", ()))
        printed = capsys.readouterr().out
        assert words(printed) == words(shown)
    SCORES.unregister("gaussian")
    raw, default = names["found"].values()
    assert raw[-1].bleu < default[-1].bleu
    assert raw[-1].ratio < 0.9 < default[-1].ratio


def words(text: str) -> list[str]:
    """The words without numbers and signatures, which may differ on other CPUs."""
    return [word for word in text.split() if word.isalpha()]
