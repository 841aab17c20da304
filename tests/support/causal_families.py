"""Small random decoder-only models of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
)

from uncurse.huggingface import beam_search

EOS, PADDING = 2, 0
SIZE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,  # grouped-query attention
    "head_dim": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": PADDING,
}
CAUSAL: dict[str, Any] = {
    "llama": LlamaConfig(**SIZE),
    "qwen2": Qwen2Config(**{name: value for name, value in SIZE.items() if name != "head_dim"}),
    "gpt2": GPT2Config(
        vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.5, bos_token_id=1,
        eos_token_id=EOS, pad_token_id=PADDING,
    ),
    "gemma": GemmaConfig(**SIZE),
    "gemma2": Gemma2Config(**SIZE, sliding_window=4),  # every other layer
    "mistral": MistralConfig(**SIZE, sliding_window=4),  # every layer
}  # fmt: skip
PROMPTS = [(1, 5, 6, 7, 8), (1, 9), (1, 12, 4, 4, 20, 6, 6, 11), (1, 30, 3)]
CAUSAL_EAGER_ONLY = ("gemma2",)
EVERY_CAUSAL = pytest.mark.parametrize("family", CAUSAL)


def causal_network(family: str, seed: int = 0, ending: float = 0.0, implementation: str = "") -> PreTrainedModel:
    """A random model; to the logit of `</s>` at step t of an output is added `ending` times t − 5."""
    torch.manual_seed(seed)
    implementation = implementation or ("eager" if family in CAUSAL_EAGER_ONLY else "sdpa")
    model: Any = AutoModelForCausalLM.from_config(CAUSAL[family], attn_implementation=implementation).eval()  # type: ignore[no-untyped-call]
    at_end = torch.zeros(40).index_fill(0, torch.tensor(EOS), ending)
    position: list[torch.Tensor | None] = [None]

    def note(_: object, __: object, options: dict[str, Any]) -> None:
        position[0] = options.get("position_ids")

    def raised(_: object, __: object, logits: torch.Tensor) -> torch.Tensor:
        places = position[0]
        if places is None:
            return logits
        shortest = min(map(len, PROMPTS)) if len(PROMPTS) > 1 else 1
        step = places[:, -logits.shape[1] :] + 2 - shortest  # counted from the shortest prompt
        return logits + (step[:, :, None] - 5) * at_end

    model.register_forward_pre_hook(note, with_kwargs=True)
    model.get_output_embeddings().register_forward_hook(raised)
    checked: PreTrainedModel = model
    return checked


def causal_inputs(prompts: list[tuple[int, ...]] = PROMPTS) -> dict[str, torch.Tensor]:
    """What a tokenizer makes of prompts, padded on the left."""
    widest = max(map(len, prompts))
    return {
        "input_ids": torch.tensor([[PADDING] * (widest - len(each)) + list(each) for each in prompts]),
        "attention_mask": torch.tensor([[0] * (widest - len(each)) + [1] * len(each) for each in prompts]),
    }


def causal_generated(model: PreTrainedModel, given: dict[str, torch.Tensor], **options: object) -> Any:
    """`generate` with this beam search, 12 new tokens at most unless told otherwise."""
    options = {"max_new_tokens": 12, "custom_generate": beam_search, **options}
    generate: Any = model.generate
    return generate(**given, **options)
