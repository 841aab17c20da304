"""What a request wants of its sentences: translations, or a whole search to look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, Protocol, TypeVar, final

from uncurse.decoding import Sentence
from uncurse.explaining import Explanation, standard_scores
from uncurse.model import StepModel
from uncurse.records import record_of
from uncurse.result import Optimality, Result
from uncurse.search import Recorder, Search
from uncurse.serving.options import Limits
from uncurse.serving.seen import seen
from uncurse.trace import Trace
from uncurse.translator import Task, Translation, Translator, in_vain, nothing_in, recorded_in_vain

T = TypeVar("T", Result, Trace)  # what a search gives for a sentence
Answer = dict[str, Any]  # of a sentence, ready to be written as JSON


class Refused(ValueError):  # noqa: N818  (it is what happens to a request, not a mistake of the service)
    """A request asks for what it cannot get; `field` is the way to what is at fault."""

    def __init__(self, field: tuple[str | int, ...], reason: str) -> None:
        ValueError.__init__(self, reason)
        self.field = field


class TooLate(Exception):  # noqa: N818
    """The deadline has passed before there was anything to answer with."""


class Searching(Protocol[T]):
    """A search that is advanced step by step."""

    def __len__(self) -> int:
        """How many sentences are being searched for."""
        ...

    def join(self, sentences: Sequence[Sentence]) -> list[int]:
        """Take in sentences, for tickets."""
        ...

    def advance(self) -> list[tuple[int, T]]:
        """Take a step."""
        ...

    def cancel_all(self, tickets: Sequence[int]) -> dict[int, T]:
        """End the search for some sentences now."""
        ...


class Order(ABC, Generic[T]):
    """What is wanted, the same for all sentences of a request."""

    task: Task

    @property
    @abstractmethod
    def shared(self) -> Hashable:
        """Orders for which this is equal share a search."""

    @abstractmethod
    def field(self, place: int) -> tuple[str | int, ...]:
        """Where in its request a sentence stands."""

    @abstractmethod
    def search(self, model: StepModel[Any]) -> Searching[T]:
        """A search for this order and others like it."""

    @abstractmethod
    def in_vain(self, sentence: Sentence, found: T) -> bool:
        """Whether a sentence should be searched for again with a wider limit."""

    @abstractmethod
    def answer(self, translator: Translator, line: str, sentence: Sentence, found: T, in_time: bool) -> Answer:
        """What a search has found."""

    @abstractmethod
    def answer_to_nothing(self, line: str) -> Answer:
        """The answer to an empty line."""

    @abstractmethod
    def answer_too_late(self, line: str) -> Answer:
        """The answer if the deadline passes before the search begins."""

    @final
    def pieces(self, translator: Translator, line: str, place: int, limits: Limits) -> tuple[int, ...]:
        """The pieces of a line that is not too long."""
        pieces = translator.pieces(line)
        most = min(limits.pieces, translator.longest)
        if len(pieces) > most:
            raise Refused(self.field(place), f"this sentence has {len(pieces)} pieces; the most is {most}")
        return pieces

    @final
    def sentences(self, translator: Translator, sources: list[tuple[int, ...]], limits: Limits) -> list[Sentence]:
        """What the search is told."""
        try:
            sentences = translator.sentences_of(sources, self.task)
        except ValueError as error:  # a limit beyond all reason
            raise Refused(("max_length",), str(error)) from None
        for sentence in sentences:
            if sentence.limit > limits.tokens:
                most = f"would get {sentence.limit} tokens; the most is {limits.tokens}"
                raise Refused(("max_length",), f"a sentence of {len(sentence.source)} pieces {most}")
        return sentences


@final
@dataclass(frozen=True)
class TranslationOrder(Order[Result]):
    """Translations, as `uncurse translate --json` writes them, and whether the search was let come to its end."""

    task: Task

    @property
    def shared(self) -> Hashable:
        """Whoever decodes in the same way; limits and expected lengths belong to the sentences."""
        return self.task.decoding

    def field(self, place: int) -> tuple[str | int, ...]:
        """One of many."""
        return "sentences", place

    def search(self, model: StepModel[Any]) -> Search[Any]:
        """A search judged online."""
        return Search(model, self.task.decoding)

    def in_vain(self, sentence: Sentence, found: Result) -> bool:
        """Nothing ended but, at most, the empty translation."""
        return in_vain(sentence, found)

    def answer(
        self, translator: Translator, line: str, sentence: Sentence, found: Result, in_time: bool
    ) -> Answer:
        """The best, with what is proved of it."""
        return record_of(translator.translation(line, sentence, found)) | {"in_time": in_time}

    def answer_to_nothing(self, line: str) -> Answer:
        """Nothing."""
        return record_of(nothing_in(line)) | {"in_time": True}

    def answer_too_late(self, line: str) -> Answer:
        """An output that was cut off before its first token."""
        nothing = Result((), 0, Optimality.TRUNCATED, inf, 0, 0, "")
        return record_of(Translation(line, (), nothing, None)) | {"in_time": False}


@final
@dataclass(frozen=True)
class ExplanationOrder(Order[Trace]):
    """A whole search, seen through every score and stopping rule."""

    task: Task
    reward: float

    @property
    def shared(self) -> Hashable:
        """Whoever has a beam of the same width."""
        return "recorded", self.task.decoding.width, self.task.decoding.slots

    def field(self, place: int) -> tuple[str | int, ...]:
        """The only one."""
        return ("sentence",)

    def search(self, model: StepModel[Any]) -> Recorder[Any]:
        """A search to its limit."""
        return Recorder(model, self.task.decoding.width, self.task.decoding.slots)

    def in_vain(self, sentence: Sentence, found: Trace) -> bool:
        """Nothing ended but, at most, the empty translation."""
        return recorded_in_vain(found)

    def answer(self, translator: Translator, line: str, sentence: Sentence, found: Trace, in_time: bool) -> Answer:
        """Everything that can be seen."""
        if not found.steps:
            raise TooLate
        if sentence.predicted is None:
            raise Refused(("ratio",), "an expected length is needed: give a ratio")
        scores = standard_scores(self.reward, translator.model.attends)
        explanation = Explanation(found, sentence.predicted, scores)
        return seen(explanation, translator.text) | {"source": line, "in_time": in_time}

    def answer_to_nothing(self, line: str) -> Answer:
        """There is no search to look at."""
        raise Refused(("sentence",), "there is nothing to translate")

    def answer_too_late(self, line: str) -> Answer:
        """There is no search to look at."""
        raise TooLate
