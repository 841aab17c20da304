"""Output that is written shard by shard, in any order, and put together when all of it is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, final

from uncurse.files import write_whole
from uncurse.jsonfile import SEAL, read_json, sealed_json, unsealed
from uncurse.shards import Shard

MANIFEST: Final = "manifest.json"
NOTED: Final = ("lines", "input", "output")


@final
class Parts:
    """A folder beside the output, with a file for each shard and a note that vouches for it.

    The note has the number of lines and checksums of input and output; the manifest says by which means the shards
    were made. A shard counts as done if its file is what its note says, so a run that was broken off anywhere can
    go on. The output appears under its name when it is whole, and then the folder goes.
    """

    def __init__(self, out: Path, means: str, resume: bool) -> None:
        self._out = out
        self.folder = out.with_name(out.name + ".parts")
        manifest = self.folder / MANIFEST
        if manifest.exists():
            if not resume:
                raise ValueError(f"{self.folder} has work that was not finished: use --resume, or remove it")
            known = _read(manifest, ("means",))["means"]
            if known != means:
                raise ValueError(f"{self.folder} was made in another way: {known} and not {means}")
        else:
            self.folder.mkdir(exist_ok=True)
            write_whole(manifest, sealed_json({"means": means}))

    def has(self, shard: Shard) -> bool:
        """Whether a shard is done; what is missing or damaged is not."""
        note = self._note(shard.number)
        if not note.exists():
            return False
        known = _read(note, NOTED)
        if known["input"] != shard.digest:
            raise ValueError(
                f"the input is not the one that {self.folder} was made from: line {shard.first} or later"
            )
        return self._content(shard.number, known) is not None

    def add(self, shard: Shard, content: bytes) -> None:
        """Keep what was made of a shard."""
        write_whole(self._file(shard.number), content)
        known = {"lines": len(shard.lines), "input": shard.digest, "output": sha256(content).hexdigest()}
        write_whole(self._note(shard.number), sealed_json(known))  # last: with it the shard counts as done

    def finish(self, count: int, write: Callable[[Iterator[bytes], BinaryIO], None]) -> None:
        """Put so many shards together, in the order of the input."""
        if self._note(count).exists():
            raise ValueError(f"the input is shorter than the one that {self.folder} was made from")
        temporary = self._out.with_name(f".{self._out.name}.{os.getpid()}.part")
        try:
            with temporary.open("wb") as file:
                write((self._checked(number) for number in range(count)), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._out)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        shutil.rmtree(self.folder)

    def _checked(self, number: int) -> bytes:
        content = self._content(number, _read(self._note(number), NOTED))
        if content is None:
            raise ValueError(f"{self._file(number)} is damaged: --resume makes it again")
        return content

    def _content(self, number: int, note: dict[str, Any]) -> bytes | None:
        try:
            content = self._file(number).read_bytes()
        except FileNotFoundError:
            return None
        return content if sha256(content).hexdigest() == note["output"] else None

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _note(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"


def _read(path: Path, names: Sequence[str]) -> dict[str, Any]:
    try:
        said = read_json(path)
        if said.keys() != {*names, SEAL}:
            raise ValueError("it says other things than it should")
        return unsealed(said)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged; remove it, and --resume makes its shard again: {error}") from error
