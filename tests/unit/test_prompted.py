"""Decoder-only models in folders, translated by with a prompt."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.causal_families import CAUSAL
from support.causal_folder import causal_folder, causal_tokenizer
from transformers import AutoModelForCausalLM, MambaConfig

from uncurse import Decoding, UncurseError, judge, load, record
from uncurse.cli import main
from uncurse.huggingface import beam_search
from uncurse.models.huggingface.prompt_template import PromptedSource, PromptedTarget, PromptTemplate
from uncurse.testing import check_step_model
from uncurse.translation.options import TranslationOptions
from uncurse.translation.translator import Translator

PROMPT = "say it in English: {text}\nEnglish:"
LINES = ["old dogs sleep", "a cat", "", "the red sofa."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = copy(CAUSAL["llama"])
    config.max_position_embeddings = 256
    return causal_folder(tmp_path_factory.mktemp("llama"), config)


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return load(folder, prompt=PROMPT)


def test_a_prompt_has_the_tokens_of_the_whole_text() -> None:
    tokenizer = causal_tokenizer()
    for prompt in (PROMPT, "<s>{text}</s>\n", "{text} =", "«{text}» is"):
        source = PromptedSource(tokenizer, PromptTemplate(prompt))
        for line in ("old dogs", "x", "Zürich 7", "  a", "{text}"):
            (tokens,) = source.encode([line])
            whole = tokenizer(prompt.replace("{text}", line))["input_ids"]
            assert [*source.before, *tokens, *source.after] == whole
            assert source.decode(tokens) in (line.strip(), whole)
    assert source.encode([" ", ""]) == [[], []]


def test_an_output_has_the_tokens_that_follow_the_prompt() -> None:
    tokenizer = causal_tokenizer()
    for prompt, gap in ((PROMPT, " "), ("{text}\n", "")):
        target = PromptedTarget(tokenizer, PromptTemplate(prompt), [2])
        (tokens,) = target.encode(["the old cat"])
        assert tokenizer.decode(tokens) == f"{gap}the old cat"
        assert target.decode([*tokens, 2]) == "the old cat"


def test_the_model_keeps_the_contract_of_a_step_model(translator: Translator) -> None:
    check_step_model(translator.model, [translator.encode(line) for line in LINES if line])


def test_translations_are_those_of_generate_with_the_prompt(folder: Path, translator: Translator) -> None:
    auto_class: Any = AutoModelForCausalLM
    model = auto_class.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = causal_tokenizer()
    breaks = [token for token in range(len(tokenizer)) if tokenizer.decode([token])[:1] in ("\n", "\r")]
    inner = [[token] for token in range(len(tokenizer)) if "\n" in tokenizer.decode([token])[1:]]
    for line, found in zip(LINES, translator.translate(LINES, beam_size=8, n_best=2, max_length=9), strict=True):
        if not line:
            assert found.texts == ("",)
            continue
        given = tokenizer(PROMPT.replace("{text}", line), return_tensors="pt")
        expected = model.generate(
            **given,
            custom_generate=beam_search,
            beam_size=8,
            num_return_sequences=2,
            max_new_tokens=9,
            eos_token_id=[2, *breaks],
            bad_words_ids=[[0], *inner],
            renormalize_logits=True,
            return_dict_in_generate=True,
        )
        assert found.result is not None
        width = given["input_ids"].shape[1]
        count = int(expected.num_hypotheses[0])
        rows, scores = expected.sequences[:count], expected.sequences_scores[:count]
        for each, row, score in zip(found.result.hypotheses, rows, scores, strict=True):
            assert row[width : width + each.length].tolist() == list(each.tokens)
            assert score.item() == pytest.approx(each.score, abs=1e-4)
        assert found.certificate is not None
        assert found.certificate.name == expected.certificates[0]


def test_lengths_count_neither_prompt_nor_gap(translator: Translator) -> None:
    (found,) = translator.translate(["old dogs"], length_ratio=2.0, beam_size=3)
    source = translator.encode("old dogs")
    assert found.expected_length == 2.0 * len(source)
    (sentence,) = translator.sentences([source], TranslationOptions())
    assert sentence.max_length == 2 * len(source) + 10


def test_one_recorded_search_is_judged_by_every_score(translator: Translator) -> None:
    (sentence,) = translator.sentences([translator.encode("a cat")], TranslationOptions())
    (trace,) = record(translator.model, [sentence], beam_size=4)
    for score in ("log-prob", "length-norm", "word-reward:reward=0.5"):
        (judged,) = judge(trace, [Decoding(4, score)])
        (live,) = translator.translate(["a cat"], beam_size=4, score=score)
        assert live.result is not None
        assert [each.tokens for each in live.result.hypotheses] == [each.tokens for each in judged.hypotheses]
        assert live.result.certificate is judged.certificate


def test_the_commands_take_a_prompt(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_text("a cat\nold dogs\n", encoding="utf-8")
    flags = ["--model", str(folder), "--prompt", PROMPT.replace("\n", "\\n"), "-b", "3"]
    main(["translate", str(tmp_path / "lines"), *flags, "--max-length", "6"])
    assert len(capsys.readouterr().out.splitlines()) == 2
    main(["explain", "a cat", *flags, "--max-length", "8"])
    assert "Finished candidates" in capsys.readouterr().out


def test_tokens_that_the_generation_config_suppresses_are_never_output(tmp_path: Path) -> None:
    model = causal_folder(tmp_path, copy(CAUSAL["llama"]))
    config = {"eos_token_id": 2, "pad_token_id": -1, "suppress_tokens": [70], "bad_words_ids": [[71], [72, 73]]}
    (model / "generation_config.json").write_text(json.dumps(config), encoding="utf-8")
    step_model = load(model, prompt="{text}:").model
    size = step_model.vocab_size
    given, _ = step_model.step(step_model.start([(80,)]), np.array([step_model.bos]), size, attention=False)
    possible = given.tokens[given.log_probs > -np.inf]
    assert {70, 71}.isdisjoint(possible)
    assert {72, 73, size - 1} <= set(possible)  # a padding token of -1 is not the last one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "is a decoder-only model, which needs a prompt"),
        ({"prompt": "Translate:"}, "'Translate:' is not allowed: {text} must be in it, once"),
        ({"prompt": "{text}{text}"}, "{text} must be in it, once"),
        ({"prompt": "{text}", "target_lang": "en"}, "name the languages in its prompt"),
        ({"prompt": "{text}" + "word " * 400}, "leaves no room in 256 positions"),
    ],
)
def test_a_prompt_that_cannot_act_is_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UncurseError) as error:
        load(folder, **options)
    assert message in str(error.value)


def test_a_prompt_is_refused_by_models_with_an_encoder() -> None:
    with pytest.raises(UncurseError, match=r"prompt = '.text.' is not allowed: an LSTM model does not take it"):
        load(prompt="{text}")


def test_a_folder_with_a_state_space_model_is_refused_by_name(tmp_path: Path) -> None:
    config = MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4, bos_token_id=1, eos_token_id=2)
    with pytest.raises(UncurseError, match="MambaForCausalLM keeps a state that is no KV cache"):
        load(causal_folder(tmp_path, config), prompt="{text}:")
