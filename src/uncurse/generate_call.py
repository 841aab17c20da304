"""What a call of Hugging Face's `generate` asks for, and what of it this search cannot do."""

from __future__ import annotations

import inspect
from numbers import Integral
from typing import Any, Final

from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EosTokenCriteria,
    ForcedEOSTokenLogitsProcessor,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    MaxLengthCriteria,
    PrefixConstrainedLogitsProcessor,
    PreTrainedModel,
    SequenceBiasLogitsProcessor,
    StoppingCriteriaList,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from uncurse.decoding import MOST, Decoding
from uncurse.models.huggingface import attends
from uncurse.rescoring import needs

# What `generate` can be asked for and this search does not do: the one value that asks for nothing, and a way out.
UNABLE: Final[dict[str, tuple[object, str]]] = {
    "num_beams": (1, "keep num_beams=1 and give beam_size"),
    "num_return_sequences": (1, "give it to generate itself, not in a generation_config"),
    "do_sample": (False, "this search does not sample"),
    "early_stopping": (False, "keep early_stopping=False and give stop"),
    "length_penalty": (1.0, "keep length_penalty=1.0 and give score, for example 'length-norm:alpha=0.6'"),
    "use_cache": (True, "this search needs a cache"),
    "cache_implementation": (None, "this search has a cache of its own"),
    "output_scores": (False, "return_dict_in_generate=True gives sequences_scores without it"),
    "output_logits": (False, "logits are not kept"),
    "output_attentions": (False, "attention is not kept"),
    "output_hidden_states": (False, "hidden states are not kept"),
    "token_healing": (False, "prompts are taken as they are"),
    "prompt_lookup_num_tokens": (None, "there is no assistant"),
    "assistant_early_exit": (None, "there is no assistant"),
    "penalty_alpha": (None, "this is beam search"),
    "dola_layers": (None, "this is beam search"),
    "num_beam_groups": (1, "there is one beam"),
    "diversity_penalty": (0.0, "there is one beam"),
    "constraints": (None, "nothing is forced but a prefix: give decoder_input_ids"),
    "force_words_ids": (None, "nothing is forced but a prefix: give decoder_input_ids"),
}

# Logits processors that take a row for the same sentence at every step, and the options that make them.
ROW_BOUND: Final = {
    PrefixConstrainedLogitsProcessor: "prefix_allowed_tokens_fn",
    EncoderRepetitionPenaltyLogitsProcessor: "encoder_repetition_penalty",
    EncoderNoRepeatNGramLogitsProcessor: "encoder_no_repeat_ngram_size",
    UnbatchedClassifierFreeGuidanceLogitsProcessor: "guidance_scale",
    SynthIDTextWatermarkLogitsProcessor: "watermarking_config",
}

# What `generate` hands over for the model's forward, and is used here or not needed.
HANDED_OVER: Final = {"encoder_outputs", "attention_mask", "past_key_values", "use_cache", "logits_to_keep"}


def check_able(
    network: PreTrainedModel,
    config: GenerationConfig,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    decoding: Decoding,
    model_kwargs: dict[str, Any],
) -> None:
    """Raise one `ValueError` that names everything which could not act."""
    if not network.config.is_encoder_decoder:
        raise ValueError(f"{type(network).__name__} is not an encoder-decoder, and this search is for those")
    unable = [
        f"{name} = {value!r}: {instead}"
        for name, (nothing, instead) in UNABLE.items()
        if (value := getattr(config, name, None)) not in (None, nothing)
    ]
    if not isinstance(config.forced_bos_token_id, Integral | None):
        unable.append(f"forced_bos_token_id = {config.forced_bos_token_id!r}: give one token")
    if decoding.n_best > decoding.width:
        unable.append(f"num_return_sequences = {decoding.n_best}: beam_size is {decoding.width}, and this is more")
    if needs(decoding.score).coverage and not attends(network):
        unable.append(
            "a score with coverage: load the model with attn_implementation='eager', which shows attention"
        )
    unable += [
        f"{option}: it does not fit rows that come and go"
        for each in processors
        for kind, option in ROW_BOUND.items()
        if isinstance(each, kind)
    ]
    if any(isinstance(each, SequenceBiasLogitsProcessor) and _rewards(each) for each in processors):
        unable.append("sequence_bias above 0: nothing could be proved")
    unable += [
        f"{type(each).__name__} in stopping_criteria: give stop"
        for each in criteria
        if not isinstance(each, MaxLengthCriteria | EosTokenCriteria)
    ]
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        unable.append("past_key_values: this search has a cache of its own")
    unable += [f"{name}: it would not reach the model" for name in sorted(model_kwargs.keys() - HANDED_OVER)]
    unable += [f"{name}: this search has no use for it" for name in _kept_back()]
    if unable:
        raise ValueError("uncurse.beam_search cannot do what is asked for: " + "; ".join(unable))


def _call() -> dict[str, Any]:
    """What `generate` knows of its call and does not hand on; only its frame tells."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not inspect.unwrap(GenerationMixin.generate).__code__:
        frame = frame.f_back
    return {} if frame is None else frame.f_locals


def _kept_back() -> list[str]:
    """What does not reach this search: whoever reads from a streamer that nobody feeds waits for ever."""
    call = _call()
    return [name for name in ("streamer", "assistant_model") if call.get(name) is not None]


def limit_is_made_up(config: GenerationConfig) -> bool:
    """Whether neither the call nor the model has a limit: then `generate` takes 20 tokens for one."""
    call = _call()
    criteria = call.get("stopping_criteria")
    asked = config.max_new_tokens is not None or (criteria is not None and criteria.max_length is not None)
    return bool(call.get("has_default_max_length")) and not asked


def acting(processors: LogitsProcessorList, config: GenerationConfig) -> LogitsProcessorList:
    """The logits processors that act: one that forces the end at a limit which is made up does not.

    That of a forced first token never does either: the token is in the prompt.
    """
    made_up = limit_is_made_up(config)
    return LogitsProcessorList(
        [each for each in processors if not (made_up and isinstance(each, ForcedEOSTokenLogitsProcessor))]
    )


def limit_is_asked_for(network: PreTrainedModel, config: GenerationConfig, most: int) -> bool:
    """Whether a limit comes with the call and not with the model."""
    if config.max_new_tokens is not None or _call().get("kwargs", {}).get("max_length") is not None:
        return True
    return most not in (MOST, network.generation_config.max_length)


def _rewards(processor: SequenceBiasLogitsProcessor) -> bool:
    return any(bias > 0 for bias in processor.sequence_bias.values())
