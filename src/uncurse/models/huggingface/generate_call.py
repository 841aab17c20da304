"""What a call of `generate` asked for, told apart from what comes with the model."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Final, final

from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    ForcedEOSTokenLogitsProcessor,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    MinPLogitsWarper,
    PreTrainedModel,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from uncurse.errors import UncurseError
from uncurse.scoring.decoding import DEFAULT_BEAM_SIZE
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.scores import LengthNorm

SAMPLING: Final = (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)  # what `do_sample` adds to the logits processors


@final
@dataclass(frozen=True, eq=False)
class GenerateFrame:
    """Local variables of `generate` that a `custom_generate` function is not given, under their names."""

    kwargs: dict[str, Any] = field(default_factory=dict)  # keyword arguments, but those of the function itself
    logits_processor: LogitsProcessorList | None = None  # the caller's own
    stopping_criteria: StoppingCriteriaList | None = None  # the caller's own
    streamer: object | None = None
    assistant_model: object | None = None
    has_default_max_length: bool = False  # neither call nor model has a maximum length, and `generate` takes 20


def frame_of_generate() -> GenerateFrame:
    """Read the stack frame of the `generate` that is running.

    There is no other way to learn what the caller wrote. `generate` drops a streamer without a word, though its
    reader would wait for ever, and it merges the options of the call with the generation config of the model. A
    variable that a version of transformers does not have counts as not given.
    """
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    found = {} if frame is None else frame.f_locals
    names = GenerateFrame.__dataclass_fields__
    return GenerateFrame(**{name: found[name] for name in names if name in found})


@final
@dataclass(frozen=True, eq=False)
class GenerateCall:
    """The options of a call of `generate`, each known to come from the caller or from the model."""

    network: PreTrainedModel
    config: GenerationConfig  # both together, as `generate` has merged them
    criteria: StoppingCriteriaList
    frame: GenerateFrame

    def gives(self, name: str) -> bool:
        """Whether an option comes with the call.

        In a `generation_config` that was given, a value equal to the model's own counts as the model's.
        """
        if self.frame.kwargs.get(name) is not None:
            return True
        value: object = getattr(self.config, name, None)
        return value != getattr(self.network.generation_config, name, None)

    @property
    def copies(self) -> int:
        """How often `generate` repeats each sentence, for beams that this search does not have."""
        return max(self.config.num_beams or 1, self.config.num_return_sequences or 1)

    @property
    def default_beam_size(self) -> int:
        """The `num_beams` that comes with the model, if it is a beam at all."""
        return self.config.num_beams if (self.config.num_beams or 1) > 1 else DEFAULT_BEAM_SIZE

    @property
    def default_score(self) -> Rescorer | None:
        """Length norm with the `length_penalty` that comes with the model, if it is one that a score can have."""
        alpha: object = self.config.length_penalty
        return LengthNorm(alpha) if isinstance(alpha, int | float) and 0.0 <= alpha <= 10.0 else None

    @property
    def max_length(self) -> int | None:
        """The maximum length that the call asks for, prompt counted; None if it asks for none."""
        own, merged = self.frame.stopping_criteria, self.config.max_length
        if own and own.max_length is not None:
            return self.criteria.max_length
        if self.config.max_new_tokens is not None and self.gives("max_new_tokens"):
            return _whole(merged)
        if (given := self.frame.kwargs.get("max_length")) is not None:
            return _whole(given)
        inherited = self.config.max_new_tokens is not None or self.model_max_length is None
        return None if inherited or merged is None or not self.gives("max_length") else _whole(merged)

    @property
    def model_max_length(self) -> int | None:
        """The maximum length that comes with the model, prompt counted; None if there is none."""
        made_up = self.frame.has_default_max_length and self.config.max_new_tokens is None
        return None if made_up else self.config.max_length

    def acting(self, processors: LogitsProcessorList) -> LogitsProcessorList:
        """The logits processors, without those for sampling or for a maximum length that nobody asked for."""
        kinds: tuple[type, ...] = ()
        if self.max_length is None and self.model_max_length is None:
            kinds += (ForcedEOSTokenLogitsProcessor,)
        if not self.gives("do_sample"):
            kinds += SAMPLING
        own = self.frame.logits_processor or ()
        return LogitsProcessorList(
            [each for each in processors if not isinstance(each, kinds) or any(each is one for one in own)]
        )


def _whole(max_length: object) -> int:
    if isinstance(max_length, bool) or not isinstance(max_length, Integral):
        raise UncurseError(f"max_length = {max_length!r} is not allowed: it must be a whole number")
    return int(max_length)
