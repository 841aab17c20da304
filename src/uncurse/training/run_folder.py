"""The folder of a training run, as one of its processes sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

from uncurse.files import held, sweep, write_whole
from uncurse.text.subwords import Subwords
from uncurse.training.checkpoint import Checkpoint, parse_checkpoint, save_checkpoint
from uncurse.training.log import Log
from uncurse.training.processes import Processes

LAST: Final = "last.safetensors"
BEST: Final = "best.safetensors"


@final
class RunFolder:
    """Subword models, checkpoints and the log.

    The first process alone touches the disk; the others need not have it, and get from the first what they need.
    """

    def __init__(self, path: Path, processes: Processes) -> None:
        self.path = path
        self._processes = processes

    @property
    def model(self) -> Path:
        """Where the model is in the end."""
        return self.path / "model"

    def subwords(self, name: str, train: Callable[[], Subwords]) -> Subwords:
        """The subword model of that name; if there is none, one is trained."""
        content = b""
        if self._processes.first:
            path = self.path / name
            if not path.exists():
                trained = train()
                self.path.mkdir(parents=True, exist_ok=True)
                write_whole(path, trained.model)
            content = path.read_bytes()
        try:
            return Subwords(self._processes.from_first(content))
        except ValueError as error:
            raise ValueError(f"{self.path / name}: {error}") from error

    def save(self, name: str, checkpoint: Checkpoint) -> None:
        """Write a checkpoint."""
        if self._processes.first:
            save_checkpoint(self.path / name, checkpoint)

    def begin(self, start: Checkpoint) -> Checkpoint:
        """The last checkpoint. A new run saves where it starts, and all processes start from the same weights."""
        path, content = self.path / LAST, b""
        if self._processes.first:
            if not path.exists():
                save_checkpoint(path, start)
            content = path.read_bytes()
        checkpoint = parse_checkpoint(self._processes.from_first(content), path)
        _check(path, checkpoint.facts, start.facts)
        return checkpoint

    def log(self, step: int) -> Log | None:
        """The history of the run up to a step; nothing for those who do not write it."""
        return Log(self.path, step) if self._processes.first else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs away, and begin with whole files."""
        if self._processes.first:
            with held(self.path):
                sweep(self.path)
                sweep(self.model)
                yield
        else:
            yield


def _check(path: Path, facts: dict[str, Any], mine: dict[str, Any]) -> None:
    """A folder keeps to what decides its weights."""
    if facts.get("recipe") != mine["recipe"]:
        raise ValueError(f"{path} was trained by another recipe: use another folder")
    if facts.get("text", mine["text"]) != mine["text"]:
        raise ValueError(f"{path} was trained on other text or subwords: use another folder")
    if (count := facts.get("processes", 1)) != mine["processes"]:
        raise ValueError(
            f"{path} was trained by {count} and not by {mine['processes']} processes, which would round"
            " differently: start as many, on fewer machines if need be, or use another folder"
        )
