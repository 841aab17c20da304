"""The beam: the live prefixes of a batch of sentences, extended one token at a time and pruned by `S` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.errors import UncurseError
from uncurse.scoring.coverage import attended, coverage_sums
from uncurse.scoring.decoding import Sentence, Slots
from uncurse.scoring.rescorer import Rewards
from uncurse.search.allowed_tokens import allowed_after, check_possible, check_sentence, checked_step
from uncurse.search.batch import Batch, Rows
from uncurse.search.history import BeamHistory, StepRecord
from uncurse.search.ranking import Ranked, rank_continuations
from uncurse.search.step_model import Continuations, ModelError, S, StepModel, checked
from uncurse.search.trace import Trace
from uncurse.version import VERSION


@final
@dataclass(frozen=True, eq=False)
class Extension:
    """What a step of the batch brought; `ranks` are the places among the best continuations of a sentence."""

    finished: Bools  # [batch, ranks]
    live: Bools  # [batch, ranks]
    sums: Floats  # [batch, ranks] S
    coverage: Floats | None  # [batch, ranks] of what finished
    best_live: Floats  # [batch] S, -inf where no prefix is left
    live_counts: Ints  # [batch]
    rows: Rows  # the live prefixes
    parents: Ints  # [rows] the row of the step before that each of them extends


@final
class Beam(Generic[S]):
    """Sentences join and leave between steps; each has its own step counter, maximum length and prefix.

    `extend` takes a step and records it; `proceed` then selects what the search goes on with.
    """

    def __init__(self, model: StepModel[S], beam_size: int, slots: Slots, attention: bool) -> None:
        self._model = model
        self._beam_size = beam_size
        self._slots = slots
        self._attention = attention
        self._ranks = slots.ranks(beam_size)
        self._history = BeamHistory(self._ranks, attention)
        self._joined = 0
        self._state: S | None = None  # None also while the model is at work, and for good if it fails
        self._after: S | None = None  # the state after a step, until it is known what proceeds
        none = np.empty(0, dtype=np.int64)
        self.batch = Batch.starting((), none, none)
        self._rows = Rows.starting(self.batch.source, model.bos, attention)

    def join(self, sentences: Sequence[Sentence]) -> Ints:
        """Take in sentences; their tickets count up from 0."""
        tickets = np.arange(self._joined, self._joined + len(sentences))
        if not sentences:
            return tickets
        self._check_not_failed()
        for ticket, sentence in zip(tickets, sentences, strict=True):
            self._check_prefix(int(ticket), sentence)
            check_sentence(int(ticket), sentence, self._model.eos)
        state = self._model.start([sentence.source for sentence in sentences])
        self._state = state if self._state is None else self._state.append(state)
        self._joined += len(sentences)
        new = Batch.starting(sentences, tickets, self._history.open(len(sentences)))
        rows = Rows.starting(new.source, self._model.bos, self._attention)
        self._rows = self._rows.joined(rows, len(self.batch))
        self.batch = self.batch.joined(new)
        return tickets

    def _check_not_failed(self) -> None:
        if self._state is None and len(self.batch):
            raise UncurseError("the search cannot continue: a step has failed")

    def _check_prefix(self, ticket: int, sentence: Sentence) -> None:
        for token in sentence.prefix:
            if token == self._model.eos:
                raise UncurseError(f"sentence {ticket}: the eos token {token} cannot be in a prefix")
            if not 0 <= token < self._model.vocab_size:
                raise UncurseError(
                    f"sentence {ticket}: prefix token {token} is not in 0 … {self._model.vocab_size - 1}"
                )

    def extend(self) -> Extension:
        """Extend every live prefix by one token; keep and record the best of each sentence.

        If the model fails, sentences can still be withdrawn as they were, but not extended.
        """
        self._check_not_failed()
        if self._state is None:
            raise UncurseError("the batch is empty: join a sentence first")
        before, state, self._state = self.batch, self._state, None
        counts = np.bincount(self._rows.sentence, minlength=len(before))
        self.batch = replace(before, step=before.step + 1, rows_run=before.rows_run + counts)
        try:
            return self._extended(state, counts)
        except BaseException:
            self.batch = before
            raise

    def _extended(self, state: S, counts: Ints) -> Extension:
        too_short = (self.batch.step >= 1) & (self.batch.step < self.batch.min_length)
        # One continuation more than is kept, the best of what is pruned; one for a </s> that is not allowed yet.
        k = min(self._ranks + 1 + int(too_short.any()), self._model.vocab_size)
        allowed = allowed_after(self.batch, self._rows, self._history)
        ask = partial(checked_step, self._model) if allowed is None else partial(allowed.step, self._model)
        given, after = ask(state, self._rows.token, k, self._attention)
        received = self._attended(given.attention)
        ranked = self._ranked(given, counts, too_short)
        finished, live = self._finished_and_live(ranked)
        check_possible(self.batch, self._history, finished | live, self._model.eos)
        covered = None if received is None else self._covered(received, ranked, finished)
        self._record(ranked, finished | live, covered)
        self._after = after

        sentence, rank = np.nonzero(live)
        parents = ranked.parents[sentence, rank]
        live_counts = np.bincount(sentence, minlength=len(self.batch))
        first = np.cumsum(live_counts) - live_counts
        rows = Rows(
            sentence=sentence,
            lane=np.arange(len(rank)) - first[sentence],
            rank=rank,
            token=ranked.tokens[sentence, rank],
            log_prob=ranked.sums[sentence, rank],
            coverage=None if received is None else received[parents],
        )
        best_live = np.full(len(self.batch), -np.inf)
        leading = rows.lane == 0
        best_live[sentence[leading]] = rows.log_prob[leading]
        sums = ranked.sums[:, : self._ranks]
        return Extension(
            finished=finished,
            live=live,
            sums=sums,
            coverage=covered,
            best_live=best_live,
            live_counts=live_counts,
            rows=rows,
            parents=parents,
        )

    def proceed(self, step: Extension, leaving: Bools, hopeful: Ints) -> list[Trace]:
        """Go on with the first `hopeful` live prefixes of each sentence, [batch]; return what is leaving."""
        after, self._after = self._after, None
        go_on = np.flatnonzero((step.rows.lane < hopeful[step.rows.sentence]) & ~leaving[step.rows.sentence])
        self._state = _selected(after, step.parents[go_on])
        self._rows = step.rows.take(go_on)
        return self._leave(leaving)

    def withdraw(self, leaving: Bools) -> list[Trace]:
        """Take sentences out of the batch between steps."""
        others = np.flatnonzero(~leaving[self._rows.sentence])
        state, self._state = self._state, None
        self._state = _selected(state, others)
        self._rows = self._rows.take(others)
        return self._leave(leaving)

    def best_pruned(self, positions: Ints) -> Floats:
        """The best S pruned at each step, [positions, steps]; undefined after a sentence's own step."""
        steps = max(int(self.batch.step[positions].max()), 0)
        return self._history.best_pruned(self.batch.slot[positions], steps)

    def rewards(self) -> Rewards:
        """The adaptive rewards of the batch so far."""
        seen = np.maximum(self.batch.step, 0)
        return Rewards(self._history.reward_sums(self.batch.slot, int(seen.max(initial=0))), seen)

    def _leave(self, leaving: Bools) -> list[Trace]:
        gone = np.flatnonzero(leaving)
        if not len(gone):
            return []
        traces = [self._trace(position) for position in gone.tolist()]
        staying = np.flatnonzero(~leaving)
        self.batch = self.batch.take(staying)
        new_position = np.cumsum(~leaving) - 1
        longest, coverage = int(self.batch.source.length.max(initial=0)), self._rows.coverage
        coverage = None if coverage is None else coverage[:, :longest]
        self._rows = replace(self._rows, sentence=new_position[self._rows.sentence], coverage=coverage)
        return traces

    def _trace(self, position: int) -> Trace:
        sentence = self.batch.sentences[position]
        slot, steps = int(self.batch.slot[position]), max(int(self.batch.step[position]), 0)
        kept = self._history.close(slot, steps)
        return Trace(
            version=VERSION,
            model=self._model.signature,
            beam_size=self._beam_size,
            slots=self._slots,
            eos=int(self._model.eos),
            source_length=len(sentence.source),
            max_length=sentence.max_length,
            min_length=sentence.min_length,
            prefix=sentence.prefix,
            constraint=None if sentence.constraint is None else sentence.constraint.signature,
            tokens=kept.tokens,
            parents=kept.parents,
            log_probs=kept.log_probs,
            sums=kept.sums,
            rewards=kept.rewards,
            pruned=kept.pruned,
            coverage=kept.coverage,
        )

    def _ranked(self, given: Continuations, counts: Ints, too_short: Bools) -> Ranked:
        log_probs = checked(given.log_probs, self._where)
        if too_short.any():
            early = (given.tokens == self._model.eos) & too_short[self._rows.sentence][:, None]
            log_probs = np.where(early, -np.inf, log_probs)
        ranked = rank_continuations(self._rows, counts, given.tokens, log_probs, self._ranks + 1)
        first = np.cumsum(counts) - counts  # [batch] each sentence's first row
        for position in np.flatnonzero(self.batch.step < 1).tolist():
            prefix = self.batch.sentences[position].prefix
            ranked.sums[position] = -np.inf
            ranked.sums[position, 0] = 0.0
            ranked.parents[position, 0] = first[position]
            ranked.tokens[position, 0] = prefix[self.batch.step[position] - 1]  # steps 1 - p … 0
        return ranked

    def _where(self, row: int) -> str:
        position = self._rows.sentence[row]
        ticket, step = self.batch.ticket[position], int(self.batch.step[position])
        if step < 1:
            return f"sentence {ticket}, prefix token {step + len(self.batch.sentences[position].prefix)}"
        return f"sentence {ticket}, step {step}"

    def _finished_and_live(self, ranked: Ranked) -> tuple[Bools, Bools]:
        """Which continuations finish because their token is `</s>`, and which live on, [batch, ranks]."""
        possible = ranked.sums[:, : self._ranks] > -np.inf
        ends = (ranked.tokens[:, : self._ranks] == self._model.eos) & possible
        live = possible & ~ends
        if self._slots is Slots.REFILL:
            ends[:, self._beam_size :] = False
            live &= np.cumsum(live, axis=1) <= self._beam_size
        return ends, live

    def _record(self, ranked: Ranked, kept: Bools, covered: Floats | None) -> None:
        pruned_sums = ranked.sums.copy()
        pruned_sums[:, : self._ranks][kept] = -np.inf
        within = ranked.sums[:, : self._beam_size] > -np.inf
        costs = np.where(within, -ranked.log_probs[:, : self._beam_size], 0.0)
        # accumulate adds in order, so that a sentence's mean does not depend on how the sum is split up
        total, count = np.add.accumulate(costs, axis=1)[:, -1], within.sum(axis=1)
        record = StepRecord(
            tokens=np.where(kept, ranked.tokens[:, : self._ranks], -1),
            parents=self._rows.rank[ranked.parents[:, : self._ranks]],
            log_probs=ranked.log_probs[:, : self._ranks],
            sums=ranked.sums[:, : self._ranks],
            rewards=total / np.maximum(count, 1),
            pruned=pruned_sums.max(axis=1),
            coverage=covered,
        )
        chosen = np.flatnonzero(self.batch.step >= 1)  # forced tokens are not recorded
        if len(chosen) < len(self.batch):
            record = record.take(chosen)
        if len(chosen):
            self._history.write(self.batch.slot[chosen], self.batch.step[chosen], record)

    def _attended(self, attention: Floats | None) -> Floats | None:
        before = self._rows.coverage
        if before is None:
            return None
        pieces = int(self.batch.source.length.max())
        if attention is None or attention.shape[0] != len(before) or attention.shape[1] < pieces:
            shape = None if attention is None else attention.shape
            raise ModelError(f"the model gave attention {shape} to {len(before)} rows of up to {pieces} pieces")
        return attended(before, attention)

    def _covered(self, received: Floats, ranked: Ranked, finished: Bools) -> Floats:
        covered = np.zeros(finished.shape)
        sentence, rank = np.nonzero(finished)
        parents = ranked.parents[sentence, rank]
        sums = coverage_sums(received[parents], self.batch.source.length[sentence])
        if np.isnan(sums).any():
            raise ModelError(f"{self._where(int(parents[np.isnan(sums)][0]))}: the model gave attention of NaN")
        covered[sentence, rank] = sums
        return covered


def _selected(state: S | None, rows: Ints) -> S | None:
    """The given rows of a state, and no state where there are none or a step has failed."""
    return state.select(rows) if state is not None and len(rows) else None
