"""A corpus translated shard by shard, by whichever engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import final

from uncurse.engines.local import Engine, Failed
from uncurse.loading import load
from uncurse.parts import Parts
from uncurse.records import Style
from uncurse.shards import Shard
from uncurse.text.corpora import Form, write_corpus
from uncurse.translator import Task, Translator


@final
@dataclass(frozen=True)
class Opening:
    """How a worker comes to its translator."""

    model: str | None
    device: str = "cpu"
    dtype: str = "float32"
    source_lang: str | None = None
    target_lang: str | None = None
    without_script: str | None = None

    def __call__(self) -> Translator:
        """Load it."""
        languages = self.source_lang, self.target_lang
        return load(self.model, self.device, self.dtype, *languages, self.without_script)


@final
@dataclass(frozen=True)
class Work:
    """A shard to be translated by a given model."""

    shard: Shard
    task: Task
    style: Style
    signature: str

    def __call__(self, translator: Translator) -> bytes:
        """What is written for the lines."""
        if translator.signature != self.signature:
            raise ValueError("the models of the workers are not the same")
        translations = translator.shard(self.shard, self.task)
        written = (
            self.style.line(translation, number)
            for number, translation in enumerate(translations, start=self.shard.first - 1)
        )
        return "".join(f"{line}\n" for line in written).encode()


def translate_corpus(
    engine: Engine,
    opening: Callable[[], Translator],
    works: Iterable[Work],
    parts: Parts,
    form: Form,
    report: Callable[[Shard], None],
) -> list[tuple[Shard, str]]:
    """Translate what is missing and put the output together; shards that failed are given back, with the reason.

    If one failed there is no output: what is done stays with the parts.
    """
    count = 0

    def missing() -> Iterator[tuple[Shard, Work]]:
        nonlocal count
        for work in works:
            count += 1
            if parts.has(work.shard):
                report(work.shard)
            else:
                yield work.shard, work

    failures = []
    for shard, content in engine.done(opening, missing()):
        if isinstance(content, Failed):
            failures.append((shard, content.reason))
        else:
            parts.add(shard, content)
            report(shard)
    if not failures:
        parts.finish(count, lambda contents, file: write_corpus(form, contents, file))
    return failures
