"""A corpus translated shard by shard, by whichever executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import final

from uncurse.errors import UncurseError
from uncurse.executors.local import Executor, JobFailure
from uncurse.text.corpus_formats import CorpusFormat, write_corpus
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import Style
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import Shard
from uncurse.translation.translator import Translator


@final
@dataclass(frozen=True)
class ShardJob:
    """A shard to be translated by a given model."""

    shard: Shard
    options: TranslationOptions
    style: Style
    signature: str

    def __call__(self, translator: Translator) -> bytes:
        """What is written for the lines."""
        if translator.signature != self.signature:
            raise UncurseError("the models of the workers are not the same")
        translations = translator.translate_shard(self.shard, self.options)
        written = (
            self.style.line(translation, number)
            for number, translation in enumerate(translations, start=self.shard.first - 1)
        )
        return "".join(f"{line}\n" for line in written).encode()


def translate_corpus(
    executor: Executor,
    setup: Callable[[], Translator],
    jobs: Iterable[ShardJob],
    output: ResumableOutput,
    form: CorpusFormat,
    report: Callable[[Shard], None],
) -> list[tuple[Shard, str]]:
    """Translate what is missing and put the output together; failed shards are returned, with the reason.

    If one failed there is no output: what is done stays in the output's folder.
    """
    count = 0

    def missing() -> Iterator[tuple[Shard, ShardJob]]:
        nonlocal count
        for job in jobs:
            count += 1
            if output.has(job.shard):
                report(job.shard)
            else:
                yield job.shard, job

    failures = []
    for shard, content in executor.map(setup, missing()):
        if isinstance(content, JobFailure):
            failures.append((shard, content.reason))
        else:
            output.add(shard, content)
            report(shard)
    if not failures:
        output.finish(count, partial(write_corpus, form))
    return failures
