"""Models on the Hugging Face hub: found by name and revision, Marian models run by the runtime here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_marian import tiny_weights, write_huggingface

from uncurse.errors import UncurseError
from uncurse.models.hub import hub_folder, is_hub_name, parse_hub_name

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
COMMITS = {"main": "1" * 40, "v2": "2" * 40}


def lay_cache(cache: Path) -> None:
    """The cache of the hub with a model in two revisions, as huggingface_hub lays it out."""
    repo = cache / "models--Helsinki-NLP--opus-mt-de-en"
    for seed, (revision, commit) in enumerate(COMMITS.items(), start=1):
        write_huggingface(repo / "snapshots" / commit, tiny_weights(seed))
        (repo / "refs").mkdir(exist_ok=True)
        (repo / "refs" / revision).write_text(commit)


def offline(cache: Path, code: str) -> subprocess.CompletedProcess[str]:
    program = (
        "from uncurse.models.load import load_model\nfrom uncurse.models.loaded_model import ModelOptions\n"
        f"def load(name, **options): return load_model(ModelOptions(name, **options)).model\n{code}"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache / "home")}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=cache, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_marian_model_of_the_hub_runs_here_by_revision(tmp_path: Path) -> None:
    lay_cache(tmp_path)
    name = "Helsinki-NLP/opus-mt-de-en"
    code = "\n".join(
        f"print(load({each!r}).signature)" for each in (name, f"{name}@main", f"{name}@v2", f"{name}@{'2' * 40}")
    )
    done = offline(tmp_path, f"{code}\nprint(load({name!r}, dtype='int8').signature)")
    assert done.returncode == 0, done.stderr
    main, named, second, commit, int8 = done.stdout.split()
    assert main.startswith("marian-")
    assert main == named
    assert second == commit != main
    assert "int8" in int8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Helsinki-NLP/opus-mt-xx-yy", "Helsinki-NLP/opus-mt-de-en@v9"])
def test_what_neither_the_cache_nor_the_hub_has_is_one_error(tmp_path: Path, name: str) -> None:
    lay_cache(tmp_path)
    done = offline(tmp_path, f"load({name!r})")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"uncurse.errors.UncurseError: {name} cannot be had from the Hugging Face hub: ")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Helsinki-NLP/opus-mt-de-en", ("Helsinki-NLP/opus-mt-de-en", None)),
        ("Helsinki-NLP/opus-mt-de-en@refs/pr/3", ("Helsinki-NLP/opus-mt-de-en", "refs/pr/3")),
        ("a/b@0123abc", ("a/b", "0123abc")),
    ],
)
def test_a_name_on_the_hub_may_have_a_revision(name: str, expected: tuple[str, str | None]) -> None:
    assert is_hub_name(name)
    assert parse_hub_name(name) == expected


@pytest.mark.parametrize(
    "name", ["opus", "a/b/c", "../b", "./b", "/b", "~/b", "a/..", "a/b@", "a/b@../c", "a b/c", ""]
)
def test_what_is_no_name_on_the_hub_is_told_apart(name: str) -> None:
    assert not is_hub_name(name)
    with pytest.raises(UncurseError, match="is not a name on the hub"):
        parse_hub_name(name)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UncurseError, match=r"need: pip install 'uncurse\[huggingface\]'"):
        hub_folder("Helsinki-NLP/opus-mt-de-en")
