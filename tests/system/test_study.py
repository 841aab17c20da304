"""A study of the bundled model from the command line, killed again and again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from support.kill_rounds import each_round
from support.small_study import PLAN, write_plan

pytestmark = pytest.mark.slow


def started(folder: Path, command: str, out: str) -> subprocess.Popen[str]:
    arguments = ["study", command, str(folder / "plan.toml"), "--data", str(folder), "--out", str(folder / out)]
    return subprocess.Popen(
        [Path(sys.executable).with_name("uncurse"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(folder: Path, command: str, out: str) -> str:
    process = started(folder, command, out)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


@each_round
def test_a_study_that_is_killed_ten_times_ends_with_the_same_bytes(tmp_path: Path, chance: Random) -> None:
    write_plan(tmp_path)
    start = time.perf_counter()
    finished(tmp_path, "run", "whole")
    seconds = time.perf_counter() - start
    killed = 0
    while killed < 10:
        process = started(tmp_path, "run", "broken")
        try:
            process.communicate(timeout=chance.uniform(0.3, 0.7) * seconds)
            shutil.rmtree(tmp_path / "broken")  # it came to its end: once more from the start
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += 1
    finished(tmp_path, "run", "broken")
    for out in ("whole", "broken"):
        assert "open" in finished(tmp_path, "report", out)
    assert tables(tmp_path / "whole") == tables(tmp_path / "broken")
    for suffix in ("png", "svg"):
        for path in (tmp_path / "whole" / "figures").glob(f"*.{suffix}"):
            assert path.read_bytes() == (tmp_path / "broken" / "figures" / path.name).read_bytes()
    pages = [(tmp_path / out / "report.html").read_bytes() for out in ("whole", "broken")]
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title", "titel", "unknown key 'titel'; did you mean 'title'?"),
        ('"dev.zh"', '"none.zh"', "none.zh"),
        ('"zh-en-small"', '"zh-en-smal"', "zh-en-smal"),
        ('"dev.en"', '"plan.toml"', "has 40 lines and"),
    ],
)
def test_a_wrong_plan_is_one_line_and_status_2(tmp_path: Path, old: str, new: str, message: str) -> None:
    write_plan(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN.replace(old, new), encoding="utf-8")
    process = started(tmp_path, "run", "out")
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 2
    assert message in errors
    assert errors.count("\n") == 1
    assert output == ""


def test_a_plan_says_what_it_will_cost_and_a_report_needs_traces(tmp_path: Path) -> None:
    write_plan(tmp_path)
    shown = finished(tmp_path, "plan", "out")
    assert "time left" in shown
    assert "longest max_length" in shown
    assert "exact searches" in shown
    process = started(tmp_path, "report", "out")
    errors = process.communicate(timeout=100)[1]
    assert process.returncode == 2
    assert "have not been decoded" in errors
