"""The demo, with few verses and small beams, where OPUS-MT cannot be downloaded."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from uncurse import UncurseError

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "demo", module)
    spec.loader.exec_module(module)
    few = tmp_path / "few.tsv"
    few.write_text("".join(DEMO.with_name("verses.tsv").read_text("utf-8").splitlines(True)[:10]), "utf-8")
    monkeypatch.setattr(module, "VERSES", few)
    monkeypatch.setattr(module, "BEAM_SIZES", (2, 30))
    return module


@pytest.mark.slow
def test_the_demo_goes_on_without_opus(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(name: str) -> None:
        raise UncurseError(f"{name}: no network")

    monkeypatch.setattr(demo, "download", refuse)
    demo.main()
    shown = capsys.readouterr().out
    for method in demo.METHODS:
        assert shown.count(method.name) >= 3  # in the table, in the plot for each beam size
    assert "opus-mt-zh-en is left out, since it cannot be downloaded: opus-mt-zh-en: no network" in " ".join(
        shown.split()
    )
    assert shown.rstrip().endswith("docs/models.md says which")


def test_every_verse_has_two_references() -> None:
    lines = DEMO.with_name("verses.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    assert len(rows) == 80
    assert all(len(row) == 3 and all(row) for row in rows)
