"""Lines in, translations out, in the order of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Final, final

import numpy as np

from uncurse.arrays import Floats
from uncurse.constraints.constraint import Constraint
from uncurse.errors import UncurseError
from uncurse.lengths.limits import LinearLimit, MaxLength, parse_max_length
from uncurse.lengths.policy import LengthPolicy
from uncurse.lengths.predictors import LengthPredictor, fingerprint_of
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions, S, TranslationModel
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE, Decoding, Sentence, Slots
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.result import Certificate, Result
from uncurse.scoring.stopping import StoppingRule
from uncurse.search.allowed_tokens import ConstraintError
from uncurse.search.search import Search
from uncurse.search.trace import Trace
from uncurse.text.tokenizer import Tokenizer
from uncurse.translation.distinct_texts import Found, distinct_texts, naming
from uncurse.translation.options import TranslationOptions
from uncurse.translation.output_constraints import OutputConstraints
from uncurse.translation.shards import Shard, shards_of
from uncurse.version import VERSION

MAX_SOURCE_LENGTH: Final = 1000  # tokens, whatever the model
JOIN_FRACTION: Final = 3  # sentences join a batch when they are at least a third of it, to be encoded together


@final
@dataclass(frozen=True)
class Translation:
    """A line with its translations, best first; an empty line has one empty translation and no search."""

    source: str
    texts: tuple[str, ...]
    result: Result | None
    expected_length: float | None  # in tokens, </s> and any target prefix counted
    source_truncated: bool = False  # whether the line was cut to what the model takes

    @property
    def text(self) -> str:
        """The best translation; empty if there is none."""
        return self.texts[0] if self.texts else ""

    @property
    def score(self) -> float | None:
        """The score of the best translation; None if there was no search or nothing was found."""
        return self.result.hypotheses[0].score if self.result and self.result.hypotheses else None

    @property
    def certificate(self) -> Certificate | None:
        """What is proved of the translations; None if there was no search."""
        return None if self.result is None else self.result.certificate


def empty_translation(line: str) -> Translation:
    """What an empty line becomes."""
    return Translation(line, ("",), None, None)


@final
class Translator:
    """A model with its tokenizers and its length predictor."""

    def __init__(
        self, model: TranslationModel[S], source: Tokenizer, target: Tokenizer, predictor: LengthPredictor | None
    ) -> None:
        self.model: TranslationModel[Any] = model
        self.predictor = predictor
        self._source = source
        self._target = target

    @property
    def max_source_length(self) -> int:
        """The maximum number of tokens in a line."""
        return min(MAX_SOURCE_LENGTH, self.model.max_source_length or MAX_SOURCE_LENGTH)

    @property
    def signature(self) -> str:
        """Identifies everything but the options that affects a translation."""
        return f"{self.model.signature} lengths-{fingerprint_of(self.predictor)} uncurse-{VERSION}"

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int = DEFAULT_BEAM_SIZE,
        score: Rescorer | str | None = None,
        stop: StoppingRule | str = "optimal",
        n_best: int = 1,
        slots: Slots | str = "occupy",
        max_length: MaxLength | str | int | None = None,
        min_length: int = 0,
        length_ratio: float | None = None,
        target_prefix: str = "",
        only: Sequence[str] | None = None,
        ban: Sequence[str] = (),
        no_repeat_ngram: int = 0,
        distinct: bool = False,
        batch_tokens: int = 1500,
        truncate: bool = False,
    ) -> list[Translation]:
        """Translate lines; the options are those of the command `uncurse translate`.

        `score` defaults to F1-Norm if the model has a length predictor or a `length_ratio` is given, else to
        length norm. `max_length` is 100, "2x+10", "q0.95" or "predicted"; by default the 0.8 quantile of the
        length where the predictor knows it, else 2x+10. `only` lists the outputs that are allowed; no output
        contains a text of `ban` as whole words, or an n-gram of `no_repeat_ngram` tokens twice. With `distinct`
        no text is twice in an n-best list. With `truncate`, lines that are too long for the model are cut, not
        refused.
        """
        if isinstance(lines, str):  # its letters would be the lines
            raise UncurseError("lines must be a list of lines, not one string")
        most = parse_max_length(max_length) if isinstance(max_length, str | int) else max_length
        options = TranslationOptions(
            decoding=Decoding(beam_size=beam_size, score=score, stop=stop, n_best=n_best, slots=slots),
            max_length=most,
            min_length=min_length,
            length_ratio=length_ratio,
            target_prefix=target_prefix,
            constraints=OutputConstraints(None if only is None else tuple(only), tuple(ban), no_repeat_ngram),
            distinct=distinct,
            batch_tokens=batch_tokens,
            truncate=truncate,
        )
        return list(self.stream(lines, options))

    def stream(self, lines: Iterable[str], options: TranslationOptions) -> Iterator[Translation]:
        """Translate lines as they arrive, a shard at a time."""
        for shard in shards_of(lines):
            yield from self.translate_shard(shard, options)

    def translate_shard(
        self, shard: Shard, options: TranslationOptions, advance: Callable[[int], None] | None = None
    ) -> Iterator[Translation]:
        """Translate the lines of a shard; results are in their order, each as soon as it can be given.

        What shares a batch is decided within the shard: so a resumed run gives the same output. `advance` is told
        how many lines are done, which need not be those that come next.
        """
        advance = advance or (lambda lines: None)
        options = options.resolved(self.predictor)
        lines = shard.lines
        sources = [tuple(tokens) for tokens in self._source.encode(lines)]
        most = self.max_source_length
        for index, tokens in enumerate(sources):
            if len(tokens) > most and not options.truncate:
                raise UncurseError(
                    f"{shard.place(index)} has {len(tokens)} tokens; the maximum is {most}: shorten it, or"
                    " ask for long lines to be truncated"
                )
        cut = {index for index, tokens in enumerate(sources) if len(tokens) > most}
        sources = [tokens[:most] for tokens in sources]
        ready = {index: empty_translation(lines[index]) for index, tokens in enumerate(sources) if not tokens}
        order = sorted(
            (index for index, tokens in enumerate(sources) if tokens), key=lambda index: len(sources[index])
        )
        advance(len(ready))
        given = 0
        search = partial(distinct_texts, self._searched, self.texts) if options.distinct else self._searched
        found = search([sources[index] for index in order], options)
        for place, sentence, result in naming(found, lambda place: shard.place(order[place])):
            index = order[place]
            ready[index] = self.translation(lines[index], sentence, result, source_truncated=index in cut)
            advance(1)
            while given in ready:
                yield ready.pop(given)
                given += 1
        yield from (ready[index] for index in sorted(ready))

    def encode(self, line: str) -> tuple[int, ...]:
        """The source tokens of a line."""
        return tuple(self._source.encode([line])[0])

    def encode_target(self, line: str) -> list[int]:
        """The target tokens of a translation."""
        return self._target.encode([line])[0]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text that target tokens spell."""
        return self._target.decode(tokens)

    def sentences(self, sources: Sequence[tuple[int, ...]], options: TranslationOptions) -> list[Sentence]:
        """Build the `Sentence` (expected and maximum length, prefix) of each source."""
        features = self._features(sources, options)

        def alone(index: int) -> Floats:
            return self._features([sources[index]], options)

        prefixes = [self._prefix(options)] * len(sources)
        found = self._policy(options).sentences(sources, prefixes, features, alone if len(sources) > 1 else None)
        constraint = self.constraint(options.constraints)
        return found if constraint is None else [replace(sentence, constraint=constraint) for sentence in found]

    def constraint(self, constraints: OutputConstraints) -> Constraint | None:
        """The constraint on translations that the options ask for."""
        return constraints.constraint(self._target, self.model.vocab_size, self.model.eos)

    def sentences_at(self, lines: Sequence[str], max_lengths: Sequence[MaxLength]) -> list[list[Sentence]]:
        """Build the `Sentence` of each line under several maximum lengths, [max_lengths][lines].

        Each line is encoded alone: what is expected of it does not depend on its neighbours, not even in the last
        bit, which can move a maximum length by a token.
        """
        policies = [self._policy(TranslationOptions(max_length=most)) for most in max_lengths]
        found: list[list[Sentence]] = [[] for _ in max_lengths]
        for tokens in self._source.encode(lines):
            source = [tuple(tokens)]
            features = self._features(source, TranslationOptions())
            for sentences, policy in zip(found, policies, strict=True):
                sentences += policy.sentences(source, [()], features)
        return found

    def retry(self, sentence: Sentence, found: Result | Trace, options: TranslationOptions) -> Sentence | None:
        """The sentence with a larger maximum length if it must be searched again, else None."""
        return self._policy(options).retry(sentence, found)

    def translation(
        self, line: str, sentence: Sentence, result: Result, source_truncated: bool = False
    ) -> Translation:
        """The texts of what a search found."""
        return Translation(
            source=line,
            texts=self.texts(sentence, result),
            result=result,
            expected_length=sentence.expected_length,
            source_truncated=source_truncated,
        )

    def texts(self, sentence: Sentence, result: Result) -> tuple[str, ...]:
        """The text of each hypothesis."""
        return tuple(self._target.decode((*sentence.prefix, *each.tokens)) for each in result.hypotheses)

    def _prefix(self, options: TranslationOptions) -> tuple[int, ...]:
        return tuple(self._target.encode([options.target_prefix])[0]) if options.target_prefix else ()

    def _policy(self, options: TranslationOptions) -> LengthPolicy:
        trie = options.constraints.trie(self._target, self.model.eos)
        if trie is not None and options.max_length is None:  # no output is longer
            options = replace(options, max_length=LinearLimit(Fraction(0), trie.longest))
        return options.policy(self.predictor, self.model.max_target_length)

    def _features(self, sources: Sequence[tuple[int, ...]], options: TranslationOptions) -> Floats:
        """Encoder features for the length predictor, [sources, size]; empty if it needs none."""
        predictor = options.predictor(self.predictor)
        return self.model.features(sources) if predictor is not None and predictor.levels else np.empty((0, 0))

    def _searched(self, sources: list[tuple[int, ...]], options: TranslationOptions) -> Iterator[Found]:
        """Search for sources of rising length; as sentences finish, others take their place."""
        search = Search(self.model, options.decoding)
        tickets: list[tuple[int, Sentence]] = []  # by ticket: the place of its source
        at = 0
        try:
            while at < len(sources) or len(search):
                room = 0 if at == len(sources) else max(1, options.batch_tokens // len(sources[at])) - len(search)
                if room >= max(1, len(search) // JOIN_FRACTION):
                    sentences = self.sentences(sources[at : at + room], options)
                    tickets.extend(enumerate(sentences, at))
                    search.join(sentences)
                    at += len(sentences)
                for ticket, result in search.advance():
                    place, sentence = tickets[ticket]
                    longer = self.retry(sentence, result, options)
                    if longer is None:
                        yield place, sentence, result
                    else:
                        tickets.append((place, longer))
                        search.join([longer])
        except ConstraintError as error:
            raise ConstraintError(tickets[error.ticket][0], error.reason) from None


def load_translator(options: ModelOptions) -> Translator:
    """The translator of a model."""
    loaded = load_model(options)
    return Translator(loaded.model, loaded.source, loaded.target, loaded.predictor)
