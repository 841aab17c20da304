"""Beam search: the beam, judged online after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.batch import Batch
from uncurse.beam import Beam, Extension
from uncurse.certificate import certify
from uncurse.decoding import Decoding, Sentence, Slots, check_attends, check_predicted, checked_count
from uncurse.judging import Case, Terms, hopeful
from uncurse.model import S, StepModel
from uncurse.rescoring import Paths, needs
from uncurse.result import Optimality, Result
from uncurse.stopping import Evidence, Optimal
from uncurse.trace import Trace


@final
class Search(Generic[S]):
    """A search that is advanced one step at a time; sentences join, are cancelled and leave between steps."""

    def __init__(self, model: StepModel[S], decoding: Decoding) -> None:
        self._decoding = decoding
        self._needs = needs(decoding.score)
        if self._needs.coverage:
            check_attends(model.attends)
        self._beam = Beam(model, decoding.width, decoding.slots, attention=self._needs.coverage)
        self._depth = max(decoding.n_best, decoding.width if decoding.stop.reads_width_best else 1)
        self._best_scores: Floats = np.empty((0, self._depth))  # [batch, depth] of the finished, falling
        self._finished: Ints = np.empty(0, dtype=np.int64)  # [batch]
        self._first_was_end: Bools = np.empty(0, dtype=bool)  # [batch]

    def __len__(self) -> int:
        """How many sentences are being searched for."""
        return len(self._beam.batch)

    def join(self, sentences: Sequence[Sentence]) -> list[int]:
        """Take in sentences; the tickets that stand for them count up from 0."""
        if not sentences:
            return []
        if self._needs.prediction or self._decoding.stop.needs_prediction:
            for sentence in sentences:
                check_predicted(sentence.predicted)
        tickets = self._beam.join(sentences)
        count = len(sentences)
        self._best_scores = np.concatenate((self._best_scores, np.full((count, self._depth), -np.inf)))
        self._finished = np.concatenate((self._finished, np.zeros(count, dtype=np.int64)))
        self._first_was_end = np.concatenate((self._first_was_end, np.zeros(count, dtype=bool)))
        ids: list[int] = tickets.tolist()
        return ids

    def advance(self) -> list[tuple[int, Result]]:
        """Take a step with every sentence; return tickets and results of those that ended with it."""
        step = self._beam.extend()
        batch = self._beam.batch
        self._first_was_end |= step.finished[:, 0]
        self._finished += step.finished.sum(axis=1)
        evidence = self._evidence(step)
        leaving, going_on = self._judged(step, evidence)
        gone = np.flatnonzero(leaving)
        if not len(gone):
            self._beam.proceed(step, leaving, going_on)
            return []
        certificates = certify(evidence.take(gone), self._beam.pruned(gone))
        traces = self._beam.proceed(step, leaving, going_on)
        self._forget(leaving)
        return [
            (int(batch.ticket[position]), self._result(trace, batch, position, certificate))
            for position, trace, certificate in zip(gone.tolist(), traces, certificates, strict=True)
        ]

    def cancel(self, ticket: int) -> Result:
        """End the search for a sentence now, with the best so far and what is proved about it."""
        return self.cancel_all([ticket])[ticket]

    def cancel_all(self, tickets: Sequence[int]) -> dict[int, Result]:
        """The same for several at once, which costs what one does; by ticket."""
        batch = self._beam.batch
        leaving = batch.holders(tickets)
        traces = self._beam.withdraw(leaving)
        self._forget(leaving)
        results = {}
        for position, trace in zip(np.flatnonzero(leaving).tolist(), traces, strict=True):
            certificate = Optimality.TRUNCATED, np.inf
            if trace.steps:
                (certificate,) = self._case(trace, batch.sentences[position]).certificates([trace.steps])
            results[int(batch.ticket[position])] = self._result(trace, batch, position, certificate)
        return results

    def _evidence(self, step: Extension) -> Evidence:
        batch, decoding = self._beam.batch, self._decoding
        rewards = self._beam.rewards() if self._needs.rewards else None
        if step.finished.any():
            sums = np.where(step.finished, step.sums, 0.0)  # [batch, ranks]
            lengths = np.maximum(batch.step, 1)[:, None]  # nothing finishes while a prefix is being forced
            paths = Paths(sums, lengths, rewards, step.coverage)
            scores = np.where(step.finished, decoding.score.score(batch.source.column(), paths), -np.inf)
            if self._depth == 1:
                self._best_scores = np.maximum(self._best_scores, scores.max(axis=1, keepdims=True))
            else:
                rivals = np.sort(np.concatenate((self._best_scores, scores), axis=1), axis=1)
                self._best_scores = rivals[:, : -self._depth - 1 : -1]
        return Evidence(
            decoding.score,
            decoding.width,
            decoding.n_best,
            batch.source,
            rewards,
            batch.step,
            self._finished,
            self._best_scores[:, decoding.n_best - 1],
            self._best_scores[:, decoding.width - 1] if decoding.stop.reads_width_best else None,
            self._first_was_end,
            step.best_live,
        )

    def _judged(self, step: Extension, evidence: Evidence) -> tuple[Bools, Ints]:
        """Which sentences leave, and how many live prefixes the others go on with, [batch] each."""
        rule = self._decoding.stop
        if not isinstance(rule, Optimal):
            return rule.decide(evidence), step.live_counts
        # Optimal stopping is where no prefix is hopeful; the others need not be run any more.
        asked = evidence.asked
        if len(asked) == len(evidence.step):
            going_on = hopeful(evidence, step.sums, step.live)
            return going_on == 0, going_on
        leaving, going_on = evidence.ended.copy(), step.live_counts
        if len(asked):
            going_on = going_on.copy()
            going_on[asked] = left = hopeful(evidence.of_asked, step.sums[asked], step.live[asked])
            leaving[asked] = left == 0
        return leaving, going_on

    def _forget(self, leaving: Bools) -> None:
        self._best_scores = self._best_scores[~leaving]
        self._finished = self._finished[~leaving]
        self._first_was_end = self._first_was_end[~leaving]

    def _case(self, trace: Trace, sentence: Sentence) -> Case:
        decoding = self._decoding
        return Case(Terms(trace, decoding.n_best, sentence.predicted, sentence.limit), decoding.score)

    def _result(self, trace: Trace, batch: Batch, position: int, certificate: tuple[Optimality, float]) -> Result:
        case = self._case(trace, batch.sentences[position])
        return case.result(self._decoding.stop, trace.steps, int(batch.rows_run[position]), certificate)


@final
class Recorder(Generic[S]):
    """A search that nothing stops before its limit, advanced as `Search` is, with a trace for each sentence.

    The traces answer for every score and stopping rule. That of a sentence that was cancelled is the trace of a
    search whose limit was the step at which it ended: neither score nor limit changes what a beam contains. If
    that would have been too early for any output, it keeps its limit, and answers for nothing.
    """

    def __init__(self, model: StepModel[S], width: int, slots: Slots) -> None:
        self._beam = Beam(model, checked_count("width", width), slots, attention=model.attends)

    def __len__(self) -> int:
        """How many sentences are being searched for."""
        return len(self._beam.batch)

    def join(self, sentences: Sequence[Sentence]) -> list[int]:
        """Take in sentences; the tickets that stand for them count up from 0."""
        tickets: list[int] = self._beam.join(sentences).tolist()
        return tickets

    def advance(self) -> list[tuple[int, Trace]]:
        """Take a step with every sentence; return tickets and traces of those that ended with it."""
        step, batch = self._beam.extend(), self._beam.batch
        leaving = (batch.step >= batch.source.limit) | (step.live_counts == 0)
        tickets: list[int] = batch.ticket[leaving].tolist()
        return list(zip(tickets, self._beam.proceed(step, leaving, step.live_counts), strict=True))

    def cancel_all(self, tickets: Sequence[int]) -> dict[int, Trace]:
        """End the search for some sentences now; by ticket."""
        batch = self._beam.batch
        leaving = batch.holders(tickets)
        ended: list[int] = batch.ticket[leaving].tolist()
        traces = self._beam.withdraw(leaving)
        return {ticket: _cut_off(trace) for ticket, trace in zip(ended, traces, strict=True)}


def _cut_off(trace: Trace) -> Trace:
    return replace(trace, limit=trace.steps) if trace.steps >= max(trace.min_length, 1) else trace


def beam_search(
    model: StepModel[S], sentences: Sequence[Sentence], decoding: Decoding, batch: int = 32
) -> list[Result]:
    """Search for every sentence, `batch` at a time; a sentence that ends makes room for the next."""
    checked_count("batch", batch)
    search = Search(model, decoding)
    results: dict[int, Result] = {}
    joined = 0
    while joined < len(sentences) or len(search):
        joined += len(search.join(sentences[joined : joined + batch - len(search)]))
        results.update(search.advance())
    return [results[index] for index in range(len(sentences))]


def record(
    model: StepModel[S],
    sentences: Sequence[Sentence],
    width: int,
    slots: Slots = Slots.OCCUPY,
    batch: int = 32,
) -> list[Trace]:
    """Search exhaustively and keep everything: the traces answer for every score and stopping rule."""
    checked_count("batch", batch)
    recorder = Recorder(model, width, slots)
    traces: dict[int, Trace] = {}
    joined = 0
    while joined < len(sentences) or len(recorder):
        joined += len(recorder.join(sentences[joined : joined + batch - len(recorder)]))
        traces.update(recorder.advance())
    return [traces[index] for index in range(len(sentences))]
