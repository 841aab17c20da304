"""Constraints of a call of `generate`, each for one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    LogitsProcessor,
    LogitsProcessorList,
    PrefixConstrainedLogitsProcessor,
)

from uncurse.arrays import Ints
from uncurse.constraints.constraint import AllOf, Constraint, NextTokens, checked_tokens
from uncurse.errors import UncurseError

PrefixFn = Callable[[int, Tensor], Sequence[int] | Tensor]


@final
@dataclass(frozen=True, eq=False)
class AllowedByFunction(Constraint):
    """What a `prefix_allowed_tokens_fn` allows for one sentence."""

    function: PrefixFn
    sentence: int
    prompt: Tensor  # [length] what the function sees before the output
    ends: tuple[int, ...]  # tokens that end an output; the first stands for all
    signature = "prefix_allowed_tokens_fn"

    def after(self, prefixes: Ints) -> NextTokens:
        """Ask the function about one prefix after the other."""
        pairs: dict[tuple[int, int], None] = {}
        for row, prefix in enumerate(prefixes):
            seen = torch.cat((self.prompt, torch.from_numpy(prefix).to(self.prompt.device)))
            given = self.function(self.sentence, seen)
            if isinstance(given, Tensor):
                given = given.tolist()
            tokens = checked_tokens(self.signature, list(given) if isinstance(given, Iterable) else given)
            pairs |= {(row, self.ends[0] if token in self.ends else token): None for token in tokens}
        return NextTokens.of(pairs, excluded=False)


@final
@dataclass(frozen=True, eq=False)
class NoNgramOfSource(Constraint):
    """No n-gram of the source occurs in an output: the `encoder_no_repeat_ngram_size` of transformers."""

    size: int
    last: Mapping[tuple[int, ...], Sequence[int]]  # the last tokens of n-grams, by the others
    prompt: tuple[int, ...]  # the first n-grams begin in it

    @property
    def signature(self) -> str:
        """The option and n."""
        return f"encoder_no_repeat_ngram_size-{self.size}"

    def after(self, prefixes: Ints) -> NextTokens:
        """All but the tokens that would complete an n-gram of the source."""
        before = [(*self.prompt, *prefix) for prefix in prefixes.tolist()]
        ends = [seen[len(seen) - self.size + 1 :] if len(seen) + 1 >= self.size else None for seen in before]
        pairs = [
            (row, token) for row, end in enumerate(ends) if end is not None for token in self.last.get(end, ())
        ]
        return NextTokens.of(dict.fromkeys(pairs), excluded=True)


@final
@dataclass(frozen=True, eq=False)
class AnyEnd(Constraint):
    """A constraint that may end its outputs with any of several end tokens, of which the first stands for all."""

    constraint: Constraint
    ends: tuple[int, ...]

    @property
    def signature(self) -> str:
        """That of the constraint."""
        return self.constraint.signature

    def after(self, prefixes: Ints) -> NextTokens:
        """What the constraint allows, with the first end token in place of those that end its outputs."""
        found = self.constraint.after(prefixes)
        if found.excluded:
            return found
        ending = [end for end in self.ends if self.constraint.ends_with(end)]
        token = np.where(np.isin(found.token, ending), self.ends[0], found.token)
        return NextTokens.of(dict.fromkeys(zip(found.row.tolist(), token.tolist(), strict=True)), excluded=False)

    def shortest(self, prefix: tuple[int, ...]) -> float:
        """What the constraint says."""
        return self.constraint.shortest(prefix)

    def ends_with(self, eos: int) -> bool:
        """Whether the outputs of the constraint end with any of the end tokens."""
        return any(map(self.constraint.ends_with, self.ends))


@final
@dataclass(frozen=True, eq=False)
class Constraints:
    """What a call allows."""

    constraint: Constraint | None
    processors: Sequence[LogitsProcessor]  # those that are constraints of single sentences

    def __post_init__(self) -> None:
        if not isinstance(self.constraint, Constraint | None):
            raise UncurseError(f"constraint = {self.constraint!r} is not allowed: give a Constraint")

    def of(self, sentence: int, prompt: Tensor, ends: tuple[int, ...]) -> Constraint | None:
        """The constraint of a sentence, whose prompt the function sees, [length]."""
        parts: list[Constraint] = [] if self.constraint is None else [AnyEnd(self.constraint, ends)]
        for each in self.processors:
            if isinstance(each, PrefixConstrainedLogitsProcessor):
                parts.append(AllowedByFunction(each._prefix_allowed_tokens_fn, sentence, prompt, ends))
            elif isinstance(each, EncoderNoRepeatNGramLogitsProcessor):
                if len(ends) > 1:
                    raise UncurseError(
                        f"encoder_no_repeat_ngram_size = {each.ngram_size} cannot act with several end tokens,"
                        " which count as one here: 0 turns it off"
                    )
                ngrams = each.generated_ngrams[sentence]
                parts.append(NoNgramOfSource(each.ngram_size, ngrams, tuple(prompt.tolist())))
        return AllOf(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def constraints_apart(processors: LogitsProcessorList) -> tuple[list[LogitsProcessor], LogitsProcessorList]:
    """Logits processors that are constraints, which need to know the sentence of a row, and the others."""
    kinds = (PrefixConstrainedLogitsProcessor, EncoderNoRepeatNGramLogitsProcessor)
    constraining: list[LogitsProcessor] = [each for each in processors if isinstance(each, kinds)]
    return constraining, LogitsProcessorList([each for each in processors if not isinstance(each, kinds)])
