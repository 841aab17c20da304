"""Inputs of `generate` that no search can be done for: each is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.families import generated, inputs, network
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput

from uncurse import UncurseError

IDS = inputs("t5")["input_ids"]
MASK = inputs("t5")["attention_mask"]
ONE_ROW_OF_PADDING = MASK * torch.tensor([[1], [0], [1], [1], [1], [1]])

HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a row of padding": ({"attention_mask": ONE_ROW_OF_PADDING}, "sentence 1 is all padding"),
    "a mask of halves": ({"attention_mask": MASK / 2}, "attention_mask = 0.5 is not allowed: .* 0 or 1"),
    "a mask of NaN": ({"attention_mask": MASK * torch.nan}, "attention_mask = nan is not allowed"),
    "a mask of another shape": (
        {"attention_mask": MASK[:, :2]},
        r"attention_mask has the shape \(6, 2\), and the sources have \(6, 7\)",
    ),
    "one prompt for all": (
        {"decoder_input_ids": torch.zeros((1, 1), dtype=torch.long)},
        "1 decoder prompts are given for 6 sentences",
    ),
    "a prompt of fractions": ({"decoder_input_ids": torch.zeros((6, 2))}, "decoder_input_ids must be token ids"),
    "a prompt with unknown tokens": (
        {"decoder_input_ids": torch.tensor([[0, 4000]] * 6)},
        "token 4000 of decoder_input_ids is none of the 40 that this model knows",
    ),
    "an unknown first token": ({"forced_bos_token_id": 4000}, "forced_bos_token_id = 4000 is none of the 40"),
    "an unknown end": ({"eos_token_id": 4000}, "eos_token_id = 4000 is none of the 40"),
    "a negative end": ({"eos_token_id": -1}, "eos_token_id = -1 is none of the 40"),
    "no end": ({"eos_token_id": None}, "eos_token_id = None is not allowed"),
    "a fraction of a token": ({"max_new_tokens": 3.5}, "max_length = 4.5 is not allowed"),
    "encoder states of other sentences": (
        {"encoder_outputs": BaseModelOutput(last_hidden_state=torch.zeros(2, 7, 16))},  # type: ignore[arg-type]
        r"encoder_outputs has the shape \(2, 7\), and the sources have \(6, 7\)",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_input_is_one_clear_error(case: str) -> None:
    options, message = HOSTILE[case]
    given = {"input_ids": IDS, "attention_mask": MASK}
    with pytest.raises(UncurseError, match=message):
        generated(network("t5"), {}, **{**given, **options})


class Changed(LogitsProcessor):
    """Replaces the scores by what a function makes of them."""

    def __init__(self, change: Callable[[torch.Tensor], object]) -> None:
        self.change = change

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> Any:
        return self.change(scores)


CHANGES: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "nothing": (lambda scores: None, "Changed returned NoneType"),
    "fewer tokens": (lambda scores: scores[:, :5], r"Changed returned the shape \(6, 5\) instead of \(6, 40\)"),
    "more tokens": (lambda scores: torch.cat((scores, scores), dim=1), r"the shape \(6, 80\) instead of"),
    "fewer rows": (lambda scores: scores[:1], r"the shape \(1, 40\) instead of"),
    "whole numbers": (lambda scores: scores.long(), "numbers of torch.int64"),
    "+inf": (lambda scores: scores + torch.inf, "sentence 0, step 1: .* gave inf, .* Changed"),
    "NaN": (lambda scores: scores * torch.nan, "sentence 0, step 1: .* gave nan, .* Changed"),
    "above 0": (
        lambda scores: scores + 50.0,
        "sentence 0, step 1: .* above 0; .* at work: Changed",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_logits_processor_that_returns_no_log_probabilities_is_refused(change: str) -> None:
    function, message = CHANGES[change]
    with pytest.raises(UncurseError, match=message):
        generated(network("t5"), inputs("t5"), logits_processor=LogitsProcessorList([Changed(function)]))


def test_a_logits_processor_that_leaves_no_token_truncates() -> None:
    nothing_left = LogitsProcessorList([Changed(lambda scores: scores - torch.inf)])
    found = generated(network("t5"), inputs("t5"), logits_processor=nothing_left, return_dict_in_generate=True)
    assert set(found.certificates) == {"TRUNCATED"}


def test_a_model_in_training_mode_is_refused() -> None:
    """Dropout would change its outputs from step to step, and nothing could be proved."""
    with pytest.raises(UncurseError, match=r"training mode, .* call model\.eval\(\)"):
        generated(network("t5").train(), inputs("t5"))


def test_a_model_that_gives_nan_is_refused() -> None:
    broken: Any = network("t5")
    broken.get_output_embeddings().weight.data.fill_(torch.nan)
    with pytest.raises(UncurseError, match="sentence 0, step 1: the model gave nan"):
        generated(broken, inputs("t5"))


def test_a_batch_without_sentences_is_refused() -> None:
    encoded: Any = BaseModelOutput(last_hidden_state=torch.zeros(0, 7, 16))  # type: ignore[arg-type]
    with pytest.raises(UncurseError, match="there are no sentences"):
        generated(network("t5"), {"input_ids": IDS[:0]}, encoder_outputs=encoded)
