"""N-best lists without equal texts, and errors that name the line at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from uncurse.errors import UncurseError
from uncurse.scoring.decoding import MAX_COUNT, Sentence
from uncurse.scoring.result import Result
from uncurse.search.allowed_tokens import ConstraintError
from uncurse.translation.options import TranslationOptions

Found = tuple[int, Sentence, Result]  # the place of a source, and what was found for it
SearchFn = Callable[[list[tuple[int, ...]], TranslationOptions], Iterator[Found]]


def distinct_texts(
    search: SearchFn,
    texts_of: Callable[[Sentence, Result], tuple[str, ...]],
    sources: list[tuple[int, ...]],
    options: TranslationOptions,
) -> Iterator[Found]:
    """Search for as many hypotheses as it takes to have n of different text."""
    wanted, places = options.decoding.n_best, list(range(len(sources)))
    n_best = longer_list(wanted)
    while places:
        more = replace(options, decoding=options.decoding.replace(n_best=n_best))
        again = []
        for place, sentence, result in search([sources[place] for place in places], more):
            texts = texts_of(sentence, result)
            if is_too_short(result, texts, wanted):
                again.append(places[place])
            else:
                yield places[place], sentence, best_of_each_text(result, texts, wanted)
        places, n_best = sorted(again), longer_list(n_best)


def longer_list(n_best: int) -> int:
    """The length of the list to search for if one of this length may have too few texts."""
    return min(2 * n_best, MAX_COUNT)


def is_too_short(result: Result, texts: tuple[str, ...], wanted: int) -> bool:
    """Whether a longer list could have more of the wanted texts than this one."""
    return len(set(texts)) < wanted and len(texts) == result.decoding.n_best < MAX_COUNT


def best_of_each_text(result: Result, texts: tuple[str, ...], wanted: int) -> Result:
    """The wanted number of hypotheses; of those with equal texts the best stays.

    What is proved of a longer list holds for its beginning.
    """
    best = [each for rank, each in enumerate(result.hypotheses) if texts.index(texts[rank]) == rank]
    return replace(result, hypotheses=tuple(best[:wanted]), signature=f"{result.signature}|distinct:{wanted}")


def naming(found: Iterator[Found], line_of: Callable[[int], str]) -> Iterator[Found]:
    """What was found; if a constraint allows nothing, the error names the line."""
    try:
        yield from found
    except ConstraintError as error:
        raise UncurseError(f"{line_of(error.ticket)}: {error.reason}") from error
