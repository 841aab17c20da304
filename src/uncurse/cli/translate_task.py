"""What `uncurse translate` does once its options are understood."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import typer

from uncurse.cli.options import InterruptedRun, use_threads
from uncurse.cli.progress import line_progress
from uncurse.errors import UncurseError
from uncurse.executors.local import Executor, LocalExecutor
from uncurse.executors.ray_cluster import executor_of
from uncurse.models.loaded_model import ModelOptions
from uncurse.text.corpus_formats import STANDARD_INPUT, Corpus, CorpusFormat
from uncurse.translation.options import TranslationOptions
from uncurse.translation.output_settings import output_settings
from uncurse.translation.records import Style, counts_of, warnings_of
from uncurse.translation.resumable_output import ResumableOutput, has_unfinished_shards, remove_abandoned
from uncurse.translation.shards import shards_of
from uncurse.translation.translate_corpus import ShardJob, translate_corpus
from uncurse.translation.translator import Translator, load_translator


@final
@dataclass(frozen=True)
class OutputFile:
    """Where an output goes, and who makes it."""

    path: Path
    resume: bool
    engine: str | None  # None: this process
    workers: int


@final
@dataclass(frozen=True)
class TranslateTask:
    """What is translated, by which model, how, and how it is written."""

    corpus: Corpus
    model: ModelOptions
    options: TranslationOptions
    style: Style
    threads: int

    def __post_init__(self) -> None:
        for path in self.corpus.files:
            if path != STANDARD_INPUT and not os.path.exists(path):  # noqa: PTH110  (a name may be too long)
                hint = "to translate a sentence: echo SENTENCE | uncurse translate"
                raise UncurseError(f"there is no file {path}; {hint}")

    def to_standard_output(self) -> None:
        """Translate lines as they arrive."""
        use_threads(self.threads)
        total = self.corpus.count()
        translator = load_translator(self.model)
        counts: Counter[str] = Counter()
        with line_progress("translated", total, shown=not sys.stdout.isatty()) as advance:
            for shard in shards_of(self.corpus, is_idle=self.corpus.is_idle):
                for index, translation in enumerate(translator.translate_shard(shard, self.options, advance)):
                    typer.echo(self.style.line(translation, shard, index))
                    counts += counts_of(translation, self.options.decoding.n_best)
        _warn(counts)

    def to_file(self, file: OutputFile) -> None:
        """Translate a corpus into a file that appears when it is whole."""
        if file.resume and file.path.exists() and not has_unfinished_shards(file.path):
            remove_abandoned(file.path)
            typer.echo(f"uncurse: {file.path} is already finished; remove it to translate again", err=True)
            return
        if CorpusFormat.of(file.path) is CorpusFormat.PARQUET:
            import pyarrow.parquet  # noqa: F401  (if it is missing, say so before the work and not after it)
        cluster = None
        if file.engine is not None:
            cluster = executor_of(file.engine, file.workers, self.threads, self.model.device)
        threads = use_threads(self.threads or int(cluster is not None))
        total = self.corpus.count()
        translator = load_translator(
            self.model
        )  # on a cluster each worker has its own; this one has the signature
        settings = output_settings(translator.signature, self.options, self.style.name, self.model.device, threads)
        output = ResumableOutput(file.path, settings, file.resume)
        try:
            with output:
                failures = self._translate(translator, output, file.path, total, cluster)
        except KeyboardInterrupt:
            raise InterruptedRun(_how_to_go_on(output)) from None
        _warn(output.counts)
        for place, reason in failures:
            typer.echo(f"uncurse: {place} failed: {reason}", err=True)
        if failures:
            typer.echo(f"uncurse: {_how_to_go_on(output)}", err=True)
            raise typer.Exit(1)

    def _translate(
        self,
        translator: Translator,
        output: ResumableOutput,
        path: Path,
        total: int | None,
        cluster: Executor | None,
    ) -> list[tuple[str, str]]:
        """What has failed, by place, with the reason."""
        setup = (
            (lambda: translator) if cluster is None else partial(load_translator, self.model.with_absolute_paths())
        )
        with line_progress("translated", total) as advance:
            jobs = (
                ShardJob(
                    shard=shard,
                    options=self.options,
                    style=self.style,
                    signature=translator.signature,
                    advance=advance if cluster is None else None,
                )
                for shard in shards_of(self.corpus)
            )
            executor = cluster or LocalExecutor()
            failures = translate_corpus(executor, setup, jobs, output, CorpusFormat.of(path), advance)
        return [(f"{shard.place(0)} to {shard.place(len(shard.lines) - 1)}", reason) for shard, reason in failures]


def _how_to_go_on(output: ResumableOutput) -> str:
    if not output.is_begun:
        return "no part of it was finished, so nothing is kept"
    return f"the finished part is in {output.folder}; run the same command with --resume to continue"


def _warn(counts: Mapping[str, int]) -> None:
    for warning in warnings_of(counts):
        typer.echo(f"uncurse: {warning}", err=True)
