"""`uncurse score`: what a model and every score think of given translations."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from uncurse.cli.options import BeamSize, LengthRatio, Reward, Threads, use_threads, with_model_options
from uncurse.errors import UncurseError
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE

if TYPE_CHECKING:
    from uncurse.translation.options import TranslationOptions
    from uncurse.translation.translator import Translator

# The record of an empty source line, which no model is asked about.
NO_SOURCE: Final[Mapping[str, Any]] = {
    "log_prob": None,
    "length": 0,
    "expected_length": None,
    "tokens": [],
    "log_probs": [],
    "scores": {},
}


@with_model_options
def score(
    source: Annotated[Path, typer.Argument(help="Source text.")],
    target: Annotated[Path, typer.Argument(help="Translations of the source text, line by line.")],
    model_options: ModelOptions,
    beam_size: BeamSize = DEFAULT_BEAM_SIZE,  # adaptive rewards are those of a search of this beam size
    reward: Reward = 1.0,
    length_ratio: LengthRatio = None,
    threads: Threads = 0,
) -> None:
    """Force-decode given translations and print a JSON record for each: log-probabilities and every score.

    An empty source line has a record without numbers.
    """
    from uncurse.text.lines import read_lines
    from uncurse.translation.options import TranslationOptions
    from uncurse.translation.translator import load_translator

    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise UncurseError(f"{source} has {len(sources)} lines and {target} has {len(targets)}")
    use_threads(threads)
    translator = load_translator(model_options)
    options = TranslationOptions(length_ratio=length_ratio)
    for number, (line, translation) in enumerate(zip(sources, targets, strict=True), start=1):
        try:
            record = _scored(translator, line, translation, options, beam_size, reward)
        except UncurseError as error:
            raise UncurseError(f"{source} and {target}, line {number}: {error}") from error
        typer.echo(json.dumps(record, ensure_ascii=False))


def _scored(
    translator: Translator, line: str, translation: str, options: TranslationOptions, beam_size: int, reward: float
) -> Mapping[str, Any]:
    from uncurse.scoring.rescorer import Source
    from uncurse.search.explain import scores_of_target, standard_scores
    from uncurse.search.forced_decoding import force_decode
    from uncurse.search.record import record

    tokens = translator.encode(line)
    if not tokens:
        return NO_SOURCE
    (sentence,) = translator.sentences([tokens], options)
    (forced,) = force_decode(translator.model, [sentence.source], [translator.encode_target(translation)])
    (trace,) = record(translator.model, [sentence], beam_size)
    expected = sentence.expected_length
    scores = standard_scores(reward, translator.model.attends, knows_length=expected is not None)
    longest = max(sentence.max_length, len(forced.tokens))
    known = Source.repeated(1, len(sentence.source), longest, 0, expected)
    found = scores_of_target(forced, known, trace.rewards.tolist(), scores)
    return {
        "log_prob": forced.log_prob,
        "length": len(forced.tokens),
        "expected_length": expected,
        "tokens": list(forced.tokens),
        "log_probs": list(forced.log_probs),
        "scores": {name: value if math.isfinite(value) else None for name, value in found.items()},
    }
