"""What a call of `generate` can ask for and this search cannot do."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Final

from torch import Tensor
from transformers import (
    EncoderRepetitionPenaltyLogitsProcessor,
    EosTokenCriteria,
    LogitsProcessorList,
    MaxLengthCriteria,
    SequenceBiasLogitsProcessor,
    SynthIDTextWatermarkLogitsProcessor,
    UnbatchedClassifierFreeGuidanceLogitsProcessor,
)

from uncurse.errors import UncurseError
from uncurse.models.huggingface.generate_call import GenerateCall
from uncurse.models.huggingface.generate_lengths import LengthOptions
from uncurse.models.huggingface.network import shows_attention
from uncurse.scoring.decoding import Decoding

# Options of `generate` that this search does not have: the value that asks for nothing, and what to do instead.
UNSUPPORTED: Final[dict[str, tuple[object, str]]] = {
    "num_beams": (1, "give beam_size instead"),
    "do_sample": (False, "this search does not sample"),
    "early_stopping": (False, "give stop instead, for example 'beam-full'"),
    "length_penalty": (1.0, "give score instead, for example 'length-norm:alpha=0.6'"),
    "use_cache": (True, "this search needs a KV cache"),
    "cache_implementation": (None, "this search has a KV cache of its own"),
    "output_scores": (False, "return_dict_in_generate=True gives sequences_scores without it"),
    "output_logits": (False, "logits are not kept"),
    "output_attentions": (False, "attention weights are not kept"),
    "output_hidden_states": (False, "hidden states are not kept"),
    "token_healing": (False, "prompts are taken as they are"),
    "prompt_lookup_num_tokens": (None, "there is no assistant"),
    "assistant_early_exit": (None, "there is no assistant"),
    "penalty_alpha": (None, "this is beam search"),
    "dola_layers": (None, "this is beam search"),
    "num_beam_groups": (1, "there is one beam"),
    "diversity_penalty": (0.0, "there is one beam"),
    "constraints": (None, "give constraint instead, for example a Trie"),
    "force_words_ids": (None, "only a prefix can be forced: give decoder_input_ids"),
}

# Logits processors that expect the same sentence in a row at every step, and the options that add them.
ROW_BOUND: Final = {
    EncoderRepetitionPenaltyLogitsProcessor: "encoder_repetition_penalty",
    UnbatchedClassifierFreeGuidanceLogitsProcessor: "guidance_scale",
    SynthIDTextWatermarkLogitsProcessor: "watermarking_config",
}

# What `generate` passes for the model's forward that this search uses or does not need.
EXPECTED: Final = {
    "encoder_outputs",
    "attention_mask",
    "past_key_values",
    "use_cache",
    "logits_to_keep",
    "output_attentions",
    "output_hidden_states",
    "position_ids",  # which `generate` makes from the attention mask
    "inputs_embeds",
}


def check_supported(
    call: GenerateCall,
    processors: LogitsProcessorList,
    decoding: Decoding,
    lengths: LengthOptions,
    inputs_tensor: Tensor,
    model_kwargs: dict[str, Any],
) -> None:
    """Raise one `UncurseError` that names everything in the call that cannot act.

    Options that come with the model, such as the `num_beams` of its generation config, give way without an error.
    """
    problems = [
        *_options(call),
        *_needs(call, decoding, lengths, not inputs_tensor.is_floating_point()),
        *_processors(processors),
        *_leftovers(call, model_kwargs),
    ]
    if problems:
        raise UncurseError("beam_search cannot do everything that this call asks for: " + "; ".join(problems))


def _options(call: GenerateCall) -> list[str]:
    problems = [
        f"{name} = {value!r}: {instead}"
        for name, (nothing, instead) in UNSUPPORTED.items()
        if (value := getattr(call.config, name, None)) not in (None, nothing) and call.gives(name)
    ]
    if call.config.output_scores and getattr(call.config, "logprob_threshold", None) is not None:
        problems = [problem for problem in problems if not problem.startswith("output_scores")]
        problems.append("logprob_threshold: it reads the scores of every step, which are not kept")
    if call.network.training:
        problems.append("a model in training mode, where dropout changes its outputs at random: call model.eval()")
    forced = call.config.forced_bos_token_id
    if not isinstance(forced, Integral | None):
        problems.append(f"forced_bos_token_id = {forced!r}: give one token")
    return problems


def _needs(call: GenerateCall, decoding: Decoding, lengths: LengthOptions, has_source_tokens: bool) -> list[str]:
    problems = []
    if decoding.n_best > decoding.beam_size:
        problems.append(
            f"num_return_sequences = {decoding.n_best}: that is more than the beam_size of {decoding.beam_size}"
        )
    encodes = call.network.config.is_encoder_decoder
    if decoding.needs.coverage and not encodes:
        problems.append("a score with coverage: a decoder-only model has no source to cover")
    elif decoding.needs.coverage and not shows_attention(call.network):
        problems.append(
            "a score with coverage: load the model with attn_implementation='eager' to see its attention"
        )
    if not (encodes and has_source_tokens) and lengths.expected_length is None and lengths.known:
        name = "length_predictor" if lengths.length_ratio is None else "length_ratio"
        problems.append(f"{name}: there is no source to count; give expected_length, a number of tokens")
    if not has_source_tokens and callable(lengths.expected_length):
        problems.append("expected_length as a function: there are no tokens for it; give numbers")
    return problems


def _processors(processors: LogitsProcessorList) -> list[str]:
    problems = [
        f"{option}: it expects every sentence to keep its row, and here rows come and go"
        for each in processors
        for kind, option in ROW_BOUND.items()
        if isinstance(each, kind)
    ]
    if any(isinstance(each, SequenceBiasLogitsProcessor) and _rewards(each) for each in processors):
        problems.append("sequence_bias above 0: log-probabilities would no longer be at most 0")
    return problems


def _rewards(processor: SequenceBiasLogitsProcessor) -> bool:
    return any(bias > 0 for bias in processor.sequence_bias.values())


def _leftovers(call: GenerateCall, model_kwargs: dict[str, Any]) -> list[str]:
    """What would not reach the search or the model."""
    problems = [
        f"{type(each).__name__} in stopping_criteria: give stop instead"
        for each in call.criteria
        if not isinstance(each, MaxLengthCriteria | EosTokenCriteria)
    ]
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        problems.append("past_key_values: this search has a KV cache of its own")
    passed = {name for name, value in model_kwargs.items() if value != {}}  # of no image, {} is passed
    lost = passed - EXPECTED | call.frame.kwargs.keys() & {"position_ids"}
    problems += [f"{name}: it would not reach the model" for name in sorted(lost)]
    for name, given in (("streamer", call.frame.streamer), ("assistant_model", call.frame.assistant_model)):
        if given is not None:
            problems.append(f"{name}: this search does not use it")
    return problems
