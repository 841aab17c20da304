"""What a vocabulary selector is fitted to: the votes of source positions, and the tokens of translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from uncurse.arrays import Ints
from uncurse.models.loaded_model import LoadedModel
from uncurse.models.vocabulary_selector import HasVotes
from uncurse.search.step_model import StepModel

MAX_TOKENS: Final = 150  # of a source or a translation that is used
BATCH: Final = 32  # sentences that are translated together
ALTERNATIVES: Final = 8  # the most that are looked at in a step
LIKELY: Final = 0.05  # probability of a token that a beam may want beside the most likely one


Progress = Callable[[int, int], None]


@final
@dataclass(frozen=True, eq=False)
class Translations:
    """Sources, and the tokens that their translations need."""

    sources: Sequence[tuple[int, ...]]
    targets: Sequence[Ints]  # of each source; a token may occur several times


@final
@dataclass(frozen=True, eq=False)
class SelectionSample:
    """The votes of sources, and the tokens that their translations need."""

    votes: Sequence[NDArray[np.floating[Any]]]  # of each source, [vocab_size]
    targets: Sequence[Ints]


def translations(loaded: LoadedModel, lines: Sequence[str], most: int, progress: Progress) -> Translations:
    """Translate at most so many lines, drawn at random; empty and long ones are left out.

    The model's own translations are what its output layer has to find; a text's reference need not be.
    """
    order = np.random.default_rng(0).permutation(len(lines))
    chosen = [line for line in (lines[row] for row in order) if line.strip()][:most]
    sources = [tuple(source) for source in loaded.source.encode(chosen) if 0 < len(source) <= MAX_TOKENS]
    targets: list[Ints] = []
    for first in range(0, len(sources), BATCH):
        targets += _likely_tokens(loaded.model, sources[first : first + BATCH])
        progress(len(targets), len(sources))
    return Translations(sources, targets)


def selection_sample(
    model: HasVotes, given: Sequence[Translations], candidates: Ints, progress: Progress
) -> SelectionSample:
    """The votes for translations among candidates."""
    sources = [source for each in given for source in each.sources]
    votes: list[NDArray[np.floating[Any]]] = []
    for first in range(0, len(sources), BATCH):
        found = model.votes(sources[first : first + BATCH], candidates)
        votes += [each.astype(np.float16) for each in found]
        progress(len(votes), len(sources))
    return SelectionSample(votes, [target for each in given for target in each.targets])


def _likely_tokens(model: StepModel[Any], sources: Sequence[Sequence[int]]) -> list[Ints]:
    """The tokens of a greedy translation of each source, and their likely alternatives."""
    state, tokens, live = model.start(sources), np.full(len(sources), model.bos), np.arange(len(sources))
    wanted: list[list[Ints]] = [[] for _ in sources]
    for _ in range(MAX_TOKENS):
        found, state = model.step(state, tokens, ALTERNATIVES, attention=False)
        for sentence, some, log_probs in zip(live, found.tokens, found.log_probs, strict=True):
            wanted[sentence].append(some[log_probs >= min(np.log(LIKELY), log_probs.max())])
        tokens = np.take_along_axis(found.tokens, found.log_probs.argmax(axis=1)[:, None], axis=1)[:, 0]
        going_on = np.flatnonzero(tokens != model.eos)
        if not len(going_on):
            break
        state, tokens, live = state.select(going_on), tokens[going_on], live[going_on]
    return [np.concatenate(each) for each in wanted]
