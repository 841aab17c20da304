"""Decoder-only models whose rotary positions are scaled."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from support.causal_families import EOS, PADDING, SIZE, causal_generated
from support.causal_folder import causal_folder
from transformers import AutoModelForCausalLM, LlamaConfig, Phi3Config, PreTrainedConfig

from uncurse import Decoding, Sentence, UncurseError, beam_search, load
from uncurse.models.huggingface.causal import CausalStepModel

ORIGINAL = 16  # positions before scaling
LONG: dict[str, Any] = {"factor": 4.0, "original_max_position_embeddings": ORIGINAL, "rope_theta": 100.0}
SCALED: dict[str, dict[str, Any]] = {
    "linear": LONG,
    "yarn": LONG,
    "llama3": {**LONG, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
FACTORS = {"short_factor": [1.0, 1.0], "long_factor": [2.0, 8.0]}
LONGROPE = Phi3Config(
    **SIZE, original_max_position_embeddings=ORIGINAL, rope_parameters={"rope_type": "longrope", **LONG, **FACTORS}
)
DYNAMIC = LlamaConfig(
    **{**SIZE, "max_position_embeddings": ORIGINAL},
    rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0},
)


def network(config: PreTrainedConfig, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(copy(config)).eval()  # type: ignore[no-untyped-call]


def prompt_of(length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 40, (1, length), generator=torch.Generator().manual_seed(length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def n_best(sequences: torch.Tensor, width: int) -> list[list[int]]:
    rows = [row[width:] for row in sequences.tolist()]
    return [row[: row.index(EOS)] if EOS in row else row for row in rows]


def compared(config: PreTrainedConfig, length: int, new_tokens: int) -> None:
    """The n-best list of a prompt is that of transformers, with networks that have run nothing else."""
    wanted = {"max_new_tokens": new_tokens, "num_return_sequences": 4, "suppress_tokens": [EOS]}
    for seed in range(3):
        theirs = network(config, seed).generate(
            **prompt_of(length), num_beams=4, early_stopping="never", pad_token_id=PADDING, **wanted
        )
        ours = causal_generated(network(config, seed), prompt_of(length), beam_size=4, slots="refill", **wanted)
        assert n_best(ours, length) == n_best(theirs, length)


@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize("length", [5, ORIGINAL - 4, ORIGINAL + 4])
def test_scaled_positions_are_those_of_generate(kind: str, length: int) -> None:
    compared(LlamaConfig(**SIZE, rope_parameters={"rope_type": kind, **SCALED[kind]}), length, 12)


@pytest.mark.parametrize(("length", "new_tokens"), [(5, 12), (ORIGINAL, 1), (ORIGINAL + 1, 12), (30, 12)])
def test_longrope_is_that_of_generate_on_either_side_of_its_boundary(length: int, new_tokens: int) -> None:
    compared(LONGROPE, length, new_tokens)


def test_a_search_ends_where_longrope_would_scale_its_cache_anew() -> None:
    """`generate` runs Phi-3 again from the start there."""
    options = {"suppress_tokens": [EOS], "return_dict_in_generate": True, "max_new_tokens": 12, "beam_size": 3}
    found = causal_generated(network(LONGROPE), prompt_of(12), **options)
    assert found.steps.tolist() == [ORIGINAL - 12 + 1]
    assert found.certificates == ("TRUNCATED",)
    assert causal_generated(network(LONGROPE), prompt_of(ORIGINAL + 1), **options).steps.tolist() == [12]


def test_prompts_on_both_sides_of_the_boundary_of_longrope_are_refused() -> None:
    """The longer one would decide how the shorter one is scaled."""
    model = CausalStepModel(network(LONGROPE), (EOS,))
    for sentences in ([Sentence((3,) * size, max_length=3) for size in (5, 20)], [Sentence((3,) * 12, 9)]):
        with pytest.raises(UncurseError, match=r"Phi3ForCausalLM scales positions .* 16 tokens \(longrope\)"):
            beam_search(model, sentences, Decoding(2, "log-prob", "exhaustive"), batch_size=2)
    assert beam_search(
        model, [Sentence((3,) * size, max_length=3) for size in (17, 20)], Decoding(2), batch_size=2
    )


def test_sources_and_outputs_share_the_positions_before_longrope_scales_them(tmp_path: Path) -> None:
    model: Any = load(causal_folder(tmp_path, copy(LONGROPE)), prompt="{text}:").model
    assert model.max_source_length == model.max_target_length == ORIGINAL // 2


def test_dynamic_scaling_stays_where_it_has_no_effect() -> None:
    """Beyond, the frequencies change at every step; at the last position they are those of earlier texts."""
    plain = copy(DYNAMIC)
    plain.rope_parameters = {"rope_type": "default", "rope_theta": 100.0}
    options = {"suppress_tokens": [EOS], "return_dict_in_generate": True, "max_new_tokens": 12, "beam_size": 3}
    for length in (5, ORIGINAL - 1):
        used = network(DYNAMIC)
        used.generate(**prompt_of(12), max_new_tokens=20, suppress_tokens=[EOS], pad_token_id=PADDING)
        found = causal_generated(used, prompt_of(length), **options)
        steps = min(12, ORIGINAL - length)  # one position less than it has
        expected = causal_generated(network(plain), prompt_of(length), **{**options, "max_new_tokens": steps})
        assert found.steps.tolist() == [steps]
        assert n_best(found.sequences, length) == n_best(expected.sequences, length)
    with pytest.raises(UncurseError, match="16 tokens leaves no room for an output: LlamaForCausalLM has 15 pos"):
        causal_generated(network(DYNAMIC), prompt_of(ORIGINAL), **options)
