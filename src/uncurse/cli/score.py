"""`uncurse score`: what a model and every score think of given translations."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from uncurse.cli.options import Language


def score(
    source: Annotated[Path, typer.Argument(help="Source text.")],
    target: Annotated[Path, typer.Argument(help="Translations of it, line by line.")],
    model: Annotated[str | None, typer.Option(help="A name from `uncurse models`, or a folder.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="Adaptive rewards are those of a search of this width.")] = 10,
    reward: Annotated[float, typer.Option(help="r of the scores that need one.")] = 1.0,
    ratio: Annotated[float | None, typer.Option(help="Expect so many target tokens per source piece.")] = None,
    source_lang: Language = None,
    target_lang: Language = None,
) -> None:
    """Force-decode given translations: log-probability, token by token, and every score, as JSON lines."""
    from uncurse.explaining import scores_of, standard_scores
    from uncurse.forced import force_decode
    from uncurse.loading import load
    from uncurse.rescoring import Source
    from uncurse.search import record
    from uncurse.text.lines import read_lines
    from uncurse.translator import TWO_WAYS, Task

    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise ValueError(f"{source} has {len(sources)} lines and {target} has {len(targets)}")
    translator = load(model, source_lang=source_lang, target_lang=target_lang)
    scores = standard_scores(reward, translator.model.attends)
    for line, translation in zip(sources, targets, strict=True):
        asked = translator.sentence(line, Task(ratio=ratio))
        if asked.predicted is None:
            raise ValueError(f"an expected length is needed: {TWO_WAYS}")
        (forced,) = force_decode(translator.model, [asked.source], [translator.target_pieces(translation)])
        (trace,) = record(translator.model, [asked], beam)
        known = Source.repeated(1, len(asked.source), max(asked.limit, len(forced.tokens)), 0, asked.predicted)
        found = scores_of(forced, known, trace.rewards.tolist(), scores)
        record_line = {
            "log_prob": forced.log_prob,
            "length": len(forced.tokens),
            "predicted_length": asked.predicted,
            "tokens": list(forced.tokens),
            "log_probs": list(forced.log_probs),
            "scores": {name: value if math.isfinite(value) else None for name, value in found.items()},
        }
        typer.echo(json.dumps(record_line, ensure_ascii=False))
