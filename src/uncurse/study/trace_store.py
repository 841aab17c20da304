"""Traces of a test set on disk, recorded shard by shard, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar, final

from uncurse.errors import UncurseError
from uncurse.lengths.policy import hit_max_length
from uncurse.scoring.decoding import Sentence, Slots, beam_signature
from uncurse.search.record import record
from uncurse.search.step_model import State, StepModel
from uncurse.search.trace import Trace
from uncurse.search.trace_file import load_traces, save_traces
from uncurse.storage.atomic import atomic_write
from uncurse.storage.strict_json import read_json
from uncurse.version import VERSION

SHARD_SIZE: Final = 32  # sentences: at most so many are lost when a run is killed
BATCH_ROWS: Final = 640  # prefixes that the model is given together

S = TypeVar("S", bound=State)


@final
@dataclass(frozen=True)
class Recording:
    """One exhaustive search of a test set at one beam size, and everything that decides its contents.

    Sentences are searched in shards of similar length that depend on the set alone, and a shard is done whole or
    not at all. So it makes no difference, not even in the last bit, which of them an earlier run had finished.
    """

    model: str  # signature
    sentences: tuple[Sentence, ...]
    beam_size: int
    slots: Slots = Slots.OCCUPY
    threads: int = 1  # more of them add up sums in another order
    retry_max_lengths: tuple[int, ...] | None = None  # R of each sentence if it is searched again

    @cached_property
    def key(self) -> str:
        """The name of its folder."""
        beams = tuple((each.source, *self.signatures(index)) for index, each in enumerate(self.sentences))
        digest = sha256(f"{SHARD_SIZE} {BATCH_ROWS} {self.threads} {beams}".encode()).hexdigest()
        return f"{self.beam_size}-{digest[:20]}"

    def signatures(self, index: int) -> tuple[str, ...]:
        """What decides the beam of a sentence, and that of its second search."""
        each = self.sentences[index]
        again = () if self.retry_max_lengths is None else (self.retry_max_lengths[index],)
        return tuple(
            beam_signature(
                VERSION, self.model, self.beam_size, self.slots, max_length, each.min_length, each.prefix
            )
            for max_length in (each.max_length, *again)
        )

    def job(self, shard: int) -> RecordShard:
        """The search of a shard."""
        indices = self.shards[shard]
        again = self.retry_max_lengths
        return RecordShard(
            model=self.model,
            sentences=tuple(self.sentences[index] for index in indices),
            beam_size=self.beam_size,
            slots=self.slots,
            retry_max_lengths=None if again is None else tuple(again[index] for index in indices),
        )

    @cached_property
    def shards(self) -> tuple[tuple[int, ...], ...]:
        """Which sentences are searched together."""
        order = sorted(range(len(self.sentences)), key=lambda index: len(self.sentences[index].source))
        return tuple(tuple(order[start : start + SHARD_SIZE]) for start in range(0, len(order), SHARD_SIZE))

    def rows(self, shard: int) -> int:
        """How many prefixes the model is run on, at most, in first searches."""
        return sum(self.sentences[index].max_length for index in self.shards[shard]) * self.beam_size


@final
@dataclass(frozen=True)
class RecordShard:
    """The search of a shard: a job for any process that has the model."""

    model: str  # signature
    sentences: tuple[Sentence, ...]
    beam_size: int
    slots: Slots
    retry_max_lengths: tuple[int, ...] | None

    def __call__(self, model: StepModel[S]) -> tuple[list[Trace], float]:
        """The traces and the seconds that they took."""
        if model.signature != self.model:
            raise UncurseError("the models of the workers are not the same")
        start = time.perf_counter()
        traces = self._record(model, self.sentences)
        retries = [
            (place, replace(self.sentences[place], max_length=second))
            for place, (trace, second) in enumerate(zip(traces, self.retry_max_lengths or (), strict=False))
            if second > trace.max_length and hit_max_length(trace, trace.max_length)
        ]
        again = self._record(model, [sentence for _, sentence in retries])
        for (place, _), trace in zip(retries, again, strict=True):
            traces[place] = trace
        return traces, time.perf_counter() - start

    def _record(self, model: StepModel[S], sentences: Sequence[Sentence]) -> list[Trace]:
        return record(model, sentences, self.beam_size, self.slots, max(1, BATCH_ROWS // self.beam_size))


@final
class TraceStore:
    """A folder of recordings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def missing(self, recording: Recording) -> list[int]:
        """The shards that have not been searched."""
        return [
            shard for shard in range(len(recording.shards)) if not self._path(recording, shard, "npz").exists()
        ]

    def jobs(self, recording: Recording) -> Iterator[tuple[int, RecordShard]]:
        """The shards that have not been searched, each with its job."""
        for shard in self.missing(recording):
            yield shard, recording.job(shard)

    def save(self, recording: Recording, shard: int, found: tuple[list[Trace], float]) -> None:
        """Write what was found for a shard."""
        traces, seconds = found
        path = self._path(recording, shard, "npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path.with_suffix(".json"), json.dumps({"seconds": seconds}).encode())
        save_traces(path, traces)  # last: with it the shard counts as done

    def record(self, model: StepModel[S], recording: Recording) -> Iterator[int]:
        """Search what is missing; give the number of each shard when it is on disk."""
        for shard, job in self.jobs(recording):
            self.save(recording, shard, job(model))
            yield shard

    def load(self, recording: Recording) -> list[Trace]:
        """The traces of all sentences, in their order."""
        traces: dict[int, Trace] = {}
        for shard, indices in enumerate(recording.shards):
            path = self._path(recording, shard, "npz")
            try:
                found = load_traces(path)
            except UncurseError as error:
                raise UncurseError(f"{error}; remove it and run the study again") from error
            if len(found) != len(indices) or not all(
                trace.source_length == len(recording.sentences[index].source)
                and trace.signature in recording.signatures(index)
                for trace, index in zip(found, indices, strict=True)
            ):
                raise UncurseError(f"{path} holds the traces of another search; remove it and run the study again")
            traces.update(zip(indices, found, strict=True))
        return [traces[index] for index in range(len(recording.sentences))]

    def seconds(self, recording: Recording) -> float:
        """How long the search took."""
        return sum(seconds_of(self._path(recording, shard, "json")) for shard in range(len(recording.shards)))

    def _path(self, recording: Recording, shard: int, suffix: str) -> Path:
        return self._folder / recording.key / f"{shard:04d}.{suffix}"


def seconds_of(path: Path) -> float:
    """What a file says of the time that something took."""
    said = read_json(path)
    seconds = said.get("seconds") if isinstance(said, dict) else None
    if not isinstance(seconds, float | int):
        raise UncurseError(f"{path} does not say how many seconds the search took")
    return float(seconds)
