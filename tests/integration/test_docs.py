"""The code in the documents runs, and the demo shows what the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from uncurse import RULES, SCORES

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def code_of(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL))


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {*SCORES, *RULES}
    try:
        exec(compile(code_of(page), page.name, "exec", dont_inherit=True), {"__name__": "__main__"})
    finally:
        for registry in (SCORES, RULES):
            for name in set(registry) - before:
                registry.unregister(name)
    assert "nan" not in capsys.readouterr().out


def test_adding_a_score_takes_ten_lines() -> None:
    page = (ROOT / "docs" / "add-a-score.md").read_text(encoding="utf-8")
    first = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        generated = "reference/" in target  # by docs/generate.py; `make docs` checks these
        assert target.startswith("https://") or generated or (page.parent / target).exists(), target


def test_tests_named_in_the_documents_exist() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = [name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))]
    assert len(named) > 5
    for name in named:
        assert f"def {name}(" in code


def test_the_curse_in_miniature_is_as_the_theory_shows_it() -> None:
    shown = subprocess.run(
        [sys.executable, ROOT / "examples" / "curse.py"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "160", "PYTHONIOENCODING": "utf-8"},
    ).stdout
    lines = {re.sub(r"\s{2,}", " | ", line.strip()) for line in shown.splitlines()}
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (log-prob|f1-norm) \| (.+) \| (\w+) \|$", page, flags=re.MULTILINE)
    assert rows
    for beam_size, score, output, certificate in rows:
        found = [line for line in lines if line.startswith(f"{beam_size} | {score} | {output} | ")]
        assert found
        assert found[0].endswith(f"| {certificate}")
