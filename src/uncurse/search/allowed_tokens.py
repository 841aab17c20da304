"""What the constraints of a batch allow at a step, and the question to the model that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.constraints.constraint import NextTokens
from uncurse.errors import UncurseError
from uncurse.scoring.decoding import Sentence
from uncurse.search.batch import Batch, Rows
from uncurse.search.history import BeamHistory
from uncurse.search.step_model import CandidateModel, Continuations, ModelError, S, StepModel

MOST_CHECKED: Final = 1024  # continuations of a row; to sort a whole vocabulary can take longer than the model


@final
class ConstraintError(UncurseError):
    """No output that the constraint of a sentence allows was found."""

    def __init__(self, ticket: int, reason: str) -> None:
        ValueError.__init__(self, f"sentence {ticket}: {reason}")
        self.ticket = ticket
        self.reason = reason


@final
@dataclass(frozen=True, eq=False)
class AllowedTokens:
    """What may follow each row: the tokens that are listed for it, or all but those."""

    excluded: Bools  # [rows] whether the listed tokens are those that may not follow
    row: Ints  # [listed]
    token: Ints  # [listed]

    @staticmethod
    def of(parts: Sequence[tuple[Ints, NextTokens | None]], rows: int) -> AllowedTokens:
        """Put together what is allowed in some rows each; None allows nothing."""
        excluded = np.ones(rows, dtype=bool)
        row, token = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for of_sentence, allowed in parts:
            excluded[of_sentence] = allowed is not None and allowed.excluded
            if allowed is not None:
                row.append(of_sentence[allowed.row])
                token.append(allowed.token)
        return AllowedTokens(excluded, np.concatenate(row), np.concatenate(token))

    def check(self, vocab_size: int) -> None:
        """Raise an `UncurseError` if a token is none of the model's."""
        wrong = self.token[(self.token < 0) | (self.token >= vocab_size)]
        if len(wrong):
            raise UncurseError(f"a constraint has token {wrong[0]}, and this model has 0 … {vocab_size - 1}")

    def step(
        self, model: StepModel[S], state: S, tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, S]:
        """Ask the model about what is allowed: at least the k best of it, with -inf for all else."""
        self.check(model.vocab_size)
        if self.excluded.all():
            most = int(self._counts.max(initial=0))  # so many of the best may not be allowed
            given, after = checked_step(model, state, tokens, min(k + most, model.vocab_size), attention)
            return self._masked(given, model.vocab_size), after
        if self.excluded.any() or not isinstance(model, CandidateModel):
            given, after = checked_step(model, state, tokens, model.vocab_size, attention)
            return self._chosen(given) if not self.excluded.any() else self._masked(given, model.vocab_size), after
        given, after = model.step_among(state, tokens, self._candidates, attention)
        if not given.tokens.shape == given.log_probs.shape == self._candidates.shape:
            raise ModelError(f"the model gave {given.log_probs.shape} of {self._candidates.shape} candidates")
        return self._without_padding(given.log_probs, given.attention), after

    def masked(self, log_probs: Floats) -> Floats:
        """Log-probabilities of the whole vocabulary, [rows, vocab_size], with -inf for what is not allowed."""
        self.check(log_probs.shape[1])
        allowed = np.repeat(self.excluded[:, None], log_probs.shape[1], axis=1)
        allowed[self.row, self.token] ^= True
        return np.where(allowed, log_probs, -np.inf)

    def _masked(self, given: Continuations, vocab_size: int) -> Continuations:
        allowed = self.masked(np.zeros((len(self.excluded), vocab_size)))
        return replace(given, log_probs=given.log_probs + np.take_along_axis(allowed, given.tokens, axis=1))

    def _chosen(self, given: Continuations) -> Continuations:
        """The candidates among the whole vocabulary."""
        by_token = np.empty(given.log_probs.shape)
        np.put_along_axis(by_token, given.tokens, given.log_probs, axis=1)
        return self._without_padding(np.take_along_axis(by_token, self._candidates, axis=1), given.attention)

    def _without_padding(self, log_probs: Floats, attention: Floats | None) -> Continuations:
        there = np.arange(self._candidates.shape[1]) < self._counts[:, None]
        return Continuations(self._candidates, np.where(there, log_probs, -np.inf), attention)

    @cached_property
    def _counts(self) -> Ints:
        """How many tokens are listed for each row, [rows]."""
        return np.bincount(self.row, minlength=len(self.excluded))

    @cached_property
    def _candidates(self) -> Ints:
        """The listed tokens of each row, filled up with token 0, [rows, most]."""
        order = np.argsort(self.row, kind="stable")
        first = np.cumsum(self._counts) - self._counts
        candidates = np.zeros((len(self.excluded), max(int(self._counts.max(initial=0)), 1)), dtype=np.int64)
        row = self.row[order]
        candidates[row, np.arange(len(row)) - first[row]] = self.token[order]
        return candidates


