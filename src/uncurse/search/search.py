"""Beam search: extend the beam, then apply the stopping rule after every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.scoring.certificate import certify
from uncurse.scoring.decoding import Decoding, Sentence, check_attends, check_expected_length, checked_count
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.rescorer import Paths
from uncurse.scoring.result import Certificate, Result
from uncurse.search.batch import Batch
from uncurse.search.beam import Beam, Extension
from uncurse.search.scored_trace import ScoredTrace
from uncurse.search.step_model import S, StepModel
from uncurse.search.trace import Trace


@final
class Search(Generic[S]):
    """A search that is advanced one step at a time; sentences join, are cancelled and leave between steps."""

    def __init__(self, model: StepModel[S], decoding: Decoding) -> None:
        self._decoding = decoding
        self._needs = decoding.needs
        if self._needs.coverage:
            check_attends(model.attends)
        self._beam = Beam(model, decoding.beam_size, decoding.slots, attention=self._needs.coverage)
        self._scores_kept = max(decoding.n_best, decoding.beam_size if self._needs.bth_best else 1)
        self._best_scores: Floats = np.empty((0, self._scores_kept))  # [batch, kept] of the finished, falling
        self._finished: Ints = np.empty(0, dtype=np.int64)  # [batch]
        self._top_was_eos: Bools = np.empty(0, dtype=bool)  # [batch]

    def __len__(self) -> int:
        """The number of sentences in the search."""
        return len(self._beam.batch)

    def join(self, sentences: Sequence[Sentence]) -> list[int]:
        """Add sentences; return their tickets, which count up from 0."""
        if not sentences:
            return []
        if self._needs.expected_length:
            for sentence in sentences:
                check_expected_length(sentence.expected_length)
        tickets = self._beam.join(sentences)
        count = len(sentences)
        self._best_scores = np.concatenate((self._best_scores, np.full((count, self._scores_kept), -np.inf)))
        self._finished = np.concatenate((self._finished, np.zeros(count, dtype=np.int64)))
        self._top_was_eos = np.concatenate((self._top_was_eos, np.zeros(count, dtype=bool)))
        ids: list[int] = tickets.tolist()
        return ids

    def advance(self) -> list[tuple[int, Result]]:
        """Take a step with every sentence; return tickets and results of the sentences that finished with it."""
        step = self._beam.extend()
        batch = self._beam.batch
        self._top_was_eos |= step.finished[:, 0]
        self._finished += step.finished.sum(axis=1)
        evidence = self._evidence(step)
        leaving, going_on = self._judged(step, evidence)
        gone = np.flatnonzero(leaving)
        if not len(gone):
            self._beam.proceed(step, leaving, going_on)
            return []
        certificates = certify(evidence.take(gone), self._beam.best_pruned(gone))
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
        """Cancel several at once, for the cost of one; results by ticket."""
        batch = self._beam.batch
        leaving = batch.holders(tickets)
        traces = self._beam.withdraw(leaving)
        self._forget(leaving)
        results = {}
        for position, trace in zip(np.flatnonzero(leaving).tolist(), traces, strict=True):
            certificate = Certificate.TRUNCATED, np.inf
            if trace.steps:
                (certificate,) = self._scored(trace, batch.sentences[position]).certificates([trace.steps])
            results[int(batch.ticket[position])] = self._result(trace, batch, position, certificate)
        return results

    def _evidence(self, step: Extension) -> Evidence:
        batch, decoding = self._beam.batch, self._decoding
        rewards = self._beam.rewards() if self._needs.rewards else None
        if step.finished.any():
            sums = np.where(step.finished, step.sums, 0.0)  # [batch, ranks]
            lengths = np.maximum(batch.step, 1)[:, None]  # nothing finishes while a prefix is being forced
            paths = Paths(sums, lengths, rewards, step.coverage)
            scores = np.where(step.finished, decoding.rescorer.score(batch.source.column(), paths), -np.inf)
            if self._scores_kept == 1:
                self._best_scores = np.maximum(self._best_scores, scores.max(axis=1, keepdims=True))
            else:
                rivals = np.sort(np.concatenate((self._best_scores, scores), axis=1), axis=1)
                self._best_scores = rivals[:, : -self._scores_kept - 1 : -1]
        return Evidence(
            rescorer=decoding.rescorer,
            beam_size=decoding.beam_size,
            n_best=decoding.n_best,
            source=batch.source,
            rewards=rewards,
            step=batch.step,
            finished=self._finished,
            nth_best=self._best_scores[:, decoding.n_best - 1],
            bth_best_or_none=self._best_scores[:, decoding.beam_size - 1] if self._needs.bth_best else None,
            top_was_eos=self._top_was_eos,
            best_live=step.best_live,
        )

    def _judged(self, step: Extension, evidence: Evidence) -> tuple[Bools, Ints]:
        """Which sentences leave, and how many live prefixes the others go on with, [batch] each."""
        leaving, going_on = evidence.ended.copy(), step.live_counts
        asked = evidence.asked
        if len(asked):
            hopeful = self._decoding.stop.hopeful(evidence.of_asked, step.sums[asked], step.live[asked])
            going_on = going_on.copy()
            going_on[asked] = hopeful
            leaving[asked] = hopeful == 0
        return leaving, going_on

    def _forget(self, leaving: Bools) -> None:
        self._best_scores = self._best_scores[~leaving]
        self._finished = self._finished[~leaving]
        self._top_was_eos = self._top_was_eos[~leaving]

    def _scored(self, trace: Trace, sentence: Sentence) -> ScoredTrace:
        decoding, expected, most = self._decoding, sentence.expected_length, sentence.max_length
        return ScoredTrace(trace, decoding.rescorer, decoding.n_best, expected, most)

    def _result(self, trace: Trace, batch: Batch, position: int, certificate: tuple[Certificate, float]) -> Result:
        scored = self._scored(trace, batch.sentences[position])
        return scored.result(self._decoding, trace.steps, int(batch.rows_run[position]), certificate)


def beam_search(
    model: StepModel[S], sentences: Sequence[Sentence], decoding: Decoding, batch_size: int = 32
) -> list[Result]:
    """Search for every sentence; one that ends makes room for the next.

    Args:
        model: Gives the best next tokens of prefixes; see `StepModel`, and `uncurse.testing.check_step_model`.
        sentences: What is translated, each with its maximum length and, for scores that need one, its expected
            length.
        decoding: Beam size, score, stopping rule, n-best and slots. A decoding without a score uses F1-Norm if
            every sentence has an expected length, else length norm.
        batch_size: How many sentences are searched at a time.

    Returns:
        One result for each sentence, in their order: its n best hypotheses and a certificate.
    """
    checked_count("batch_size", batch_size)
    known = all(sentence.expected_length is not None for sentence in sentences)
    search = Search(model, decoding.with_score(knows_length=known))
    results: dict[int, Result] = {}
    joined = 0
    while joined < len(sentences) or len(search):
        joined += len(search.join(sentences[joined : joined + batch_size - len(search)]))
        results.update(search.advance())
    return [results[index] for index in range(len(sentences))]
