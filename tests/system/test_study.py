"""A study with the model in the box, from the command line, broken off again and again."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PLAN = """
title = "A small study"
model = "zh-en-small"
widths = [1, 2]
small = [3]
large = [4, 5]
baseline_width = 2
limits = ["predicted", "q0.95"]
exact = 2
exact_budget = 20
[tuning]
rewards = [0.0, 0.5]
alphas = [0.2]
betas = [0.0]
[dev]
source = "dev.zh"
references = ["dev.en"]
[test]
source = "test.zh"
references = ["test.en"]
"""
SENTENCES = [
    ("我们要去山上。", "we will go up the mountain"),
    ("他对我说话。", "he spoke to me"),
    ("请打开这个文件。", "please open this file"),
    ("孩子们在河边吃饼。", "the children eat bread by the river"),
    ("王听见这话，就起来。", "when the king heard this he arose"),
]
ROUNDS = 8  # every sentence in several lengths, so that there is more than one shard


def write_plan(folder: Path) -> None:
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    for name, turn in (("dev", 0), ("test", 1)):
        pairs = [SENTENCES[(each + turn) % len(SENTENCES)] for each in range(ROUNDS * len(SENTENCES))]
        for side, suffix in enumerate(("zh", "en")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")


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


def test_a_study_that_is_killed_ten_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    write_plan(tmp_path)
    start = time.perf_counter()
    finished(tmp_path, "run", "whole")
    seconds = time.perf_counter() - start
    chance = random.Random(5)
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
    assert "longest limit" in shown
    process = started(tmp_path, "report", "out")
    errors = process.communicate(timeout=100)[1]
    assert process.returncode == 2
    assert "have not been decoded" in errors
