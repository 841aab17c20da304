"""Small random models of the families of transformers, and their `generate` with this beam search."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    LEDConfig,
    LogitsProcessor,
    M2M100Config,
    MarianConfig,
    MBartConfig,
    NllbMoeConfig,
    PreTrainedModel,
    SwitchTransformersConfig,
    T5Config,
)

from uncurse.huggingface import beam_search
from uncurse.models.special_tokens import SpecialTokens


def special(
    before: tuple[int, ...],
    after: tuple[int, ...],
    prompt: tuple[int, ...],
    eos: int,
    suppressed: tuple[int, ...] = (),
) -> SpecialTokens:
    """The tokens before a source, after it and before an output."""
    return SpecialTokens(
        source_prefix=before, source_suffix=after, decoder_prompt=prompt, eos=eos, suppressed=suppressed
    )


SIZE: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "init_std": 0.25,
}
T5_SIZE: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
FAMILIES: dict[str, tuple[Any, SpecialTokens]] = {
    "marian": (
        MarianConfig(**SIZE, pad_token_id=39, eos_token_id=0, decoder_start_token_id=39, forced_eos_token_id=None),
        special((), (0,), (39,), eos=0),
    ),
    "t5": (
        T5Config(**T5_SIZE),
        special((), (1,), (0,), eos=1),
    ),
    "bart": (BartConfig(**SIZE, forced_eos_token_id=None), special((0,), (2,), (2, 0), eos=2)),
    "m2m100": (M2M100Config(**SIZE), special((38,), (2,), (2, 37), eos=2)),
    "mbart": (
        MBartConfig(**SIZE, forced_eos_token_id=None, decoder_start_token_id=37),
        special((), (2, 38), (37,), eos=2),
    ),
    "mbart50": (
        MBartConfig(**SIZE, forced_eos_token_id=None, decoder_start_token_id=2),
        special((38,), (2,), (2, 37), eos=2),
    ),
    "nllb-moe": (
        NllbMoeConfig(**SIZE, num_experts=2, expert_capacity=64, encoder_sparse_step=2, decoder_sparse_step=2),
        special((38,), (2,), (2, 37), eos=2),
    ),
    "switch": (
        SwitchTransformersConfig(
            **T5_SIZE,
            num_decoder_layers=2,
            num_sparse_encoder_layers=1,
            num_sparse_decoder_layers=1,
            num_experts=2,
            expert_capacity=64,
        ),
        special((), (1,), (0,), eos=1),
    ),
}
LED = LEDConfig(
    vocab_size=40, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, attention_window=4,
    max_encoder_position_embeddings=64, max_decoder_position_embeddings=20,
)  # fmt: skip
SOURCES = [(5, 6, 7, 8), (9,), (12, 4, 4, 20), (11, 3), (30, 31, 32, 33, 34, 35), (6, 6)]
EAGER_ONLY = ("nllb-moe", "switch")
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
EVERY_IMPLEMENTATION = pytest.mark.parametrize(
    ("family", "implementation"),
    [
        (family, each)
        for family in FAMILIES
        for each in ("eager", "sdpa")
        if family not in EAGER_ONLY or each == "eager"
    ],
)


def random_model(config: Any, seed: int, **options: str) -> Any:
    torch.manual_seed(seed)
    return AutoModelForSeq2SeqLM.from_config(config, **options).eval()  # type: ignore[no-untyped-call]


def network(family: str, seed: int = 0, ending: float = 0.0, implementation: str = "eager") -> PreTrainedModel:
    """A random model; to the logit of `</s>` at step t is added `ending` times t − 5."""
    config, tokens = FAMILIES[family]
    model = random_model(config, seed, attn_implementation=implementation)
    at_end = torch.zeros(config.vocab_size).index_fill(0, torch.tensor(tokens.eos), ending)
    before = [0]

    def count(_: object, __: object, options: dict[str, Any]) -> None:
        cache = options.get("past_key_values")
        before[0] = 0 if cache is None else cache.get_seq_length()

    def raised(_: object, __: object, logits: torch.Tensor) -> torch.Tensor:
        step = before[0] + torch.arange(logits.shape[1]) + 2 - len(tokens.decoder_prompt)
        return logits + (step - 5)[:, None] * at_end

    model.register_forward_pre_hook(count, with_kwargs=True)
    model.get_output_embeddings().register_forward_hook(raised)
    checked: PreTrainedModel = model
    return checked


def inputs(family: str, sources: list[tuple[int, ...]] = SOURCES) -> dict[str, torch.Tensor]:
    """What a tokenizer would make of the sources, the prompt as `decoder_input_ids`."""
    config, tokens = FAMILIES[family]
    framed = [(*tokens.source_prefix, *source, *tokens.source_suffix) for source in sources]
    widest = max(map(len, framed))
    return {
        "input_ids": torch.tensor([[*each, *[config.pad_token_id] * (widest - len(each))] for each in framed]),
        "attention_mask": torch.tensor([[1] * len(each) + [0] * (widest - len(each)) for each in framed]),
        "decoder_input_ids": torch.tensor([tokens.decoder_prompt] * len(sources)),
    }


def generated(model: PreTrainedModel, given: dict[str, torch.Tensor], **options: object) -> Any:
    """`generate` with this search, 12 tokens at most unless told otherwise."""
    options = {"max_new_tokens": 12, "score": "length-norm", "custom_generate": beam_search, **options}
    generate: Any = model.generate
    return generate(**given, **options)


def outputs(family: str, sequences: torch.Tensor) -> list[tuple[int, ...]]:
    """The tokens of each row after the prompt, up to and with `</s>`."""
    tokens = FAMILIES[family][1]
    rows = [row[len(tokens.decoder_prompt) :] for row in sequences.tolist()]
    return [tuple(row[: row.index(tokens.eos) + 1] if tokens.eos in row else row) for row in rows]


class AddToScore(LogitsProcessor):
    """Adds a number to the score of a token."""

    def __init__(self, token: int, number: float) -> None:
        self.token, self.number = token, number

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        changed: Any = scores.clone()
        changed[:, self.token] += self.number
        return changed  # type: ignore[no-any-return]
