"""Output that is written shard by shard, in any order, and put together when all of it is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, final

from uncurse.errors import UncurseError
from uncurse.storage.atomic import atomic_file, atomic_write
from uncurse.storage.checksums import dump_checksummed, load_checksummed
from uncurse.storage.strict_json import read_json
from uncurse.translation.shards import Shard

MANIFEST: Final = "manifest.json"
SHARD_KEYS: Final = ("lines", "input", "output")


@final
class ResumableOutput:
    """A folder beside the output, with a file for each shard and a manifest that vouches for it.

    The manifest of a shard has the number of lines and checksums of input and output; that of the folder has the
    settings with which the shards were made. A shard counts as done if its file is what its manifest says, so a
    run can go on wherever it was interrupted. The output gets its name when it is whole; then the folder goes.
    """

    def __init__(self, out: Path, settings: str, resume: bool) -> None:
        self._out = out
        self.folder = out.with_name(out.name + ".parts")
        manifest = self.folder / MANIFEST
        if manifest.exists():
            if not resume:
                raise UncurseError(f"{self.folder} has work that was not finished: resume it, or remove it")
            known = _read(manifest, ("settings",))["settings"]
            if known != settings:
                raise UncurseError(f"{self.folder} was made with other settings: {known} and not {settings}")
        else:
            self.folder.mkdir(exist_ok=True)
            atomic_write(manifest, dump_checksummed({"settings": settings}))

    def has(self, shard: Shard) -> bool:
        """Whether a shard is done; what is missing or damaged is not."""
        manifest = self._manifest(shard.number)
        if not manifest.exists():
            return False
        known = _read(manifest, SHARD_KEYS)
        if known["input"] != shard.digest:
            raise UncurseError(
                f"the input is not the one that {self.folder} was made from: line {shard.first} or later"
            )
        return self._content(shard.number, known) is not None

    def add(self, shard: Shard, content: bytes) -> None:
        """Keep what was made of a shard."""
        atomic_write(self._file(shard.number), content)
        known = {"lines": len(shard.lines), "input": shard.digest, "output": sha256(content).hexdigest()}
        atomic_write(self._manifest(shard.number), dump_checksummed(known))  # last: with it the shard is done

    def finish(self, count: int, write: Callable[[Iterator[bytes], BinaryIO], None]) -> None:
        """Put so many shards together, in the order of the input."""
        if self._manifest(count).exists():
            raise UncurseError(f"the input is shorter than the one that {self.folder} was made from")
        with atomic_file(self._out) as file:
            write((self._checked(number) for number in range(count)), file)
        shutil.rmtree(self.folder)

    def _checked(self, number: int) -> bytes:
        content = self._content(number, _read(self._manifest(number), SHARD_KEYS))
        if content is None:
            raise UncurseError(f"{self._file(number)} is damaged: resume to make it again")
        return content

    def _content(self, number: int, manifest: dict[str, Any]) -> bytes | None:
        try:
            content = self._file(number).read_bytes()
        except FileNotFoundError:
            return None
        return content if sha256(content).hexdigest() == manifest["output"] else None

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _manifest(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"


def _read(path: Path, names: Sequence[str]) -> dict[str, Any]:
    try:
        content = load_checksummed(read_json(path))
        if content.keys() != {*names}:
            raise UncurseError("it has other keys than it should")
        return content
    except ValueError as error:
        raise UncurseError(f"{path} is damaged: remove it, and resume to make its shard again: {error}") from error
