"""Beam search inside `generate` of decoder-only models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.causal_families import (
    EOS,
    EVERY_CAUSAL,
    PADDING,
    PROMPTS,
    SIZE,
    causal_generated,
    causal_inputs,
    causal_network,
)
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    MambaConfig,
)

import uncurse
from uncurse import Decoding, Sentence, UncurseError
from uncurse.huggingface import beam_search
from uncurse.models.huggingface.causal import CausalStepModel


def tokens_of(sequences: torch.Tensor, width: int = max(map(len, PROMPTS))) -> list[tuple[int, ...]]:
    """The tokens of each row after the prompt, up to and with `</s>`."""
    rows = [row[width:] for row in sequences.tolist()]
    return [tuple(row[: row.index(EOS) + 1] if EOS in row else row) for row in rows]


@EVERY_CAUSAL
@pytest.mark.parametrize("beam_size", [2, 5])
def test_n_best_lists_are_those_of_generate(family: str, beam_size: int) -> None:
    """`early_stopping="never"` proves the worst of b hypotheses, as `optimal` does for an n-best list of b."""
    wanted = {"num_return_sequences": beam_size, "return_dict_in_generate": True, "max_new_tokens": 30}
    theirs_only = {"num_beams": beam_size, "early_stopping": "never", "length_penalty": 1.0, "output_scores": True}
    lengths: set[int] = set()
    for seed in range(3):
        model: Any = causal_network(family, seed, ending=1.0)
        theirs = model.generate(**causal_inputs(), **wanted, **theirs_only)
        ours = causal_generated(model, causal_inputs(), **wanted, beam_size=beam_size, slots="refill")
        expected = tokens_of(theirs.sequences)
        assert all(tokens[-1] == EOS for tokens in expected)
        assert tokens_of(ours.sequences) == expected
        assert (ours.sequences_scores - theirs.sequences_scores).abs().max() < 1e-4
        assert set(ours.certificates) <= {"BEAM", "GLOBAL"}
        lengths |= {len(tokens) for tokens in expected}
    assert len(lengths) >= 3


@EVERY_CAUSAL
def test_a_prompt_alone_gives_what_it_gives_in_a_batch(family: str) -> None:
    model = causal_network(family, 3, ending=1.0)
    options = {"beam_size": 4, "expected_length": 6.0, "return_dict_in_generate": True}
    together = causal_generated(model, causal_inputs(), **options)
    for place, prompt in enumerate(PROMPTS):
        alone = causal_generated(model, causal_inputs([prompt]), **options)
        assert tokens_of(alone.sequences, len(prompt)) == tokens_of(together.sequences)[place : place + 1]
        assert abs(alone.sequences_scores[0] - together.sequences_scores[place]) < 1e-4


def test_prompts_may_be_padded_on_the_right() -> None:
    model = causal_network("llama", 4, ending=1.0)
    left = causal_generated(model, causal_inputs(), beam_size=3)
    right = {
        name: torch.stack([row.roll(len(prompt)) for row, prompt in zip(tensor, PROMPTS, strict=True)])
        for name, tensor in causal_inputs().items()
    }
    assert (right["attention_mask"][:, 0] == 1).all()
    found = causal_generated(model, right, beam_size=3)
    assert tokens_of(found) == tokens_of(left)


def test_a_padding_token_may_be_none_of_the_vocabulary() -> None:
    """Some checkpoints of Llama have -1."""
    model = causal_network("llama", 4, ending=1.0)
    expected = causal_generated(model, causal_inputs(), beam_size=3)
    for padding in (-1, 40):
        found = causal_generated(model, causal_inputs(), beam_size=3, pad_token_id=padding)
        assert tokens_of(found) == tokens_of(expected)
        assert bool((found == padding).any())


def test_sequences_begin_with_the_prompts_as_given() -> None:
    model = causal_network("qwen2", 5, ending=1.0)
    found = causal_generated(model, causal_inputs(), beam_size=4, num_return_sequences=2)
    prompts = causal_inputs()["input_ids"].repeat_interleave(2, dim=0)
    assert found[:, : prompts.shape[1]].tolist() == prompts.tolist()


@pytest.mark.parametrize(
    "expected_length",
    [
        7.0,
        [7.0] * 4,
        torch.full((4,), 7.0, dtype=torch.bfloat16),
        np.full(4, 7),
        torch.tensor(7.0),
        lambda prompt: 7 + 0 * len(prompt),
        lambda prompt: torch.tensor(7.0),
    ],
    ids=["number", "list", "tensor", "array", "a number as a tensor", "function", "function of tensors"],
)
def test_an_expected_length_is_a_number_of_tokens_in_any_form(expected_length: object) -> None:
    model = causal_network("gpt2", 6, ending=1.0)
    options = {"beam_size": 4, "return_dict_in_generate": True, "max_new_tokens": 20}
    found = causal_generated(model, causal_inputs(), expected_length=expected_length, **options)
    sentences = [Sentence(prompt, 20, (), 7.0) for prompt in PROMPTS]
    results = uncurse.beam_search(CausalStepModel(model, (EOS,)), sentences, Decoding(4, "f1-norm"))
    assert tokens_of(found.sequences) == [result.hypotheses[0].tokens for result in results]
    assert found.sequences_scores.tolist() == pytest.approx(
        [each.hypotheses[0].score for each in results], abs=1e-4
    )


def test_without_an_expected_length_the_score_is_length_norm() -> None:
    model = causal_network("gemma", 6, ending=1.0)
    named = causal_generated(model, causal_inputs(), score="length-norm")
    assert causal_generated(model, causal_inputs()).tolist() == named.tolist()


def log_probs_of(model: Any, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> torch.Tensor:
    """Log-probabilities of all tokens at each step of an output, [steps, vocab_size], by one forward."""
    whole = torch.tensor([[*prompt, *tokens[:-1]]])
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=whole, position_ids=torch.arange(whole.shape[1])[None]).logits[0]
    return logits[len(prompt) - 1 :].log_softmax(dim=1)


def test_lengths_do_not_count_the_prompt() -> None:
    model = causal_network("llama", 7, ending=1.0)
    options = {"score": "bp-norm", "expected_length": 9.0, "return_dict_in_generate": True}
    found = causal_generated(model, causal_inputs(), beam_size=8, **options)
    for place, (prompt, tokens) in enumerate(zip(PROMPTS, tokens_of(found.sequences), strict=True)):
        total = float(log_probs_of(model, prompt, tokens)[range(len(tokens)), list(tokens)].sum())
        expected = min(1.0 - 9.0 / len(tokens), 0.0) + total / len(tokens)
        assert float(found.sequences_scores[place]) == pytest.approx(expected, abs=1e-4)


def test_several_end_tokens_count_as_one_end() -> None:
    model: Any = causal_network("llama", 8, ending=1.0)
    options = {"eos_token_id": [EOS, 9], "score": "log-prob", "return_dict_in_generate": True}
    found = causal_generated(model, causal_inputs(), beam_size=4, **options)
    for place, (prompt, tokens) in enumerate(zip(PROMPTS, tokens_of(found.sequences), strict=True)):
        assert 9 not in tokens
        log_probs = log_probs_of(model, prompt, tokens)
        said = sum(float(log_probs[step, token]) for step, token in enumerate(tokens[:-1]))
        expected = said + float(log_probs[-1, [EOS, 9]].logsumexp(dim=0))
        assert float(found.sequences_scores[place]) == pytest.approx(expected, abs=1e-4)


def test_a_constraint_may_end_with_any_of_the_end_tokens() -> None:
    """A tokenizer often names another one than comes first in the generation config."""
    model = causal_network("llama", 1, ending=1.0)
    options = {"eos_token_id": [EOS, 9], "beam_size": 3, "num_return_sequences": 2}
    first, second = (
        causal_generated(model, causal_inputs(), constraint=uncurse.Trie([(4, 5), (6,)], end), **options)
        for end in (EOS, 9)
    )
    assert first.tolist() == second.tolist()


def test_a_constraint_ends_with_its_own_end_token() -> None:
    model = causal_network("llama", 1, ending=1.0)
    outputs = [(4, 9, 5), (6, 7)]  # the first cannot be: token 9 is an end
    found = causal_generated(
        model, causal_inputs(), constraint=uncurse.Trie(outputs, EOS), eos_token_id=[EOS, 9], beam_size=3
    )
    assert set(tokens_of(found)) == {(6, 7, EOS)}
    with pytest.raises(UncurseError, match=r"the constraint trie-\w+ has another eos than this model"):
        causal_generated(model, causal_inputs(), constraint=uncurse.Trie(outputs, 3), eos_token_id=[EOS, 9])


@pytest.mark.parametrize(
    "options",
    [
        {"suppress_tokens": list(range(20, 40))},
        {"no_repeat_ngram_size": 1},
        {"repetition_penalty": 3.0},
        {"min_new_tokens": 11},
        {"bad_words_ids": [[7], [9, 10], [4, 4]]},
        {"encoder_no_repeat_ngram_size": 1},  # of the prompt
    ],
    ids=lambda options: next(iter(options)),
)
def test_logits_processors_act_as_in_generate(options: dict[str, object]) -> None:
    model: Any = causal_network("qwen2", 9, ending=1.0)
    wanted = {"max_new_tokens": 30, "num_return_sequences": 4, **options}
    theirs = model.generate(**causal_inputs(), num_beams=4, early_stopping="never", **wanted)
    ours = causal_generated(model, causal_inputs(), beam_size=4, slots="refill", **wanted)
    assert tokens_of(ours) == tokens_of(theirs)


@pytest.mark.parametrize(
    "options", [{"min_new_tokens": 11}, {"forced_eos_token_id": EOS, "max_new_tokens": 5}], ids=["min", "forced"]
)
def test_logits_processors_count_padding_that_no_prompt_needs(options: dict[str, object]) -> None:
    """As after `padding="max_length"`."""
    model: Any = causal_network("llama", 1, ending=1.0)
    padding = torch.zeros((len(PROMPTS), 12), dtype=torch.long)
    given = {name: torch.cat((padding, tensor), dim=1) for name, tensor in causal_inputs().items()}
    wanted = {"max_new_tokens": 25, "num_return_sequences": 3, **options}
    theirs = model.generate(**given, num_beams=3, early_stopping="never", **wanted)
    ours = causal_generated(model, given, beam_size=3, slots="refill", **wanted)
    assert tokens_of(ours, given["input_ids"].shape[1]) == tokens_of(theirs, given["input_ids"].shape[1])


def test_logits_processors_see_the_tokens_of_embedded_prompts_if_they_are_given() -> None:
    model: Any = causal_network("llama", 1, ending=1.0)
    given = causal_inputs()
    embedded = {**given, "inputs_embeds": model.get_input_embeddings()(given["input_ids"])}
    wanted = {"beam_size": 3, "no_repeat_ngram_size": 1, "num_return_sequences": 3}
    assert (
        causal_generated(model, embedded, **wanted).tolist() == causal_generated(model, given, **wanted).tolist()
    )


def test_options_that_come_with_the_model_give_way() -> None:
    """As chat models come: sampling, with a temperature and a nucleus."""
    model: Any = causal_network("qwen2", 10, ending=1.0)
    expected = causal_generated(model, causal_inputs(), beam_size=4)
    for name, value in {"do_sample": True, "temperature": 0.2, "top_p": 0.3, "top_k": 2, "num_beams": 3}.items():
        setattr(model.generation_config, name, value)
    assert causal_generated(model, causal_inputs(), beam_size=4).tolist() == expected.tolist()


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_the_maximum_length_is_that_of_the_call_or_the_model_or_follows_the_expected_length() -> None:
    model: Any = causal_network("llama")
    options = {"suppress_tokens": [EOS], "return_dict_in_generate": True, "custom_generate": beam_search}

    def steps(**others: object) -> set[int]:
        return set(model.generate(**causal_inputs(), **options, **others).steps.tolist())

    width = max(map(len, PROMPTS))
    assert steps(max_new_tokens=7) == {7}
    assert steps(max_length=width + 9) == {9}
    assert steps() == {20}
    assert steps(expected_length=12.5) == {2 * 13 + 10}
    model.generation_config.max_length = width + 30
    assert steps() == {30}
    assert steps(expected_length=12.5) == {30}
    assert steps(max_new_tokens=100) == {64 - len(prompt) + 1 for prompt in PROMPTS}  # the positions


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"length_ratio": 1.1}, "length_ratio: there is no source to count; give expected_length"),
    ({"score": "gnmt:beta=0.2"}, "a decoder-only model has no source to cover"),
    ({"score": "bp-norm"}, "needs an expected length"),
    ({"expected_length": [1.0, 2.0]}, "expected_length has 2 numbers for 4 sentences"),
    ({"expected_length": "long"}, "expected_length = 'long' is not allowed"),
    ({"expected_length": -3}, "expected_length = -3 is not allowed"),
    ({"expected_length": lambda prompt: float("nan")}, "expected_length = nan is not allowed"),
    ({"expected_length": 5.0, "score": "length-norm"}, "neither the score nor the stopping rule reads it"),
    ({"position_ids": torch.zeros((4, 8), dtype=torch.long)}, "position_ids: it would not reach the model"),
    ({"num_beams": 4}, "num_beams = 4: give beam_size instead"),
    ({"encoder_no_repeat_ngram_size": 2, "eos_token_id": [EOS, 9]}, "cannot act with several end tokens"),
    ({"attention_mask": torch.zeros((4, 8), dtype=torch.long)}, "sentence 0 is all padding"),
    (
        {"max_new_tokens": None, "max_length": 9, "min_length": 12},
        "min_length = 5 is not allowed: max_length is 1",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value)[:40])
@pytest.mark.filterwarnings("ignore")  # generate has warnings of its own for some
def test_what_cannot_act_is_refused_by_name(options: dict[str, object], message: str) -> None:
    given: dict[str, Any] = {**causal_inputs(), **options}
    with pytest.raises(UncurseError, match=message):
        causal_generated(causal_network("llama"), {}, **given)


HOSTILE: dict[str, tuple[dict[str, torch.Tensor], str]] = {
    "no prompts": (
        {name: tensor[:0] for name, tensor in causal_inputs().items()},
        "there are no sentences: input_ids has no rows",
    ),
    "unknown tokens": (
        {"input_ids": causal_inputs()["input_ids"] + 100},
        "token 10[0-9] of input_ids is none of the 40 that this model knows",
    ),
    "negative tokens": ({"input_ids": causal_inputs()["input_ids"] - 100}, "must be given as input_ids"),
    "fractions": ({"input_ids": causal_inputs()["input_ids"].float()}, "must be finite numbers"),
    "a mask of another shape": (
        {"input_ids": causal_inputs()["input_ids"], "attention_mask": causal_inputs()["attention_mask"][:, :3]},
        "attention_mask has the shape",
    ),
    "a prompt longer than the positions": ({"input_ids": torch.ones((1, 70), dtype=torch.long)}, "leaves no room"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.filterwarnings("ignore")  # generate has warnings of its own for some
def test_a_hostile_prompt_is_one_clear_error(case: str) -> None:
    given, message = HOSTILE[case]
    with pytest.raises(UncurseError, match=message):
        causal_generated(causal_network("llama"), given)


def test_a_model_that_gives_nan_is_refused() -> None:
    broken: Any = causal_network("llama")
    broken.get_output_embeddings().weight.data.fill_(torch.nan)
    with pytest.raises(UncurseError, match=r"LlamaForCausalLM .* its logits are not finite"):
        causal_generated(broken, causal_inputs())


@EVERY_CAUSAL
def test_embedded_prompts_give_what_their_tokens_give(family: str) -> None:
    model: Any = causal_network(family, 3, ending=1.0)
    embeddings = model.get_input_embeddings()(causal_inputs()["input_ids"])
    mask = {"attention_mask": causal_inputs()["attention_mask"]}
    options = {"beam_size": 4, "num_return_sequences": 2}
    found = causal_generated(model, {"inputs_embeds": embeddings, **mask}, **options)
    expected = causal_generated(model, causal_inputs(), **options)
    theirs = model.generate(inputs_embeds=embeddings, **mask, max_new_tokens=12, num_beams=4)
    assert theirs.shape[1] <= 12  # a prompt without tokens is not in the output
    assert tokens_of(found, 0) == tokens_of(expected)


def prefix_function(sentence: int, ids: torch.Tensor) -> list[int]:
    """Tokens of one parity in turn, another in each sentence, and `</s>` after four."""
    new = int(ids.shape[0]) - max(map(len, PROMPTS))
    return [token for token in range(3, 40) if token % 2 == (new + sentence) % 2] + [EOS] * (new >= 4)


@EVERY_CAUSAL
def test_a_prefix_function_allows_what_it_allows_in_generate(family: str) -> None:
    model: Any = causal_network(family, 2, ending=1.0)
    wanted = {"max_new_tokens": 30, "num_return_sequences": 4, "prefix_allowed_tokens_fn": prefix_function}
    theirs = model.generate(**causal_inputs(), num_beams=4, early_stopping="never", **wanted)
    ours = causal_generated(model, causal_inputs(), beam_size=4, slots="refill", **wanted)
    assert tokens_of(ours) == tokens_of(theirs)


def test_a_trie_and_a_prefix_function_hold_together() -> None:
    model: Any = causal_network("llama", 2)
    outputs = [(5, 6), (6, 5), (7, 8, 9), (8, 8), (9, 7, 5, 5)]
    options = {"beam_size": 8, "num_return_sequences": 5, "return_dict_in_generate": True}
    found = causal_generated(model, causal_inputs(), constraint=uncurse.Trie(outputs, EOS), **options)
    for place in range(len(PROMPTS)):
        assert {tokens[:-1] for tokens in tokens_of(found.sequences)[5 * place : 5 * place + 5]} == set(outputs)
    assert set(found.certificates) == {"GLOBAL"}
    odd = causal_generated(
        model,
        causal_inputs(),
        constraint=uncurse.Trie(outputs, EOS),
        prefix_allowed_tokens_fn=lambda _, ids: [EOS, 5, 7, 9],
        **options,
    )
    assert odd.num_hypotheses.tolist() == [1] * len(PROMPTS)  # 9 7 5 5
    with pytest.raises(UncurseError, match="constraint = 3 is not allowed"):
        causal_generated(model, causal_inputs(), constraint=3)
    with pytest.raises(UncurseError, match="prefix_allowed_tokens_fn = None is not allowed: give token ids"):
        causal_generated(model, causal_inputs(), prefix_allowed_tokens_fn=lambda _, ids: None)
    with pytest.raises(UncurseError, match="prefix_allowed_tokens_fn lets nothing follow the first 0 tokens"):
        causal_generated(model, causal_inputs(), prefix_allowed_tokens_fn=lambda _, ids: [])


def test_log_probabilities_of_tokens_come_with_each_sequence() -> None:
    model: Any = causal_network("gpt2", 4, ending=1.0)
    found = causal_generated(
        model, causal_inputs(), beam_size=4, num_return_sequences=3, score="log-prob", return_dict_in_generate=True
    )
    assert found.token_log_probs.shape == (12, max(map(len, tokens_of(found.sequences))))
    assert torch.allclose(found.token_log_probs.sum(dim=1), found.sequences_scores)
    for row, tokens in enumerate(tokens_of(found.sequences)):
        prompt = PROMPTS[row // 3]
        whole = torch.tensor([[*prompt, *tokens]])
        log_probs = model(whole, position_ids=torch.arange(whole.shape[1])[None]).logits[0].log_softmax(dim=1)
        expected = log_probs[range(len(prompt) - 1, len(prompt) + len(tokens) - 1), tokens]
        assert torch.allclose(found.token_log_probs[row, : len(tokens)], expected, atol=1e-4)
        assert not found.token_log_probs[row, len(tokens) :].any()


def test_a_model_of_text_and_images_takes_text_alone() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {"model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14, **sizes}
    config_class: Any = LlavaConfig
    config = config_class(vision_config=vision, text_config=LlamaConfig(**SIZE), image_token_index=39)
    model_classes: list[Any] = [LlavaForConditionalGeneration, LlamaForCausalLM]
    both, text = (
        each(given).eval() for each, given in zip(model_classes, (config, config.text_config), strict=True)
    )
    text.model.load_state_dict(both.model.language_model.state_dict())
    text.lm_head.load_state_dict(both.lm_head.state_dict())
    options = {"beam_size": 3, "eos_token_id": EOS, "suppress_tokens": [EOS], "return_dict_in_generate": True}
    expected = causal_generated(text, causal_inputs(), **options, max_new_tokens=100)
    found = causal_generated(both, causal_inputs(), **options, max_new_tokens=100)
    assert found.sequences.tolist() == expected.sequences.tolist()
    assert found.steps.tolist() == [64 - len(prompt) + 1 for prompt in PROMPTS]  # the positions


def test_a_state_space_model_is_refused_by_name() -> None:
    config = MambaConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, eos_token_id=EOS, pad_token_id=PADDING
    )
    mamba = AutoModelForCausalLM.from_config(config).eval()  # type: ignore[no-untyped-call]
    with pytest.raises(UncurseError, match="MambaForCausalLM keeps a state that is no KV cache"):
        causal_generated(mamba, {"input_ids": causal_inputs()["input_ids"]})
