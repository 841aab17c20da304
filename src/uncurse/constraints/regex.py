"""Regular expressions as automata over characters: literals, classes, groups, `|`, `*`, `+`, `?` and `{m,n}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, final

import numpy as np

from uncurse.arrays import Bools, Ints
from uncurse.errors import UncurseError

MAX_STATES: Final = 5000
_CHARACTER: Final = re.compile(r"\\[dDwWsSnrtfv]|\\[^\w\s]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\^$*+?{}()|\[\]]")
_REPEAT: Final = re.compile(r"([*+?]|\{(\d+)(,?)(\d*)\})\??")  # lazy or greedy: the language is the same


@final
@dataclass(frozen=True, eq=False)
class CharacterAutomaton:
    """A deterministic automaton; state 0 is where a text starts."""

    letters: dict[str, int]  # characters that no part of the pattern tells apart are one letter
    table: Ints  # [states, letters] the next state
    accepts: Bools  # [states] whether a text may end there
    alive: Bools  # [states] whether a match is still possible


def compile_pattern(pattern: str, alphabet: Sequence[str]) -> CharacterAutomaton:
    """The automaton of a pattern for texts of some characters, by the subset construction."""
    graph = _Graph()
    final_node = _Parser(pattern, graph).parse()
    matched = [[bool(re.fullmatch(each, char, re.DOTALL)) for char in alphabet] for each in graph.classes]
    kinds, letter = np.unique(
        np.array(matched, dtype=bool).reshape(-1, len(alphabet)), axis=1, return_inverse=True
    )
    start = graph.closure({0})
    number, waiting, table = {start: 0}, [start], []
    for nodes in waiting:
        targets = [frozenset[int]()] * kinds.shape[1]
        for kind in range(kinds.shape[1]):
            after = {to for node in nodes for which, to in graph.edges[node] if kinds[which, kind]}
            targets[kind] = graph.closure(after)
        for found in targets:
            if found not in number:
                number[found] = len(number)
                waiting.append(found)
        table.append([number[found] for found in targets])
        if len(number) > MAX_STATES:
            raise UncurseError(f"the pattern {pattern!r} needs more than {MAX_STATES} states")
    accepts = np.array([final_node in nodes for nodes in waiting])
    moves = np.array(table, dtype=np.int64).reshape(len(waiting), -1)
    return CharacterAutomaton(
        dict(zip(alphabet, letter.reshape(-1).tolist(), strict=True)), moves, accepts, _alive(moves, accepts)
    )


def _alive(table: Ints, accepts: Bools) -> Bools:
    alive = accepts
    while ((more := alive | alive[table].any(axis=1)) != alive).any():
        alive = more
    return alive


@final
@dataclass(eq=False)
class _Graph:
    """A nondeterministic automaton that starts at node 0."""

    free: list[list[int]] = field(default_factory=lambda: [[]])  # [nodes] where one gets without a character
    edges: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])  # [nodes] a class and where it leads
    classes: list[str] = field(default_factory=list)  # patterns of one character

    def node(self) -> int:
        if len(self.free) > MAX_STATES:
            raise UncurseError(f"the pattern needs more than {MAX_STATES} states")
        self.free.append([])
        self.edges.append([])
        return len(self.free) - 1

    def closure(self, nodes: set[int]) -> frozenset[int]:
        waiting = list(nodes)
        for node in waiting:
            waiting += [after for after in self.free[node] if after not in nodes]
            nodes.update(self.free[node])
        return frozenset(nodes)


@final
class _Parser:
    """Recursive descent; what is repeated is read once for each repetition."""

    def __init__(self, pattern: str, graph: _Graph) -> None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UncurseError(f"the pattern {pattern!r} is no regular expression: {error}") from error
        self._pattern, self._graph, self._at = pattern, graph, 0

    def parse(self) -> int:
        """The node at which a match ends."""
        end = self._alternatives(0)
        if self._at < len(self._pattern):
            self._refuse()
        return end

    def _alternatives(self, start: int) -> int:
        graph, end = self._graph, self._graph.node()
        while True:
            node = graph.node()
            graph.free[start].append(node)
            while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
                node = self._repeated(node)
            graph.free[node].append(end)
            if self._pattern[self._at : self._at + 1] != "|":
                return end
            self._at += 1

    def _repeated(self, start: int) -> int:
        graph, begin = self._graph, self._at
        first = graph.node()
        graph.free[start].append(first)
        node, after = self._one(first), self._at
        found = _REPEAT.match(self._pattern, after)
        if found is None:
            return node
        sign, low, comma, high = found.groups()
        fewest = int(low) if low else int(sign == "+")
        most = (int(high) if high else None) if comma else (int(low) if low else {"?": 1}.get(sign))
        end = graph.node()
        if most == 0:
            graph.free[start].append(end)
            graph.free[first], graph.edges[first] = [], []
        else:
            if fewest == 0:
                graph.free[start].append(end)
            for count in range(1, most or max(fewest, 1)):
                if count >= fewest:
                    graph.free[node].append(end)
                self._at, first = begin, node
                node = self._one(again := graph.node())
                graph.free[first].append(again)
                first = again
            if most is None:
                graph.free[node].append(first)
            graph.free[node].append(end)
        self._at = found.end()
        return end

    def _one(self, start: int) -> int:
        """A character or a group."""
        if self._pattern[self._at] == "(":
            self._at += 3 if self._pattern.startswith("(?:", self._at) else 1
            end = self._alternatives(start)
            self._at += 1  # the closing bracket, which is there
            return end
        found = _CHARACTER.match(self._pattern, self._at)
        if found is None:
            self._refuse()
        self._at = found.end()
        end = self._graph.node()
        if found[0] not in self._graph.classes:
            self._graph.classes.append(found[0])
        self._graph.edges[start].append((self._graph.classes.index(found[0]), end))
        return end

    def _refuse(self) -> NoReturn:
        raise UncurseError(
            f"the pattern {self._pattern!r} cannot be used: {self._pattern[self._at :]!r} begins with what only"
            " searches in texts can do; characters, classes, groups, |, *, +, ? and {m,n} are known"
        )
