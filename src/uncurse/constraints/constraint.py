"""What a constraint is: for every prefix of an output, the tokens that may come next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, final

import numpy as np

from uncurse.arrays import Ints
from uncurse.errors import UncurseError

ROW: Final = 1 << 32  # a row and a token as one number: row · ROW + token


@final
@dataclass(frozen=True, eq=False)
class NextTokens:
    """Which tokens may follow each prefix: those listed, or all but those."""

    row: Ints  # [listed] which prefix
    token: Ints  # [listed]
    excluded: bool  # whether what is listed may not follow, and all else may

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]], excluded: bool) -> NextTokens:
        """List rows with their tokens."""
        listed = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
        return NextTokens(listed[:, 0], listed[:, 1], excluded)


class Constraint(ABC):
    """Which outputs are allowed; all others have probability 0. Constraints are values, like scores."""

    @property
    @abstractmethod
    def signature(self) -> str:
        """What identifies the constraint; without `|`."""

    @abstractmethod
    def after(self, prefixes: Ints) -> NextTokens:
        """The tokens that may follow each prefix, [prefixes, length]; `</s>` where an output may end.

        Prefixes count from the first token of an output, so a forced target prefix is part of them.
        """

    def shortest(self, prefix: tuple[int, ...]) -> float:
        """The fewest tokens that complete a prefix to an allowed output, `</s>` counted; inf if nothing does.

        It is 1 where that is not known.
        """
        return 1

    def ends_with(self, eos: int) -> bool:
        """Whether the `</s>` of a model is that of the constraint."""
        return True


@final
@dataclass(frozen=True)
class AllOf(Constraint):
    """Every one of several constraints holds."""

    constraints: tuple[Constraint, ...]

    def __post_init__(self) -> None:
        if not self.constraints:
            raise UncurseError("constraints = () is not allowed: give at least one")

    @property
    def signature(self) -> str:
        """The signatures of the constraints, joined."""
        return "+".join(each.signature for each in self.constraints)

    def after(self, prefixes: Ints) -> NextTokens:
        """The tokens that every constraint allows."""
        listed: dict[bool, list[Ints]] = {True: [], False: []}
        for each in self.constraints:
            found = each.after(prefixes)
            listed[found.excluded].append(found.row * ROW + found.token)
        excluded = np.unique(np.concatenate(listed[True])) if listed[True] else np.empty(0, dtype=np.int64)
        if not listed[False]:
            return NextTokens(*np.divmod(excluded, ROW), excluded=True)
        allowed = listed[False][0]
        for other in listed[False][1:]:
            allowed = allowed[np.isin(allowed, other)]
        return NextTokens(*np.divmod(allowed[~np.isin(allowed, excluded)], ROW), excluded=False)

    def shortest(self, prefix: tuple[int, ...]) -> float:
        """What the strictest of them needs."""
        return max(each.shortest(prefix) for each in self.constraints)

    def ends_with(self, eos: int) -> bool:
        """Whether the `</s>` of a model is that of every constraint."""
        return all(each.ends_with(eos) for each in self.constraints)


def digest(*parts: object) -> str:
    """A short name for what decides a constraint."""
    return sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:12]


def checked_tokens(name: str, tokens: object) -> tuple[int, ...]:
    """Token ids as a tuple; an error if they are none."""
    if not isinstance(tokens, tuple | list):
        raise UncurseError(f"{name} = {tokens!r} is not allowed: give token ids, as a tuple or list")
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int | np.integer) or not 0 <= token < ROW:
            raise UncurseError(f"{name} has {token!r}, which is no token id")
    return tuple(map(int, tokens))
