"""Lines in, translations out, in the order of the input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar, final

import numpy as np

from uncurse.arrays import Floats, Ints
from uncurse.decoding import MOST, Decoding, Sentence, checked_count
from uncurse.length import (
    DEFAULT_LIMIT,
    AnyLimit,
    FixedRatio,
    LengthPredictor,
    Limit,
    PredictedLimit,
    QuantileLimit,
    fingerprint_of,
    limits_of,
    room_above,
)
from uncurse.model import State, StepModel
from uncurse.rescoring import needs
from uncurse.result import Result
from uncurse.search import Search
from uncurse.shards import Shard, shards_of
from uncurse.trace import Trace
from uncurse.version import VERSION

DEFAULT_LEVEL: Final = 0.8  # the default limit is this quantile of the length, where a predictor knows it
LONGEST: Final = 1000  # source pieces
TWO_WAYS: Final = (
    "give --ratio 1.1, say, for 1.1 target tokens per source piece, or fit one with uncurse fit-length"
)

S = TypeVar("S", bound=State)


class Pieces(Protocol):
    """A subword model."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line."""
        ...

    def decode(self, pieces: Sequence[int]) -> str:
        """The line that pieces spell."""
        ...


class Encoding(StepModel[S], Protocol[S]):
    """A step model that can also say what its encoder makes of sources."""

    @property
    def longest_source(self) -> int | None:
        """The most pieces of a source; None if there is no end."""
        ...

    @property
    def longest_output(self) -> int | None:
        """The most tokens of an output, forced ones and `</s>` counted; None if there is no end."""
        ...

    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """A vector for each source, [sources, size]."""
        ...


@final
@dataclass(frozen=True)
class Task:
    """Everything that decides how lines are translated, besides the model."""

    decoding: Decoding = field(default_factory=Decoding)
    limit: AnyLimit | None = None  # None: the 0.8 quantile where the predictor knows it; without, or if it is too
    # short for anything but the empty translation, 2x+10
    ratio: float | None = None  # expect this many target tokens per source piece, instead of predicting
    min_length: int = 0
    target_prefix: str = ""
    batch_tokens: int = 1500  # source pieces that are searched for together
    truncate_long_lines: bool = False

    def __post_init__(self) -> None:
        checked_count("batch_tokens", self.batch_tokens)
        checked_count("min_length", self.min_length, low=0)
        asked = needs(self.decoding.score).prediction or self.decoding.stop.needs_prediction
        if self.ratio is not None and not asked and not isinstance(self.limit, PredictedLimit):
            raise ValueError(
                f"a ratio of {self.ratio:g} is not allowed: neither the score nor the stopping rule reads a length"
            )
        if isinstance(self.limit, Limit) and not self.limit.per_piece and self.min_length > self.limit.constant:
            raise ValueError(
                f"a least length of {self.min_length} tokens is not allowed: the limit is {self.limit.constant}"
            )


@final
@dataclass(frozen=True)
class Translation:
    """A line with its translations, best first; an empty line has one empty translation and no search."""

    source: str
    texts: tuple[str, ...]
    result: Result | None
    predicted: float | None  # the expected length in tokens, </s> and any target prefix counted


def nothing_in(line: str) -> Translation:
    """What an empty line becomes."""
    return Translation(line, ("",), None, None)


def in_vain(sentence: Sentence, result: Result) -> bool:
    """Whether a search came to its limit before anything ended but, at most, the empty translation."""
    only_the_empty = result.finished == 1 and result.hypotheses[0].length == 1
    return (not result.finished or only_the_empty) and result.steps >= sentence.limit


def recorded_in_vain(trace: Trace, limit: int | None = None) -> bool:
    """The same of a search that was recorded to a limit, its own if none is given."""
    limit = trace.limit if limit is None else limit
    ended_at, _ = trace.finished  # steps are counted from 0: there the empty translation ends
    return not ended_at[ended_at < limit].any() and trace.steps >= limit


