"""What a study asks of its model, done by whichever engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from uncurse.engines.local import Engine, Failed
from uncurse.loading import open_model
from uncurse.study.opened import Study
from uncurse.study.store import Recording
from uncurse.translator import Encoding

PROBES: Final = "references and exact searches"


@final
@dataclass(frozen=True)
class Opening:
    """How a worker comes to the model."""

    model: str
    dtype: str

    def __call__(self) -> Encoding[Any]:
        """Load it."""
        return open_model(self.model, dtype=self.dtype).model


@final
@dataclass(frozen=True)
class Part:
    """A part of a study: a shard of a recording, or a question."""

    name: str
    rows: int  # that the model is asked for, at most, where it is a search
    place: tuple[Recording, int] | Path


def open_parts(study: Study) -> Iterator[tuple[Part, Callable[[Encoding[Any]], Any]]]:
    """What has not been done."""
    for name, recording in study.recordings():
        for shard, searching in study.store.open_work(recording):
            yield (
                Part(f"{name}, width {recording.width}", recording.rows(shard), (recording, shard)),
                searching,
            )
    for path, question in study.probes.open_work(tuple(study.materials.values())):
        yield Part(PROBES, 0, path), question


def run_study(study: Study, engine: Engine, opening: Callable[[], Encoding[Any]]) -> Iterator[tuple[Part, str]]:
    """Do what is missing; give each part when it is on disk, or with the reason why it failed."""
    for part, found in engine.done(opening, open_parts(study)):
        if isinstance(found, Failed):
            yield part, found.reason
            continue
        if isinstance(part.place, Path):
            study.probes.keep(part.place, found)
        else:
            study.store.keep(*part.place, found)
        yield part, ""
