"""Models on the Hugging Face hub: found by name and revision, Marian models run by the runtime here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.tiny_marian import tiny_weights, tokenizer_model, write_ctranslate2, write_huggingface

from uncurse.errors import UncurseError
from uncurse.models.hub import hub_folder, is_hub_name, parse_hub_name
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions

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
    with pytest.raises(UncurseError, match=r"this needs: pip install 'uncurse\[huggingface\]'"):
        hub_folder("Helsinki-NLP/opus-mt-de-en")


class Hub:
    """A hub with one repository, whose files are copied into the cache as they are asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.remote, self.cache = folder / "remote", folder / ("3" * 40)
        self.cache.mkdir()
        self.downloads = 0
        monkeypatch.setattr("huggingface_hub.snapshot_download", self.snapshot_download)

    def snapshot_download(self, _: str, revision: str | None, allow_patterns: list[str]) -> str:
        assert revision in (None, self.cache.name)
        self.downloads += 1
        for path in self.remote.iterdir():
            if any(fnmatch(path.name, pattern) for pattern in allow_patterns):
                shutil.copy(path, self.cache)
        return str(self.cache)


def load(dtype: str = "float32") -> Any:
    return load_model(ModelOptions("Helsinki-NLP/opus-mt-de-en", dtype=dtype)).model


def test_a_pickle_is_fetched_only_if_there_are_no_safetensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path, monkeypatch)
    write_huggingface(hub.remote, tiny_weights())
    torch.save(load_file(hub.remote / "model.safetensors"), hub.remote / "pytorch_model.bin")
    (hub.remote / "code.py").write_text("raise SystemExit")
    safe = load().features([(5, 6)])
    assert {path.name for path in hub.cache.iterdir()} == {
        "config.json", "model.safetensors", "vocab.json", "source.spm", "target.spm"
    }  # fmt: skip
    for folder in (hub.remote, hub.cache):
        (folder / "model.safetensors").unlink()
    assert (load().features([(5, 6)]) == safe).all()
    downloads = hub.downloads
    assert (load().features([(5, 6)]) == safe).all()
    assert hub.downloads == downloads + 1  # the pickle is in the cache


def test_a_poisoned_pickle_of_the_hub_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, ran = Hub(tmp_path, monkeypatch), tmp_path / "ran"
    write_huggingface(hub.remote, tiny_weights())
    (hub.remote / "model.safetensors").unlink()

    class Poison:
        def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
            return os.mkdir, (str(ran),)

    torch.save({"model.shared.weight": Poison()}, hub.remote / "pytorch_model.bin")
    with pytest.raises(UncurseError, match=r"pytorch_model\.bin is refused: .*mkdir"):
        load()
    assert not ran.exists()


def test_a_ctranslate2_model_of_the_hub_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(tmp_path, monkeypatch)
    write_ctranslate2(hub.remote, tiny_weights(int8=True))
    (hub.remote / "source.spm").write_bytes(tokenizer_model())
    assert "int8" in load(dtype="int8").signature


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("GatedRepoError", "it is gated; accept its terms on its page, then log in with hf auth login"),
        ("RepositoryNotFoundError", "there is no such repository, or it is private and you are not logged in"),
        ("RevisionNotFoundError", "it has no revision v2"),
        (
            "LocalEntryNotFoundError",
            "it is not in the cache, and the hub cannot be reached or HF_HUB_OFFLINE is set",
        ),
    ],
)
def test_what_the_hub_refuses_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, kind: str, reason: str) -> None:
    from huggingface_hub import errors

    class Response:
        headers: dict[str, str] = {}  # noqa: RUF012
        request = None
        status_code = 401

    def refused(*_: object, **__: object) -> str:
        error: Any = getattr(errors, kind)
        if kind == "LocalEntryNotFoundError":
            raise error("an outgoing call\nwas disabled")
        raise error("401 Client Error. (Request ID: x)\n\nmore", response=Response())

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    with pytest.raises(UncurseError) as caught:
        hub_folder("owner/name@v2")
    assert str(caught.value) == f"owner/name@v2 cannot be had from the Hugging Face hub: {reason}"
