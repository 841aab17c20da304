"""A test of the tests: with a mistake in the core, the suite fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.mutants import CAUGHT_BY, MUTANTS

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_theory_tests_fail_when_a_mistake_is_made(mutant: str, tmp_path: Path) -> None:
    where = f"theory/{CAUGHT_BY[MUTANTS[mutant]]}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "support.mutants", "-p", "no:cacheprovider", where],
        cwd=TESTS,
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "UNCURSE_MUTANT": mutant,
            "HYPOTHESIS_PROFILE": "unshrunk",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert "1 failed" in done.stdout
