"""What a study asks of its model, done by any executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from uncurse.executors.local import Executor, JobFailure
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions, TranslationModel
from uncurse.study.study import Study
from uncurse.study.trace_store import Recording

ANSWERS: Final = "reference scores and exact searches"


@final
@dataclass(frozen=True)
class LoadStepModel:
    """What a worker sets up: the model."""

    options: ModelOptions

    def __call__(self) -> TranslationModel[Any]:
        """Load it."""
        return load_model(self.options).model


@final
@dataclass(frozen=True)
class StudyJob:
    """A part of a study: a shard of a recording, or a question."""

    name: str
    rows: int  # that the model is run on, at most, where it is a search
    place: tuple[Recording, int] | Path


def missing_jobs(study: Study) -> Iterator[tuple[StudyJob, Callable[[TranslationModel[Any]], Any]]]:
    """What has not been done."""
    for name, recording in study.recordings():
        for shard, job in study.traces.jobs(recording):
            words = f"{name}, beam size {recording.beam_size}"
            yield StudyJob(words, recording.rows(shard), (recording, shard)), job
    for path, question in study.reference_scores.jobs(tuple(study.test_sets.values())):
        yield StudyJob(ANSWERS, 0, path), question


def run_study(
    study: Study, executor: Executor, setup: Callable[[], TranslationModel[Any]]
) -> Iterator[tuple[StudyJob, JobFailure | None]]:
    """Do what is missing; give each part when it is on disk, or with the reason why it failed."""
    for job, found in executor.map(setup, missing_jobs(study)):
        if isinstance(found, JobFailure):
            yield job, found
            continue
        if isinstance(job.place, Path):
            study.reference_scores.save(job.place, found)
        else:
            study.traces.save(*job.place, found)
        yield job, None
