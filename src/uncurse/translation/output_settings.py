"""Everything that decides the bytes of an output, by name: a run is resumed only with the same settings."""

from __future__ import annotations

from uncurse.lengths.limits import LinearLimit, MaxLength, QuantileLimit
from uncurse.scoring.registry import source_digest
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES
from uncurse.translation.options import TranslationOptions


def output_settings(
    model: str, options: TranslationOptions, style: str, device: str, threads: int
) -> dict[str, str]:
    """The settings of an output by a model with this signature, in words that a message can quote."""
    decoding = options.decoding
    score = decoding.score
    settings = {
        "model": model,
        "beam_size": decoding.beam_size,
        "score": "default" if score is None else SCORES.spec(score),
        "score_code": None if score is None else source_digest(score),
        "stop": RULES.spec(decoding.stop),
        "stop_code": source_digest(decoding.stop),
        "n_best": decoding.n_best,
        "slots": decoding.slots.value,
        "max_length": _written(options.max_length),
        "min_length": options.min_length,
        "length_ratio": options.length_ratio,
        "target_prefix": options.target_prefix,
        **options.constraints.settings(),
        "distinct": options.distinct or None,
        "batch_tokens": options.batch_tokens,
        "truncate": options.truncate,
        "output": style,
        "device": device,
        "threads": threads,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def _written(max_length: MaxLength | None) -> str:
    """A maximum length as a user writes it."""
    if max_length is None:
        return "default"
    if isinstance(max_length, QuantileLimit):
        return f"q{max_length.level!r}"
    if isinstance(max_length, LinearLimit):
        multiple = f"{max_length.per_token}x+" if max_length.per_token else ""
        return f"{multiple}{max_length.constant}"
    return "predicted"
