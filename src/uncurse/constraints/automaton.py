"""Constraints that allow little: a list of outputs, or what a regular expression matches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from uncurse.arrays import Bools, Floats, Ints
from uncurse.constraints.constraint import ROW, Constraint, NextTokens, checked_tokens, digest
from uncurse.constraints.regex import CharacterAutomaton, compile_pattern
from uncurse.errors import UncurseError

END: Final = -1  # where `</s>` leads to
MAX_EDGES: Final = 1 << 26


@final
@dataclass(frozen=True, eq=False)
class Transitions:
    """A graph whose edges are tokens, sorted by node, then token; outputs start at node 0."""

    node: Ints  # [edges] where an edge begins
    token: Ints  # [edges]
    target: Ints  # [edges] where it leads
    nodes: int

    def after(self, prefixes: Ints) -> NextTokens:
        """The tokens on the edges of the node that each prefix leads to."""
        node = self.walk(prefixes)
        known = np.maximum(node, 0)
        count = np.where(node >= 0, self._first[known + 1] - self._first[known], 0)
        row = np.repeat(np.arange(len(node)), count)
        edge = np.arange(len(row)) + np.repeat(self._first[known] - (np.cumsum(count) - count), count)
        return NextTokens(row, self.token[edge], excluded=False)

    def walk(self, prefixes: Ints) -> Ints:
        """The node that each prefix leads to, below 0 where there is none, [prefixes]."""
        node = np.zeros(len(prefixes), dtype=np.int64)
        for column in prefixes.T:
            wanted = node * ROW + column
            edge = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
            node = np.where((node >= 0) & (self._keys[edge] == wanted), self.target[edge], END)
        return node

    def shortest(self, prefix: tuple[int, ...]) -> float:
        """The fewest tokens to the end."""
        (node,) = self.walk(np.array([prefix], dtype=np.int64)) if self.token.size else (END,)
        return float(self.distances[node]) if node >= 0 else np.inf

    def trimmed(self) -> Transitions:
        """The same without edges that do not lead to the end."""
        useful: Bools = (self.target == END) | (self.distances[np.maximum(self.target, 0)] < np.inf)
        return Transitions(self.node[useful], self.token[useful], self.target[useful], self.nodes)

    @cached_property
    def distances(self) -> Floats:
        """The fewest tokens from each node to the end, inf where there is no way, [nodes]."""
        distance = np.full(self.nodes, np.inf)
        reached = np.unique(self.node[self.target == END])
        steps = 1
        order = np.argsort(self.target, kind="stable")
        by_target, begins = self.node[order], np.searchsorted(self.target[order], np.arange(self.nodes + 1))
        while len(reached):
            distance[reached] = steps
            steps += 1
            into = np.concatenate([by_target[begins[node] : begins[node + 1]] for node in reached.tolist()])
            reached = np.unique(into[np.isinf(distance[into])])
        return distance

    @cached_property
    def _keys(self) -> Ints:
        return self.node * ROW + self.token

    @cached_property
    def _first(self) -> Ints:
        """The first edge of each node, [nodes + 1]."""
        return np.searchsorted(self.node, np.arange(self.nodes + 1))


class GraphConstraint(Constraint):
    """A constraint whose allowed outputs are the paths of a graph from node 0 to the end."""

    eos: int

    @property
    @abstractmethod
    def _transitions(self) -> Transitions: ...

    @final
    def after(self, prefixes: Ints) -> NextTokens:
        """The tokens on the edges of the node that each prefix leads to."""
        return self._transitions.after(prefixes)

    @final
    def shortest(self, prefix: tuple[int, ...]) -> float:
        """The fewest tokens from the prefix to the end of an allowed output."""
        return self._transitions.shortest(prefix)

    @final
    def ends_with(self, eos: int) -> bool:
        """Whether the `</s>` of a model is that of the graph."""
        return self.eos == eos


@final
@dataclass(frozen=True, init=False)
class Trie(GraphConstraint):
    """Only the listed outputs are allowed."""

    outputs: tuple[tuple[int, ...], ...]  # without </s>
    eos: int

    def __init__(self, outputs: Sequence[Sequence[int]], eos: int) -> None:
        """Take the token ids of the outputs, without `</s>`; their order does not matter."""
        checked = {checked_tokens("an output", output) for output in outputs}
        if not checked:
            raise UncurseError("no output is allowed: give at least one")
        if any(eos in output for output in checked):
            raise UncurseError(
                f"an output has the eos token {eos}, which is added to each and stands nowhere else"
            )
        object.__setattr__(self, "outputs", tuple(sorted(checked)))
        object.__setattr__(self, "eos", int(eos))

    @property
    def signature(self) -> str:
        """The kind and a digest of the outputs."""
        return f"trie-{self._digest}"

    @property
    def longest(self) -> int:
        """The most tokens of an output, `</s>` counted."""
        return 1 + max(map(len, self.outputs))

    @cached_property
    def _digest(self) -> str:
        return digest(self.outputs, self.eos)

    @cached_property
    def _transitions(self) -> Transitions:
        table = np.full((len(self.outputs), self.longest), -1)
        lengths = np.array([len(output) for output in self.outputs])
        table[np.arange(table.shape[1]) < lengths[:, None]] = [
            token for output in self.outputs for token in output
        ]
        table[np.arange(len(table)), lengths] = self.eos
        node, parts, nodes = np.zeros(len(table), dtype=np.int64), [], 1  # of each output, one column at a time
        for column in table.T:
            going_on = np.flatnonzero(column >= 0)
            keys, place = np.unique(node[going_on] * ROW + column[going_on], return_inverse=True)
            token = keys % ROW
            target = np.where(token == self.eos, END, nodes + np.cumsum(token != self.eos) - 1)
            parts.append((keys // ROW, token, target))
            nodes += int((token != self.eos).sum())
            node[going_on] = target[place]
        return _joined(parts, nodes)


@final
@dataclass(frozen=True, init=False)
class Automaton(GraphConstraint):
    """Only outputs whose text a regular expression matches from beginning to end are allowed."""

    pattern: str
    pieces: tuple[str | None, ...]  # the text of each token
    eos: int

    def __init__(self, pattern: str, pieces: Sequence[str | None], eos: int) -> None:
        """Take a pattern and the text of each token of the vocabulary; tokens without a text are not allowed.

        The text of an output is the texts of its tokens, one after the other. With one character for each token
        the pattern is over tokens.
        """
        object.__setattr__(self, "pattern", pattern)
        object.__setattr__(self, "pieces", tuple(pieces))
        object.__setattr__(self, "eos", eos)
        if not 0 <= eos < len(self.pieces):
            raise UncurseError(f"eos = {eos} is not allowed: there are {len(self.pieces)} tokens")
        if np.isinf(self._transitions.distances[0]):
            raise UncurseError(f"the pattern {pattern!r} matches nothing that these tokens can spell")

    @property
    def signature(self) -> str:
        """The kind and a digest of pattern and vocabulary."""
        return f"regex-{self._digest}"

    @cached_property
    def _digest(self) -> str:
        return digest(self.pattern, self.pieces, self.eos)

    @cached_property
    def _transitions(self) -> Transitions:
        texts = ["" if piece is None or token == self.eos else piece for token, piece in enumerate(self.pieces)]
        return _over_tokens(compile_pattern(self.pattern, sorted(set("".join(texts)))), texts, self.eos).trimmed()


def _over_tokens(automaton: CharacterAutomaton, texts: Sequence[str], eos: int) -> Transitions:
    """An automaton whose edges are tokens instead of characters; only states between tokens are looked at."""
    order = sorted(range(len(texts)), key=lambda token: -len(texts[token]))
    order = order[: sum(map(bool, texts))]  # the longest first, without those that are empty
    lengths = np.array([len(texts[token]) for token in order])
    letters = np.zeros((len(order), int(lengths.max(initial=0))), dtype=np.int64)
    letters[np.arange(letters.shape[1]) < lengths[:, None]] = [
        automaton.letters[character] for token in order for character in texts[token]
    ]
    counts = [int((lengths > column).sum()) for column in range(letters.shape[1])]
    number, waiting = {0: 0}, [0]  # the node of each state
    parts: list[tuple[Ints, Ints, Ints]] = []
    for state in waiting:
        states = np.full(len(order), state)
        for column, count in enumerate(counts):
            states[:count] = automaton.table[states[:count], letters[:count, column]]
        alive = np.flatnonzero(automaton.alive[states])
        for new in np.unique(states[alive]).tolist():
            if new not in number:
                number[new] = len(number)
                waiting.append(new)
        tokens, targets = np.array(order, dtype=np.int64)[alive], [number[new] for new in states[alive].tolist()]
        if automaton.accepts[state]:
            tokens, targets = np.append(tokens, eos), [*targets, END]
        rising = np.argsort(tokens)
        parts.append(
            (np.full(len(tokens), number[state]), tokens[rising], np.array(targets, dtype=np.int64)[rising])
        )
        if sum(len(part[0]) for part in parts) > MAX_EDGES:
            raise UncurseError(f"the pattern has too many states for a vocabulary of {len(texts)} tokens")
    return _joined(parts, len(number))


def _joined(parts: Sequence[tuple[Ints, Ints, Ints]], nodes: int) -> Transitions:
    node, token, target = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Transitions(node, token, target, nodes)
