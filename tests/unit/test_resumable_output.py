"""An output in shards is whole in the end, whatever interrupts it, and touches nothing that is not its own."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from uncurse import UncurseError
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import Shard

SHARDS = [Shard(0, 1, ("a", "b")), Shard(1, 3, ("c",)), Shard(2, 4, ("d", "e"))]
SETTINGS = {"model": "some model", "beam_size": "3"}
OTHER_SETTINGS = {"model": "some model", "beam_size": "5", "score": "bp-norm"}


def joined(contents: Iterator[bytes], file: Any) -> None:
    file.writelines(contents)


def made(number: int, settings: dict[str, str] = SETTINGS) -> bytes:
    return f"shard {number} with {settings}\n".encode()


def whole(settings: dict[str, str] = SETTINGS) -> bytes:
    return b"".join(made(number, settings) for number in range(len(SHARDS)))


def begin(folder: Path, numbers: Iterable[int]) -> Path:
    """An output that was left after some shards; the folder of its shards."""
    with ResumableOutput(folder / "out", SETTINGS, resume=False) as output:
        for number in numbers:
            output.add(SHARDS[number], made(number))
    return output.folder


def run(folder: Path, settings: dict[str, str] = SETTINGS, resume: bool = True) -> None:
    """Make an output from beginning to end."""
    with ResumableOutput(folder / "out", settings, resume) as output:
        for shard in SHARDS:
            if not output.has(shard):
                output.add(shard, made(shard.number, settings))
        output.finish(len(SHARDS), joined)


def test_output_appears_whole_and_in_order(tmp_path: Path) -> None:
    with ResumableOutput(tmp_path / "out", SETTINGS, resume=False) as output:
        for number in (2, 0, 1):
            output.add(SHARDS[number], made(number), {"truncated_outputs": number})
        assert not (tmp_path / "out").exists()
        output.finish(3, joined)
    assert (tmp_path / "out").read_bytes() == whole()
    assert output.counts == {"truncated_outputs": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_only_what_is_missing_or_damaged_is_done_again(tmp_path: Path) -> None:
    folder = begin(tmp_path, [0, 1, 2])
    (folder / "000001").write_bytes(b"shard 2\n")
    (folder / "000002").unlink()
    with ResumableOutput(tmp_path / "out", SETTINGS, resume=True) as again:
        assert [again.has(shard) for shard in SHARDS] == [True, False, False]
        with pytest.raises(UncurseError, match="000001 is damaged"):
            again.finish(3, joined)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parts"]


def test_what_was_counted_is_known_after_resuming(tmp_path: Path) -> None:
    with ResumableOutput(tmp_path / "out", SETTINGS, resume=False) as output:
        output.add(SHARDS[0], b"A\nB\n", {"short_n_best": 2})
    with ResumableOutput(tmp_path / "out", SETTINGS, resume=True) as output:
        assert output.has(SHARDS[0])
        output.add(SHARDS[1], b"C\n", {"short_n_best": 1})
        assert output.counts == {"short_n_best": 3}


def test_unfinished_work_is_never_thrown_away_or_mixed_up(tmp_path: Path) -> None:
    folder = begin(tmp_path, [0, 1])
    with pytest.raises(UncurseError, match="resume it, or remove the folder"):
        run(tmp_path, resume=False)
    with ResumableOutput(tmp_path / "out", SETTINGS, resume=True) as output:
        with pytest.raises(UncurseError, match=r"has changed since .* was made: at line 3 or later"):
            output.has(Shard(1, 3, ("x",)))
        with pytest.raises(UncurseError, match="shorter than when"):
            output.finish(1, joined)
    (folder / "000001.json").write_bytes(b'{"lines": 1')
    with pytest.raises(UncurseError, match=r"000001\.json is damaged"):
        run(tmp_path)
    assert sorted(path.name for path in folder.iterdir() if path.name != ".lock") == [
        "000000", "000000.json", "000001", "000001.json", "manifest.json"
    ]  # fmt: skip


def test_other_settings_are_named_one_by_one(tmp_path: Path) -> None:
    begin(tmp_path, [0])
    with pytest.raises(
        UncurseError, match=r"other settings: beam_size was 3, now 5; score was None, now bp-norm$"
    ):
        run(tmp_path, OTHER_SETTINGS)


def test_a_folder_of_the_user_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out.parts"
    for name, content in (
        ("000000", "mine"),
        ("000000.json", "{}"),
        ("notes.txt", "mine"),
        (".film.part", "mine"),
        (".film.123.part", "mine"),
        ("manifest.json", "{}"),
    ):
        folder.mkdir()
        (folder / name).write_text(content, encoding="utf-8")
        for resume in (True, False):
            with pytest.raises(
                UncurseError, match=r"out\.parts already exists|manifest\.json is damaged or is not"
            ):
                run(tmp_path, resume=resume)
        assert (folder / name).read_text(encoding="utf-8") == content
        assert [path.name for path in folder.iterdir()] == [name]
        shutil.rmtree(folder)
    assert not list(tmp_path.iterdir())


def test_what_a_user_put_into_the_folder_survives_it(tmp_path: Path) -> None:
    folder = begin(tmp_path, [0])
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    run(tmp_path)
    assert (tmp_path / "out").read_bytes() == whole()
    assert [path.read_text(encoding="utf-8") for path in tmp_path.rglob("notes.txt")] == ["mine"]


def test_a_link_or_a_file_in_place_of_the_folder_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out.parts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UncurseError, match=r"out\.parts is a link or a file"):
        run(tmp_path)
    (tmp_path / "out.parts").unlink()
    (tmp_path / "out.parts").write_text("mine", encoding="utf-8")
    with pytest.raises(UncurseError, match=r"out\.parts is a link or a file"):
        run(tmp_path)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_two_runs_with_one_output_are_kept_apart(tmp_path: Path) -> None:
    with ResumableOutput(tmp_path / "out", SETTINGS, resume=False) as output:
        with pytest.raises(UncurseError, match="another process is working in"):
            run(tmp_path)
        for shard in SHARDS:
            output.add(shard, made(shard.number))
        with pytest.raises(UncurseError, match="another process is working in"):
            run(tmp_path)
        output.finish(3, joined)
    assert (tmp_path / "out").read_bytes() == whole()


def test_a_start_without_a_shard_leaves_nothing_and_blocks_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with ResumableOutput(tmp_path / "out", OTHER_SETTINGS, resume=False):
            raise UncurseError("line 1 is too long")

    with pytest.raises(UncurseError, match="line 1 is too long"):
        fail()
    assert not list(tmp_path.iterdir())
    folder = begin(tmp_path, [0])
    for path in folder.glob("000000*"):  # as if it had been killed before its first shard was done
        path.unlink()
    run(tmp_path, OTHER_SETTINGS, resume=False)
    assert (tmp_path / "out").read_bytes() == whole(OTHER_SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# What a kill or a full disk leaves.

WRITES = ("open", "fsync", "replace", "rename", "mkdir")
OPERATIONS = (*WRITES, "unlink", "rmdir")


class At:
    """Something that happens at the n-th operation on the file system, or at every one from the n-th on."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        count: int,
        happen: Callable[[], None],
        names: Iterable[str],
        lasting: bool,
    ) -> None:
        self.left, self._happen, self._lasting = count, happen, lasting
        for name in names:
            module = io if name == "open" else os
            patch.setattr(module, name, self._wrapped(getattr(module, name)))

    def _wrapped(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == -1 or (self._lasting and self.left < 0):
                self._happen()
            return operation(*arguments, **options)

        return call


def killed_at(count: int, work: Callable[[], None]) -> bool:
    """Do some work in a child that is killed at the n-th operation; whether it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork and threads; this child starts none
        child = os.fork()
    if not child:
        At(pytest.MonkeyPatch(), count, lambda: os.kill(os.getpid(), signal.SIGKILL), OPERATIONS, lasting=False)
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0
    return os.WIFSIGNALED(status)


@pytest.mark.slow
@pytest.mark.parametrize("begun_with", [[], [0, 1]])
def test_a_kill_at_any_moment_never_mixes_or_loses_anything(tmp_path: Path, begun_with: list[int]) -> None:
    for count in itertools.count():
        folder = tmp_path / str(count)
        folder.mkdir()
        if begun_with:
            begin(folder, begun_with)
        was_killed = killed_at(count, partial(run, folder))
        out = folder / "out"
        assert not out.exists() or out.read_bytes() == whole()
        if was_killed:
            with contextlib.suppress(UncurseError):  # it may be refused, but never mixed up
                run(folder, OTHER_SETTINGS, resume=count % 2 == 0)
        if not out.exists() or out.read_bytes() != whole(OTHER_SETTINGS):
            run(folder)
            assert out.read_bytes() == whole()
        assert {path.name for path in folder.iterdir() if not path.name.startswith(".out.")} == {"out"}
        run(folder)
        assert [path.name for path in folder.iterdir()] == ["out"]  # what a killed process left is cleaned up
        if not was_killed:
            break
    assert count > 20


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [True, False])
def test_a_full_disk_at_any_write_leaves_what_can_be_resumed(tmp_path: Path, lasting: bool) -> None:
    full = partial(_raise, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    for count in itertools.count():
        folder = tmp_path / str(count)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            at = At(patch, count, full, WRITES, lasting)
            with contextlib.suppress(OSError):
                run(folder)
        assert not (folder / "out").exists() or (folder / "out").read_bytes() == whole()
        run(folder)
        assert (folder / "out").read_bytes() == whole()
        assert [path.name for path in folder.iterdir()] == ["out"]
        if at.left >= 0:
            break
    assert count > 15


def _raise(error: OSError) -> None:
    raise error
