"""A folder that one process has to itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from uncurse.files import held, sweep, write_whole


def test_a_folder_is_held_once_and_free_again_after_an_error(tmp_path: Path) -> None:
    def work(error: type[BaseException]) -> None:
        with held(tmp_path):
            with pytest.raises(ValueError, match="another process is at work in"), held(tmp_path):
                pass
            raise error

    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error):
            work(error)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    write_whole(tmp_path / "whole", b"whole")
    (tmp_path / "mine.part").write_bytes(b"mine")
    (tmp_path / ".whole.123.part").write_bytes(b"who")
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "mine.part"}
