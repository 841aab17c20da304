"""The command as a user meets it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from uncurse import RULES, SCORES
from uncurse.registry import parameters_of


def uncurse(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from uncurse.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )


def test_methods_lists_every_registered_method_with_formula_parameters_and_source() -> None:
    done = uncurse("methods")
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    for entry in [*SCORES, *RULES]:
        assert entry.name in words
        assert entry.formula in words
        assert entry.source in words
        for field, parameter in parameters_of(entry.method):
            assert f"{field.name}: {parameter.meaning}; {parameter.range}" in words


@pytest.mark.parametrize("arguments", [["metods"], ["methods", "--colour"], ["methods", "extra"]])
def test_a_wrong_call_is_one_line_and_status_2(arguments: list[str]) -> None:
    done = uncurse(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("uncurse: ")
    assert done.stderr.count("\n") == 1


def test_without_arguments_it_says_what_it_can_do() -> None:
    done = uncurse()
    assert done.returncode == 0
    assert "methods" in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from uncurse.cli import main; main()", "methods"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert done.stderr == b""