@final
class Translator:
    """A model with its subword models and its way to expect lengths."""

    def __init__(
        self, model: Encoding[S], source: Pieces, target: Pieces, predictor: LengthPredictor | None
    ) -> None:
        self.model = model
        self.predictor = predictor
        self._source = source
        self._target = target

    @property
    def longest(self) -> int:
        """The most pieces of a line."""
        return min(LONGEST, self.model.longest_source or LONGEST)

    @property
    def signature(self) -> str:
        """What decides a translation, besides the task."""
        return f"{self.model.signature} lengths-{fingerprint_of(self.predictor)} uncurse-{VERSION}"

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int = 10,
        score: str = "bp-norm",
        stop: str = "optimal",
        n_best: int = 1,
        slots: str = "occupy",
        ratio: float | None = None,
    ) -> list[Translation]:
        """Translate lines."""
        if isinstance(lines, str):  # its letters would be the lines
            raise ValueError("lines must be a list of lines, not one string")
        task = Task(Decoding.of(beam, score, stop, n_best, slots), ratio=ratio)
        return list(self.stream(lines, task))

    def stream(self, lines: Iterable[str], task: Task) -> Iterator[Translation]:
        """Translate lines as they come, a shard at a time."""
        for shard in shards_of(lines):
            yield from self.shard(shard, task)

    def shard(self, shard: Shard, task: Task) -> Iterator[Translation]:
        """Translate the lines of a shard; results are in their order, each as soon as it can be given.

        What shares a batch is decided within the shard: it is translated in the same way wherever a run begins.
        """
        lines, prefix = shard.lines, self._prefix(task)
        sources = [tuple(pieces) for pieces in self._source.encode(lines)]
        most = self.longest
        for index, pieces in enumerate(sources):
            if len(pieces) > most and not task.truncate_long_lines:
                raise ValueError(
                    f"line {shard.first + index} has {len(pieces)} pieces; the most is {most}, and --long-lines"
                    " truncate would cut it"
                )
        sources = [pieces[:most] for pieces in sources]
        ready = {index: nothing_in(lines[index]) for index, pieces in enumerate(sources) if not pieces}
        order = sorted(
            (index for index, pieces in enumerate(sources) if pieces), key=lambda index: len(sources[index])
        )
        given = 0
        for place, sentence, result in self._searched([sources[index] for index in order], prefix, task):
            ready[order[place]] = self.translation(lines[order[place]], sentence, result)
            while given in ready:
                yield ready.pop(given)
                given += 1
        yield from (ready[index] for index in sorted(ready))

    def pieces(self, line: str) -> tuple[int, ...]:
        """The pieces of a line."""
        return tuple(self._source.encode([line])[0])

    def sentence(self, line: str, task: Task) -> Sentence:
        """What a search is told of a line."""
        return self.sentences_of([self.pieces(line)], task)[0]

    def sentences_of(self, sources: list[tuple[int, ...]], task: Task) -> list[Sentence]:
        """What a search is told of the pieces of lines."""
        return self._sentences(sources, self._prefix(task), task)

    def wider(self, sentence: Sentence, task: Task) -> Sentence | None:
        """The sentence as it is searched for again after a search in vain; None if its limit was asked for.

        An expected length can be wrong, and a beam wide enough to hold the empty translation would give just that.
        """
        most = DEFAULT_LIMIT.tokens(len(sentence.source))
        limit = min(most, self.model.longest_output or most) - len(sentence.prefix)
        return replace(sentence, limit=limit) if task.limit is None and limit > sentence.limit else None

    def translation(self, line: str, sentence: Sentence, result: Result) -> Translation:
        """The texts of what a search found."""
        texts = tuple(self._target.decode((*sentence.prefix, *each.tokens)) for each in result.hypotheses)
        return Translation(line, texts, result, sentence.predicted)

    def sentences(self, lines: Sequence[str], limits: Sequence[AnyLimit]) -> list[list[Sentence]]:
        """What a search is told of lines under each of several limits, [limits][lines].

        Each line is encoded alone: what is expected of it does not depend on its neighbours, not even in the last
        bit, which can move a limit by a token.
        """
        tasks = [Task(Decoding.of(score="log-prob"), limit) for limit in limits]  # a score that needs no length
        found: list[list[Sentence]] = [[] for _ in limits]
        for pieces in self._source.encode(lines):
            source = [tuple(pieces)]
            features = self._features(source, self.predictor)
            for sentences, task in zip(found, tasks, strict=True):
                sentences += self._sentences(source, (), task, features)
        return found

    def text(self, tokens: Sequence[int]) -> str:
        """The text that target tokens spell."""
        return self._target.decode(tokens)

    def target_pieces(self, line: str) -> list[int]:
        """The pieces of a translation."""
        return self._target.encode([line])[0]

    def _prefix(self, task: Task) -> tuple[int, ...]:
        return tuple(self._target.encode([task.target_prefix])[0]) if task.target_prefix else ()

    def _searched(
        self, sources: list[tuple[int, ...]], prefix: tuple[int, ...], task: Task
    ) -> Iterator[tuple[int, Sentence, Result]]:
        """Search for sources of rising length; whenever sentences are proved, others take their place."""
        search = Search(self.model, task.decoding)
        tickets: list[tuple[int, Sentence]] = []  # by ticket: the place of its source
        at = 0
        while at < len(sources) or len(search):
            room = 0 if at == len(sources) else max(1, task.batch_tokens // len(sources[at])) - len(search)
            if room >= max(1, len(search) // 3):  # a few at a time, so that they are encoded together
                sentences = self._sentences(sources[at : at + room], prefix, task)
                search.join(sentences)
                tickets.extend(enumerate(sentences, at))
                at += len(sentences)
            for ticket, result in search.advance():
                place, sentence = tickets[ticket]
                again = self.wider(sentence, task) if in_vain(sentence, result) else None
                if again is None:
                    yield place, sentence, result
                else:
                    search.join([again])
                    tickets.append((place, again))

    def _features(self, sources: list[tuple[int, ...]], predictor: LengthPredictor | None) -> Floats:
        """What a predictor wants to know of sources, [sources, size]; a fixed ratio wants nothing."""
        return self.model.features(sources) if predictor is not None and predictor.levels else np.empty((0, 0))

    def _sentences(
        self,
        sources: list[tuple[int, ...]],
        prefix: tuple[int, ...],
        task: Task,
        features: Floats | None = None,
    ) -> list[Sentence]:
        lengths: Ints = np.array([len(source) for source in sources])
        predictor = self.predictor if task.ratio is None else FixedRatio(task.ratio)
        if predictor is None and (needs(task.decoding.score).prediction or task.decoding.stop.needs_prediction):
            raise ValueError(f"this score or stopping rule needs an expected length: {TWO_WAYS}")
        if features is None:
            features = self._features(sources, predictor)
        limit = task.limit
        if limit is None:
            known = predictor is not None and DEFAULT_LEVEL in predictor.levels
            limit = QuantileLimit(DEFAULT_LEVEL) if known else DEFAULT_LIMIT
        predicted: list[float | None] = [None] * len(sources)
        if predictor is not None:
            predicted = list(predictor.predict(lengths, features).tolist())

        def alone(index: int) -> Floats:
            return self._features([sources[index]], predictor)

        limits = limits_of(limit, predictor, lengths, features, alone if len(sources) > 1 else None)
        longest = self.model.longest_output
        if longest is not None:
            fewest = len(prefix) + max(task.min_length, 1)
            if fewest > longest:
                raise ValueError(
                    f"an output would have {fewest} tokens or more, target prefix and </s> counted; this model"
                    f" ends at {longest}"
                )
            limits = [min(most, longest) for most in limits]
        least = max(task.min_length, 1)
        if task.limit is None:
            least = min(room_above(task.min_length), (longest or MOST) - len(prefix))
        return [
            Sentence(source, max(most - len(prefix), least), prefix, expected, task.min_length)
            for source, most, expected in zip(sources, limits, predicted, strict=True)
        ]