def checked_step(model: StepModel[S], state: S, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, S]:
    """A step of the model, which must give as many continuations as it is asked for, and no token twice."""
    given, after = model.step(state, tokens, k, attention)
    if not given.tokens.shape == given.log_probs.shape == (len(tokens), k):
        raise ModelError(f"the model gave {given.log_probs.shape} continuations instead of {(len(tokens), k)}")
    if k <= MOST_CHECKED:
        _check_tokens(given, model.vocab_size)
    return given, after


def _check_tokens(given: Continuations, vocab_size: int) -> None:
    """A token that is not possible, with -inf, may be any: models fill up rows with them."""
    filling = -1 - np.arange(given.tokens.shape[1])
    ordered = np.sort(np.where(given.log_probs == -np.inf, filling, given.tokens), axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        raise ModelError(f"the model gave token {ordered[:, 1:][twice][0]} twice for one prefix")
    wrong = given.tokens[(given.log_probs > -np.inf) & ((given.tokens < 0) | (given.tokens >= vocab_size))]
    if len(wrong):
        raise ModelError(f"the model gave token {wrong[0]}, and its vocabulary is 0 … {vocab_size - 1}")


def allowed_after(batch: Batch, rows: Rows, history: BeamHistory) -> AllowedTokens | None:
    """What may follow each row; None if there is no constraint."""
    parts: list[tuple[Ints, NextTokens | None]] = []
    for position, sentence in enumerate(batch.sentences):
        if sentence.constraint is None:
            continue
        of_sentence = np.flatnonzero(rows.sentence == position)
        step, allowed = int(batch.step[position]), None  # nobody looks at what follows a part of a forced prefix
        if step >= 1:
            chosen = history.prefixes(int(batch.slot[position]), step - 1, rows.rank[of_sentence])
            forced = np.tile(np.array(sentence.prefix, dtype=np.int64), (len(of_sentence), 1))
            allowed = sentence.constraint.after(np.concatenate((forced, chosen), axis=1))
        parts.append((of_sentence, allowed))
    return AllowedTokens.of(parts, len(rows)) if parts else None


def check_sentence(ticket: int, sentence: Sentence, eos: int) -> None:
    """Raise an `UncurseError` if it is known already that no output is allowed."""
    if sentence.constraint is None:
        return
    if not sentence.constraint.ends_with(eos):
        raise UncurseError(
            f"the constraint {sentence.constraint.signature} has another eos than this model, which has {eos}"
        )
    if (fewest := sentence.constraint.shortest(sentence.prefix)) > sentence.max_length:
        name = f"the constraint {sentence.constraint.signature}"
        if fewest == np.inf:
            raise ConstraintError(ticket, f"{name} allows no output that begins with the target prefix")
        reason = f"max_length is {sentence.max_length}, and {name} allows outputs of {fewest:g} tokens and more"
        raise ConstraintError(ticket, reason)


def check_possible(batch: Batch, history: BeamHistory, kept: Bools, eos: int) -> None:
    """Raise an `UncurseError` if a sentence is left without prefixes by its constraint before any has ended."""
    for position in np.flatnonzero(~kept.any(axis=1)).tolist():
        slot, before = int(batch.slot[position]), int(batch.step[position]) - 1
        constraint = batch.sentences[position].constraint
        if constraint is None or history.has(slot, before, eos):
            continue
        pruned = (history.best_pruned(np.array([slot]), before) > -np.inf).any()
        found = "was found that it allows, a wider beam may find one" if pruned else "is allowed"
        raise ConstraintError(
            int(batch.ticket[position]),
            f"the constraint {constraint.signature} lets nothing follow the first {before} tokens: no output"
            f" {found}",
        )
