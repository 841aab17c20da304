"""Disks of every size, and with room for any number of files: what is written is complete, or can be resumed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.letter_model import LetterEncoder, LetterWords
from support.toy_corpus import write_checkpointing_task

from uncurse.cli import main
from uncurse.lengths.predictors import FixedRatio
from uncurse.translation import shards
from uncurse.translation.translator import Translator

PAGES = 4096  # bytes; a tmpfs grows by so many
MANY = 100_000  # files
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LetterEncoder(seed=1, vocab_size=7, ending=1.0)
    translator = Translator(model, LetterWords(), LetterWords(), FixedRatio(1.5))
    monkeypatch.setattr("uncurse.cli.translate_task.load_translator", lambda options: translator)
    monkeypatch.setattr(shards, "COST", 300)


@contextmanager
def mounted(folder: Path, pages: int, files: int) -> Iterator[None]:
    options = f"size={pages * PAGES},nr_inodes={files}"
    mount = [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("this user may not mount a small disk")
    except FileNotFoundError:
        pytest.skip("there is no command to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_a_disk_of_any_size_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{'a b c d e f'[: 1 + 2 * (index % 6)]}\n" for index in range(60)), encoding="utf-8")

    def translate(folder: Path, *options: str) -> int:
        capsys.readouterr()
        try:
            main(["translate", str(lines), "-b", "2", "--out", str(folder / name), *options])
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    assert translate(tmp_path) == 0
    whole = (tmp_path / name).read_bytes()
    disk = tmp_path / "disk"
    disk.mkdir()
    statuses = set()
    for pages, files in [(pages, MANY) for pages in range(1, 30)] + [(1000, files) for files in range(2, 20)]:
        with mounted(disk, pages, files):
            statuses.add(status := translate(disk))
            if status:
                assert status == 2
                assert capsys.readouterr().err.endswith(": No space left on device\n")
                assert name not in names(disk)
            else:
                assert (disk / name).read_bytes() == whole
                assert names(disk) == [name]
            room = f"remount,size={1000 * PAGES},nr_inodes={MANY}"
            subprocess.run(["mount", "-o", room, str(disk)], check=True)
            assert translate(disk, "--resume") == 0
            assert (disk / name).read_bytes() == whole
            assert names(disk) == [name]
    assert statuses == {0, 2}


@pytest.mark.parametrize("share", [0.3, 0.9])  # of what a run takes: not enough for a checkpoint, or for the model
def test_training_on_a_full_disk_is_resumed_to_the_same_model(tmp_path: Path, share: float) -> None:
    recipe = write_checkpointing_task(tmp_path, lines=40)

    def train(folder: Path) -> subprocess.CompletedProcess[str]:
        paths = [str(recipe), "--data", str(tmp_path), "--out", str(folder)]
        command = [sys.executable, "-m", "uncurse", "train", *paths, "--threads", "1"]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def model(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / "model").iterdir()}

    assert train(tmp_path / "whole").returncode == 0
    taken = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.is_file())
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, int(share * taken / PAGES), MANY):
        full = train(disk / "run")
        assert full.returncode == 2
        assert "No space left on device" in full.stderr.splitlines()[-1]
        assert "Traceback" not in full.stderr
        subprocess.run(["mount", "-o", f"remount,size={4 * taken}", str(disk)], check=True)
        assert train(disk / "run").returncode == 0
        assert model(disk / "run") == model(tmp_path / "whole")
