"""Files that are whole or not there, folders for one process, and reading within bounds."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import uncurse
from uncurse import UncurseError
from uncurse.serving.server import read_token
from uncurse.storage.atomic import atomic_file, atomic_write, folder_lock, read_regular_file, remove_partial
from uncurse.storage.checksums import CHECKSUM, dump_checksummed, load_checksummed
from uncurse.storage.strict_json import parse_json, read_json
from uncurse.text.parquet_rows import read_rows
from uncurse.training.checkpoint import load_checkpoint
from uncurse.training.log import read_log


def test_a_folder_is_locked_once_and_free_again_after_an_error(tmp_path: Path) -> None:
    def work(error: type[BaseException]) -> None:
        with folder_lock(tmp_path):
            with pytest.raises(UncurseError, match="another process is working in"), folder_lock(tmp_path):
                pass
            raise error

    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error):
            work(error)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    atomic_write(tmp_path / "whole", b"whole")
    (tmp_path / "mine.part").write_bytes(b"mine")
    (tmp_path / ".mine.part").write_bytes(b"mine")
    (tmp_path / ".whole.123.part").write_bytes(b"who")
    remove_partial(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "mine.part", ".mine.part"}


def test_a_write_that_fails_leaves_what_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"before")

    def fail() -> None:
        with atomic_file(path) as file:
            file.write(b"after")
            raise OSError(errno.ENOSPC, "the disk is full")

    with pytest.raises(OSError, match="full") as full:
        fail()
    assert full.value.filename == str(path)  # and not the temporary one, or none
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_only_regular_files_of_a_sane_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(UncurseError, match="file has more than 4 bytes"):
        read_regular_file(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UncurseError, match=f"{path} is not a regular file"):
            read_regular_file(path, 1000)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none", 1000)


def read_parquet(path: Path) -> object:
    return next(read_rows(path, "text", "id"))


@pytest.mark.parametrize("read", [load_checkpoint, read_log, read_token, read_json, read_parquet])
def test_no_reader_waits_for_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UncurseError, match="pipe is not a regular file"):
        read(tmp_path / "pipe")


# Text can come from a pipe; the rest was written or verified just before, or comes with the program.
READ_OTHERWISE = {
    "cli/env.py",
    "models/archive.py",
    "scoring/registry.py",
    "storage/atomic.py",
    "study/baseline/phrase_based.py",
    "study/baseline/phrase_learning.py",
    "study/report/plot_style.py",
    "text/corpus_formats.py",
    "text/lines.py",
    "web/document.py",
}


def test_files_are_read_by_one_function() -> None:
    """A new reader must refuse devices and pipes, too."""
    root = Path(uncurse.__file__).parent
    reads = re.compile(r"read_bytes\(\)|read_text\(|(?<!\bos)(?<!archive)(?<!history)\.open\((?!.*\"[wx])")
    found = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if reads.search(path.read_text())}
    assert found - READ_OTHERWISE == set()


def test_nothing_reads_the_time_of_day() -> None:
    """So nothing breaks when a clock is set back, and no output depends on when it was made."""
    root = Path(uncurse.__file__).parent
    wall = re.compile(r"\btime\.(time|localtime|gmtime|strftime)\(|datetime\.(now|utcnow|today)|st_mtime|getmtime")
    assert not [path for path in root.rglob("*.py") if wall.search(path.read_text(encoding="utf-8"))]


def test_a_checksum_detects_every_change() -> None:
    content = {"seconds": 1.25, "names": ["a", "雨"], "none": None}
    written = dump_checksummed(content)
    assert load_checksummed(parse_json(written)) == content
    for position in range(len(written)):
        changed = written[:position] + bytes([written[position] ^ 1]) + written[position + 1 :]
        try:
            assert load_checksummed(parse_json(changed)) == content  # white space
        except ValueError:
            continue


@pytest.mark.parametrize("content", [[], None, {"a": 1}, {"a": 1, CHECKSUM: None}, {CHECKSUM: "0"}])
def test_a_table_without_its_checksum_is_refused(content: object) -> None:
    with pytest.raises(UncurseError):
        load_checksummed(content)
