"""A corpus translated shard by shard, by whichever executor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import final

from uncurse.errors import UncurseError
from uncurse.executors.local import Executor, JobFailure
from uncurse.text.corpus_formats import CorpusFormat
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import COUNTED, Style, counts_of
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import Shard
from uncurse.translation.translator import Translator
from uncurse.translation.write_output import write_corpus


@final
@dataclass(frozen=True)
class ShardOutput:
    """What was made of a shard."""

    input: str  # the checksum of the shard
    content: bytes
    counts: Mapping[str, int]

    def check(self, shard: Shard, style: Style) -> None:
        """Raise an `UncurseError` if it is not what was asked for, whatever a worker says."""
        if self.input != shard.digest:
            raise UncurseError("it is for other lines")
        if not isinstance(self.content, bytes):
            raise UncurseError("it has no text")
        style.check(self.content, shard)
        for name, count in self.counts.items():
            if name not in COUNTED or type(count) is not int or not 0 < count <= len(shard.lines):
                raise UncurseError("its counts are wrong")


@final
@dataclass(frozen=True)
class ShardJob:
    """A shard to be translated by a given model."""

    shard: Shard
    options: TranslationOptions
    style: Style
    signature: str
    advance: Callable[[int], None] | None = field(default=None, compare=False)  # told of lines; not on a cluster

    def __call__(self, translator: Translator) -> ShardOutput:
        """What is written for the lines."""
        if translator.signature != self.signature:
            raise UncurseError("a worker has loaded a different model")
        counts: Counter[str] = Counter()
        lines = []
        translations = translator.translate_shard(self.shard, self.options, self.advance)
        for index, translation in enumerate(translations):
            counts += counts_of(translation, self.options.decoding.n_best)
            lines.append(f"{self.style.line(translation, self.shard, index)}\n")
        return ShardOutput(self.shard.digest, "".join(lines).encode(), dict(counts))


def translate_corpus(
    executor: Executor,
    setup: Callable[[], Translator],
    jobs: Iterable[ShardJob],
    output: ResumableOutput,
    corpus_format: CorpusFormat,
    advance: Callable[[int], None],
) -> list[tuple[Shard, str]]:
    """Translate what is missing and put the output together; failed shards are returned, with the reason.

    If one failed there is no output: what is done stays in the output's folder. `advance` is told how many lines
    are done; jobs that tell it themselves are not counted twice.
    """
    count = 0

    def missing() -> Iterator[tuple[ShardJob, ShardJob]]:
        nonlocal count
        for job in jobs:
            count += 1
            if output.has(job.shard):
                advance(len(job.shard.lines))
            else:
                yield job, job

    failures = []
    for job, made in executor.map(setup, missing()):
        if isinstance(made, JobFailure):
            failures.append((job.shard, made.reason))
            continue
        try:
            made.check(job.shard, job.style)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            failures.append((job.shard, f"a worker returned a wrong result: {error}"))
            continue
        output.add(job.shard, made.content, made.counts)
        if job.advance is None:
            advance(len(job.shard.lines))
    if not failures:
        output.finish(count, partial(write_corpus, corpus_format))
    return failures
