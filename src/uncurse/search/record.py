"""Recorded search: the beam run to the maximum length, with everything kept for judging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, final

from uncurse.scoring.decoding import Sentence, Slots, checked_count
from uncurse.search.beam import Beam
from uncurse.search.step_model import S, StepModel
from uncurse.search.trace import Trace


@final
class Recorder(Generic[S]):
    """A search that nothing stops before the maximum length, with a trace for each sentence.

    It is advanced as `Search` is. The traces answer for every score and stopping rule. The trace of a cancelled
    sentence is that of a search whose maximum length was the step at which it ended, since neither score nor
    maximum length changes what a beam contains. If that was too early for any output, it answers for nothing.
    """

    def __init__(self, model: StepModel[S], beam_size: int, slots: Slots) -> None:
        self._beam = Beam(model, checked_count("beam_size", beam_size), slots, attention=model.attends)

    def __len__(self) -> int:
        """The number of sentences in the search."""
        return len(self._beam.batch)

    def join(self, sentences: Sequence[Sentence]) -> list[int]:
        """Take in sentences; the tickets that stand for them count up from 0."""
        tickets: list[int] = self._beam.join(sentences).tolist()
        return tickets

    def advance(self) -> list[tuple[int, Trace]]:
        """Take a step with every sentence; return tickets and traces of those that ended with it."""
        step, batch = self._beam.extend(), self._beam.batch
        leaving = (batch.step >= batch.source.max_length) | (step.live_counts == 0)
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
    return replace(trace, max_length=trace.steps) if trace.steps >= max(trace.min_length, 1) else trace


def record(
    model: StepModel[S],
    sentences: Sequence[Sentence],
    beam_size: int,
    slots: Slots | str = Slots.OCCUPY,
    batch_size: int = 32,
) -> list[Trace]:
    """Search to the maximum length and keep everything: the traces answer for every score and stopping rule.

    Args:
        model: Gives the best next tokens of prefixes; see `StepModel`.
        sentences: What is translated, each with its maximum length; `judge` is given expected lengths.
        beam_size: The number of hypotheses in the beam.
        slots: "occupy": a hypothesis that ends takes a place in the beam; "refill": it takes none.
        batch_size: How many sentences are searched at a time.
    """
    checked_count("batch_size", batch_size)
    recorder = Recorder(model, beam_size, Slots.parse(slots) if isinstance(slots, str) else slots)
    traces: dict[int, Trace] = {}
    joined = 0
    while joined < len(sentences) or len(recorder):
        joined += len(recorder.join(sentences[joined : joined + batch_size - len(recorder)]))
        traces.update(recorder.advance())
    return [traces[index] for index in range(len(sentences))]
