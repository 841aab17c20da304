"""What a request wants of its sentences: translations, or a whole search to look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Generic, Protocol, TypeVar, final

from uncurse.errors import UncurseError
from uncurse.scoring.decoding import MAX_COUNT, Decoding, Sentence
from uncurse.scoring.result import Certificate, Result
from uncurse.search.explain import Explanation, standard_scores
from uncurse.search.record import Recorder
from uncurse.search.search import Search
from uncurse.search.step_model import StepModel
from uncurse.search.trace import Trace
from uncurse.serving.errors import DeadlineError, FieldPath, InvalidFieldError
from uncurse.serving.explain_payload import explain_payload
from uncurse.serving.limits import ServiceLimits
from uncurse.translation.distinct_texts import best_of_each_text, is_too_short, longer_list
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import record_of
from uncurse.translation.translator import Translation, Translator, empty_translation

T = TypeVar("T", Result, Trace)  # what a search gives for a sentence
Answer = dict[str, Any]  # for a sentence, ready to be written as JSON


class SteppedSearch(Protocol[T]):
    """A search that is advanced step by step."""

    def __len__(self) -> int:
        """How many sentences are being searched for."""
        ...

    def join(self, sentences: Sequence[Sentence]) -> list[int]:
        """Take in sentences; return a ticket for each."""
        ...

    def advance(self) -> list[tuple[int, T]]:
        """Take a step with every sentence; return tickets and results of those that ended with it."""
        ...

    def cancel_all(self, tickets: Sequence[int]) -> dict[int, T]:
        """End the search for some sentences now."""
        ...


class Job(ABC, Generic[T]):
    """What is wanted, the same for all sentences of a request."""

    options: TranslationOptions

    @property
    @abstractmethod
    def search_key(self) -> Hashable:
        """Jobs with equal keys share a search."""

    @abstractmethod
    def field(self, index: int) -> FieldPath:
        """Where a sentence is in its request."""

    @abstractmethod
    def search(self, model: StepModel[Any]) -> SteppedSearch[T]:
        """A search for this job and others with its key."""

    @abstractmethod
    def with_longer_list(self, translator: Translator, sentence: Sentence, found: T) -> Job[T] | None:
        """The job to search again with if too few hypotheses were found, else None."""

    @abstractmethod
    def answer(self, translator: Translator, line: str, sentence: Sentence, found: T, in_time: bool) -> Answer:
        """The answer that a search result makes."""

    @abstractmethod
    def answer_empty(self, line: str) -> Answer:
        """The answer to an empty line."""

    @abstractmethod
    def answer_late(self, line: str) -> Answer:
        """The answer if the deadline passes before the search begins."""

    @final
    def encode(self, translator: Translator, line: str, index: int, limits: ServiceLimits) -> tuple[int, ...]:
        """The source tokens of a line, unless there are too many."""
        tokens = translator.encode(line)
        most = min(limits.source_length, translator.max_source_length)
        if len(tokens) > most:
            raise InvalidFieldError(
                self.field(index), f"the sentence has {len(tokens)} tokens; the maximum is {most}"
            )
        return tokens

    @final
    def sentences(
        self, translator: Translator, sources: list[tuple[int, ...]], limits: ServiceLimits
    ) -> list[Sentence]:
        """What the search is told of source tokens."""
        self._check_forced(translator, limits)
        try:
            sentences = translator.sentences(sources, self.options)
        except UncurseError as error:  # a maximum length beyond all reason
            raise InvalidFieldError(("max_length",), str(error)) from None
        for sentence in sentences:
            most = len(sentence.prefix) + sentence.max_length
            if most > limits.max_length:
                at_fault = (
                    "min_length" if self.options.max_length is None and self.options.min_length else "max_length"
                )
                raise InvalidFieldError(
                    (at_fault,),
                    f"an output for {len(sentence.source)} source tokens could have {most} tokens; the maximum is"
                    f" {limits.max_length}",
                )
        return sentences

    def _check_forced(self, translator: Translator, limits: ServiceLimits) -> None:
        """Refuse a target prefix and a minimum length that no output can have."""
        options = self.options
        prefix = translator.encode_target(options.target_prefix) if options.target_prefix else []
        if translator.model.eos in prefix:
            raise InvalidFieldError(("target_prefix",), "the prefix contains the end-of-sentence token")
        forced = len(prefix)
        room = min(limits.max_length, translator.model.max_target_length or MAX_COUNT)
        if forced >= room:
            reason = f"the prefix has {forced} tokens; an output has at most {room}, </s> included"
            raise InvalidFieldError(("target_prefix",), reason)
        if forced + options.min_length > room:
            reason = f"{options.min_length} tokens after a prefix of {forced} are too many: the maximum is {room}"
            raise InvalidFieldError(("min_length",), reason)


@final
@dataclass(frozen=True)
class TranslationJob(Job[Result]):
    """Translations as `uncurse translate --json` writes them, and whether the search could come to its end."""

    options: TranslationOptions  # with a score
    n_best: int  # hypotheses to search for; more than are asked for if their texts must be distinct

    @staticmethod
    def of(options: TranslationOptions) -> TranslationJob:
        """The job that these options, which have a score, ask for."""
        n_best = options.decoding.n_best
        return TranslationJob(options, longer_list(n_best) if options.distinct else n_best)

    @property
    def search_key(self) -> Hashable:
        """The decoding; lengths belong to the sentences, and so do constraints, but one can make a search fail."""
        return self._decoding, self.options.constraints

    @property
    def _decoding(self) -> Decoding:
        return self.options.decoding.replace(n_best=self.n_best)

    def field(self, index: int) -> FieldPath:
        """An item of `sentences`."""
        return "sentences", index

    def search(self, model: StepModel[Any]) -> Search[Any]:
        """A search that is judged online."""
        return Search(model, self._decoding)

    def with_longer_list(self, translator: Translator, sentence: Sentence, found: Result) -> TranslationJob | None:
        """The same with a longer list, if this one has too few distinct texts."""
        if not self.options.distinct:
            return None
        too_short = is_too_short(found, translator.texts(sentence, found), self.options.decoding.n_best)
        return replace(self, n_best=longer_list(self.n_best)) if too_short else None

    def answer(
        self, translator: Translator, line: str, sentence: Sentence, found: Result, in_time: bool
    ) -> Answer:
        """The best translation with its certificate."""
        if self.options.distinct:
            found = best_of_each_text(found, translator.texts(sentence, found), self.options.decoding.n_best)
        return record_of(translator.translation(line, sentence, found)) | {"in_time": in_time}

    def answer_empty(self, line: str) -> Answer:
        """An empty translation."""
        return record_of(empty_translation(line)) | {"in_time": True}

    def answer_late(self, line: str) -> Answer:
        """An output that was cut off before its first token."""
        nothing = Result(
            hypotheses=(),
            finished=0,
            certificate=Certificate.TRUNCATED,
            gap=inf,
            steps=0,
            model_rows=0,
            decoding=self.options.decoding,
            signature="",
        )
        return record_of(Translation(line, (), nothing, None)) | {"in_time": False}


@final
@dataclass(frozen=True)
class ExplanationJob(Job[Trace]):
    """A whole search, seen through every score and stopping rule."""

    options: TranslationOptions
    reward: float

    @property
    def search_key(self) -> Hashable:
        """What decides the contents of the beam."""
        return "recorded", self.options.decoding.beam_size, self.options.decoding.slots

    def field(self, index: int) -> FieldPath:
        """The only sentence."""
        return ("sentence",)

    def search(self, model: StepModel[Any]) -> Recorder[Any]:
        """A search to the maximum length."""
        return Recorder(model, self.options.decoding.beam_size, self.options.decoding.slots)

    def with_longer_list(self, translator: Translator, sentence: Sentence, found: Trace) -> None:
        """A recorded search has everything."""

    def answer(self, translator: Translator, line: str, sentence: Sentence, found: Trace, in_time: bool) -> Answer:
        """Everything that the page shows."""
        if not found.steps:
            raise DeadlineError
        expected = sentence.expected_length
        scores = standard_scores(self.reward, translator.model.attends, knows_length=expected is not None)
        explanation = Explanation(found, expected, scores)
        return explain_payload(explanation, translator.decode) | {"source": line, "in_time": in_time}

    def answer_empty(self, line: str) -> Answer:
        """There is no search to look at."""
        raise InvalidFieldError(("sentence",), "the sentence is empty")

    def answer_late(self, line: str) -> Answer:
        """There is no search to look at."""
        raise DeadlineError
