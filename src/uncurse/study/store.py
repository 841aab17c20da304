"""Traces of a test set on disk, recorded shard by shard: what was broken off goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar, final

from uncurse.decoding import Sentence, Slots, beam_signature
from uncurse.files import write_whole
from uncurse.jsonfile import read_json, sealed_json, unsealed
from uncurse.model import State, StepModel
from uncurse.search import record
from uncurse.trace import Trace
from uncurse.tracefile import load_traces, save_traces
from uncurse.translator import recorded_in_vain
from uncurse.version import VERSION

SHARD: Final = 32  # sentences that are lost at most when a run is killed
ROWS: Final = 640  # prefixes that are given to the model together

S = TypeVar("S", bound=State)


@final
@dataclass(frozen=True)
class Recording:
    """One exhaustive search of a test set at one width, and everything that decides its contents.

    Sentences are searched in shards of like length that depend on the set alone, and a shard is done whole or not
    at all: which of them an earlier run had finished changes nothing, not even the last bit.
    """

    model: str  # signature
    sentences: tuple[Sentence, ...]
    width: int
    slots: Slots = Slots.OCCUPY
    threads: int = 1  # products are added up in another order with more
    again: tuple[int, ...] | None = None  # the limit of each sentence if it is searched in vain

    @cached_property
    def key(self) -> str:
        """The name of its folder."""
        beams = ((each.source, *self.signatures(index)) for index, each in enumerate(self.sentences))
        return f"{self.width}-{sha256(f'{SHARD} {ROWS} {self.threads} {tuple(beams)}'.encode()).hexdigest()[:20]}"

    def signatures(self, index: int) -> tuple[str, ...]:
        """What decides the beam of a sentence, and that of its second search."""
        each = self.sentences[index]
        limits = (each.limit,) if self.again is None else (each.limit, self.again[index])
        return tuple(
            beam_signature(VERSION, self.model, self.width, self.slots, limit, each.min_length, each.prefix)
            for limit in limits
        )

    def searching(self, shard: int) -> Searching:
        """What is to be done for a shard."""
        indices = self.shards[shard]
        again = None if self.again is None else tuple(self.again[index] for index in indices)
        sentences = tuple(self.sentences[index] for index in indices)
        return Searching(self.model, sentences, self.width, self.slots, again)

    @cached_property
    def shards(self) -> tuple[tuple[int, ...], ...]:
        """Which sentences are searched together."""
        order = sorted(range(len(self.sentences)), key=lambda index: len(self.sentences[index].source))
        return tuple(tuple(order[start : start + SHARD]) for start in range(0, len(order), SHARD))

    def rows(self, shard: int) -> int:
        """How often the model is asked for a prefix, at most, in first searches."""
        return sum(self.sentences[index].limit for index in self.shards[shard]) * self.width


@final
@dataclass(frozen=True)
class Searching:
    """A shard to be searched; a piece of work for any process that has the model."""

    model: str  # signature
    sentences: tuple[Sentence, ...]
    width: int
    slots: Slots
    again: tuple[int, ...] | None

    def __call__(self, model: StepModel[S]) -> tuple[list[Trace], float]:
        """The traces and the seconds they took."""
        if model.signature != self.model:
            raise ValueError("the models of the workers are not the same")
        start = time.perf_counter()
        traces = self._record(model, self.sentences)
        if self.again is not None:
            pairs = zip(traces, self.again, strict=True)
            vain = [
                place
                for place, (trace, limit) in enumerate(pairs)
                if limit > trace.limit and recorded_in_vain(trace)
            ]
            wider = [replace(self.sentences[place], limit=self.again[place]) for place in vain]
            for place, trace in zip(vain, self._record(model, wider), strict=True):
                traces[place] = trace
        return traces, time.perf_counter() - start

    def _record(self, model: StepModel[S], sentences: Sequence[Sentence]) -> list[Trace]:
        return record(model, sentences, self.width, self.slots, max(1, ROWS // self.width))


@final
class Store:
    """A folder of recordings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def missing(self, recording: Recording) -> list[int]:
        """The shards that have not been searched."""
        return [
            shard for shard in range(len(recording.shards)) if not self._path(recording, shard, "npz").exists()
        ]

    def open_work(self, recording: Recording) -> Iterator[tuple[int, Searching]]:
        """The shards that have not been searched, and what is to be done for each."""
        for shard in self.missing(recording):
            yield shard, recording.searching(shard)

    def keep(self, recording: Recording, shard: int, found: tuple[list[Trace], float]) -> None:
        """Write what was found for a shard."""
        traces, seconds = found
        path = self._path(recording, shard, "npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path.with_suffix(".json"), sealed_json({"seconds": seconds}))
        save_traces(path, traces)  # last: with it the shard counts as done

    def record(self, model: StepModel[S], recording: Recording) -> Iterator[int]:
        """Search what is missing, and say each shard when it is on disk."""
        for shard, searching in self.open_work(recording):
            self.keep(recording, shard, searching(model))
            yield shard

    def load(self, recording: Recording) -> list[Trace]:
        """The traces of all sentences, in their order."""
        traces: dict[int, Trace] = {}
        for shard, indices in enumerate(recording.shards):
            path = self._path(recording, shard, "npz")
            try:
                found = load_traces(path)
            except ValueError as error:
                raise ValueError(f"{error}; remove it and run the study again") from error
            if len(found) != len(indices) or not all(
                trace.source_length == len(recording.sentences[index].source)
                and trace.signature in recording.signatures(index)
                for trace, index in zip(found, indices, strict=True)
            ):
                raise ValueError(f"{path} holds the traces of another search; remove it and run the study again")
            traces.update(zip(indices, found, strict=True))
        return [traces[index] for index in range(len(recording.sentences))]

    def seconds(self, recording: Recording) -> float:
        """How long the search took."""
        paths = (self._path(recording, shard, "json") for shard in range(len(recording.shards)))
        return sum(_seconds(path) for path in paths)

    def _path(self, recording: Recording, shard: int, suffix: str) -> Path:
        return self._folder / recording.key / f"{shard:04d}.{suffix}"


def _seconds(path: Path) -> float:
    try:
        said = unsealed(read_json(path))
        if said.keys() != {"seconds"} or type(said["seconds"]) is not float:
            raise ValueError("it does not say how long the search took")
    except ValueError as error:
        raise ValueError(f"{path}: {error}; remove it with its traces and run the study again") from error
    return float(said["seconds"])
