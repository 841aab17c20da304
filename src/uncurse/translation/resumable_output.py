"""Output that is written shard by shard, in any order, and put together when all of it is there."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, final

from uncurse.errors import UncurseError
from uncurse.storage.atomic import atomic_file, atomic_write, folder_lock, read_regular_file, remove_partial
from uncurse.storage.checksums import dump_checksummed, load_checksummed
from uncurse.storage.strict_json import read_json
from uncurse.translation.shards import Shard

MANIFEST: Final = "manifest.json"
SHARD_KEYS: Final = ("settings", "lines", "input", "output", "counts")
MAX_SHARD_BYTES: Final = 1 << 30
_SHARD: Final = re.compile(r"\d{6,}")
_SHARD_MANIFEST: Final = re.compile(r"\d{6,}\.json")
_OTHERS: Final = re.compile(r"\.(manifest\.json|\d{6,}(\.json)?)\.\d+\.part|\.lock")  # written besides


@final
class ResumableOutput:
    """A folder beside the output, with a file for each shard and a manifest that vouches for it.

    The folder's manifest has the settings with which the shards are made. A shard's manifest has a checksum of the
    same settings and of its input and output: a shard counts as done if all of them are right, so a run can go on
    wherever it was interrupted. The output gets its name when it is whole; then the folder goes. One process works
    in the folder at a time, and only a folder that carries the manifest is ever touched.
    """

    def __init__(self, out: Path, settings: Mapping[str, str], resume: bool) -> None:
        self.folder = _folder_of(out)
        self.counts: Counter[str] = Counter()  # of all shards that are done
        self._out = out
        self._settings = dict(settings)
        self._digest = sha256(json.dumps(self._settings, sort_keys=True).encode()).hexdigest()[:16]
        self._resume = resume
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        _check_is_ours(self.folder)
        self.folder.mkdir(exist_ok=True)
        self._lock.enter_context(folder_lock(self.folder))
        try:
            remove_partial(self.folder)
            self._begin()
        except BaseException:
            self._leave()
            raise
        self._clean_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    @property
    def is_begun(self) -> bool:
        """Whether the folder holds a shard."""
        return has_unfinished_shards(self._out)

    def has(self, shard: Shard) -> bool:
        """Whether a shard is done; what is missing, damaged or made with other settings is not."""
        path = self._shard_manifest(shard.number)
        if not path.exists():
            return False
        known = _read(path, SHARD_KEYS)
        if known["settings"] != self._digest:
            return False
        if known["input"] != shard.digest:
            raise UncurseError(f"the input has changed since {self.folder} was made: at {shard.place(0)} or later")
        if self._content(shard.number, known) is None:
            return False
        self.counts.update(known["counts"])
        return True

    def add(self, shard: Shard, content: bytes, counts: Mapping[str, int] | None = None) -> None:
        """Keep what was made of a shard, and what was counted in it."""
        atomic_write(self._shard_file(shard.number), content)
        manifest = {
            "settings": self._digest,
            "lines": len(shard.lines),
            "input": shard.digest,
            "output": sha256(content).hexdigest(),
            "counts": dict(counts or {}),
        }
        atomic_write(self._shard_manifest(shard.number), dump_checksummed(manifest))  # last: now the shard is done
        self.counts.update(counts or {})

    def finish(self, count: int, write: Callable[[Iterator[bytes], BinaryIO], None]) -> None:
        """Put so many shards together, in the order of the input."""
        if self._shard_manifest(count).exists():
            raise UncurseError(f"the input is shorter than when {self.folder} was made")
        with atomic_file(self._out) as file:
            write((self._checked(number) for number in range(count)), file)
        # Half a folder must not be taken for a whole one, so it loses its name before anything in it is removed.
        removed = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.removed")
        self.folder.rename(removed)
        _remove(removed)
        if removed.exists():  # a user has put something into it
            removed.rename(self.folder)

    def _begin(self) -> None:
        path = self.folder / MANIFEST
        if path.exists():
            known = _read(path, ("settings",))["settings"]
            if self.is_begun:
                if not self._resume:
                    raise UncurseError(f"{self.folder} holds unfinished work: resume it, or remove the folder")
                if known != self._settings:
                    raise UncurseError(f"{self.folder} was made with other settings: {self._differences(known)}")
                return
        atomic_write(path, dump_checksummed({"settings": self._settings}))

    def _clean_up(self) -> None:
        """Remove what processes that were killed while they finished this output have left beside it."""
        partial = re.compile(rf"\.{re.escape(self._out.name)}\.\d+\.part")
        for path in self.folder.parent.iterdir():
            if partial.fullmatch(path.name):
                path.unlink(missing_ok=True)
        remove_abandoned(self._out)

    def _differences(self, known: Mapping[str, str]) -> str:
        names = dict.fromkeys((*known, *self._settings))
        return "; ".join(
            f"{name} was {known.get(name)}, now {self._settings.get(name)}"
            for name in names
            if known.get(name) != self._settings.get(name)
        )

    def _leave(self) -> None:
        """Unlock the folder; one without a shard is of no use to anyone."""
        with self._lock:
            if _names(self.folder) and not self.is_begun:
                _remove(self.folder)

    def _checked(self, number: int) -> bytes:
        content = self._content(number, _read(self._shard_manifest(number), SHARD_KEYS))
        if content is None:
            raise UncurseError(f"{self._shard_file(number)} is damaged: resume to translate it again")
        return content

    def _content(self, number: int, manifest: Mapping[str, Any]) -> bytes | None:
        try:
            content = read_regular_file(self._shard_file(number), MAX_SHARD_BYTES)
        except FileNotFoundError:
            return None
        return content if sha256(content).hexdigest() == manifest["output"] else None

    def _shard_file(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _shard_manifest(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"


def has_unfinished_shards(out: Path) -> bool:
    """Whether there is work on an output that can be resumed."""
    return any(map(_SHARD_MANIFEST.fullmatch, _names(_folder_of(out))))


def remove_abandoned(out: Path) -> None:
    """Remove folders beside an output that were left when a process was killed after it had finished."""
    folder = _folder_of(out)
    removed = re.compile(rf"\.{re.escape(folder.name)}\.\d+\.removed")
    for path in folder.parent.iterdir():
        if removed.fullmatch(path.name):
            _remove(path)


def _folder_of(out: Path) -> Path:
    return out.with_name(out.name + ".parts")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []


def _check_is_ours(folder: Path) -> None:
    """Refuse a folder that was not made here, or is none."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UncurseError(
            f"{folder} is a link or a file, but unfinished work is kept there: choose another output"
        )
    names = _names(folder)
    if MANIFEST in names:
        _read(folder / MANIFEST, ("settings",))
    elif not all(map(_OTHERS.fullmatch, names)):
        raise UncurseError(f"{folder} already exists and was not made by this command: choose another output")


def _remove(folder: Path) -> None:
    """Remove what this class writes, the manifest of the folder last; anything else stays, with the folder."""
    names = _names(folder)
    if MANIFEST in names or all(map(_OTHERS.fullmatch, names)):
        for kind in (_SHARD_MANIFEST, _SHARD, _OTHERS, re.compile(re.escape(MANIFEST))):
            for name in filter(kind.fullmatch, names):
                (folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()


def _read(path: Path, names: Sequence[str]) -> dict[str, Any]:
    try:
        content = load_checksummed(read_json(path))
        if content.keys() != {*names}:
            raise UncurseError("its keys are wrong")
        return content
    except UncurseError as error:
        raise UncurseError(f"{path} is damaged or is not a manifest: {error}") from error
