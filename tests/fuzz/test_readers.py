"""No damaged file does anything but read as before, read as something that works, or be refused in a line.

This is a sample, and all that was ever found; `make fuzz` goes on for ten minutes.
"""

from __future__ import annotations

import faulthandler
import os
import time
from pathlib import Path

import pytest
from fuzz import sandbox
from fuzz.__main__ import damaged
from fuzz.readers import Files, readers
from fuzz.sandbox import Outcome, Sandbox
from hypothesis import given, settings

CORPUS = Path(__file__).parent / "corpus"
KEPT = sorted(CORPUS.glob("*/*"))  # a folder with the damaged file, under the name of its reader


@pytest.mark.slow
@pytest.mark.parametrize("name", readers())
def test_damage_is_refused_or_does_none(name: str) -> None:
    reader = readers()[name]
    with Sandbox(reader.read) as sandbox:

        @settings(max_examples=30, derandomize=True, database=None)
        @given(damaged(reader))
        def examples(files: Files) -> None:
            verdict = reader.verdict(sandbox, files)
            assert verdict.outcome is not Outcome.FAULT, verdict.words

        examples()


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.parent.name}-{kept.name}")
def test_what_was_a_fault_once_is_none_again(kept: Path) -> None:
    reader = readers()[kept.parent.name]
    changed = {str(path.relative_to(kept)): path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    with Sandbox(reader.read) as sandbox:
        verdict = reader.verdict(sandbox, {**reader.files, **changed})
    assert verdict.outcome is not Outcome.FAULT, verdict.words


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda folder: str(1 // 0), "ZeroDivisionError"),
        (lambda folder: str(len(bytes(1 << 40))), "MemoryError"),
        (lambda folder: str(len(b"x" * (200 << 20))), "MB were taken for 0 bytes"),
        (lambda folder: _abort(), "SIGABRT"),
    ],
)
def test_the_sandbox_sees_what_it_should(tmp_path: Path, read: object, words: str) -> None:
    with Sandbox(read) as sandbox:  # type: ignore[arg-type]
        for _ in range(2):  # and goes on
            verdict = sandbox.tried(tmp_path, "")
            assert verdict.outcome is Outcome.FAULT
            assert words in verdict.words


def test_the_sandbox_limits_cpu_time_and_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a reader may take long, if it does little."""
    for seconds, wait, read, words in (
        (0.2, 60, lambda folder: str(sum(iter(int, 1))), "SIGPROF"),  # endless
        (60, 1, lambda folder: _slept(60), "SIGALRM"),
        (0.2, 60, lambda folder: _slept(0.5), ""),
    ):
        monkeypatch.setattr(sandbox, "SECONDS", seconds)
        monkeypatch.setattr(sandbox, "WAIT", wait)
        with Sandbox(read) as tried:
            verdict = tried.tried(tmp_path, "slept")
        assert (verdict.outcome is Outcome.FAULT) == bool(words)
        assert words in verdict.words


def _slept(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def _abort() -> str:
    faulthandler.disable()  # it would print as if a test had crashed
    os.abort()
