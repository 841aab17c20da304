"""What single tokens spell, and regular expressions over it."""

from __future__ import annotations

import re
from typing import Any

import torch
from support.causal_folder import causal_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel

from uncurse import Automaton
from uncurse.huggingface import beam_search, token_texts


def test_texts_of_tokens_joined_are_the_text_of_an_output() -> None:
    tokenizer = causal_tokenizer()
    texts = token_texts(tokenizer, len(tokenizer) + 3)
    for line in ("the old cat", "say it: Zug 7", " the  dog\n"):
        assert "".join(texts[token] for token in tokenizer(line)["input_ids"]) == line
    special = tokenizer.convert_tokens_to_ids(["<pad>", "<s>", "</s>"])
    half = tokenizer("ü")["input_ids"]
    assert [texts[token] for token in (*special, *half)] == [""] * 5
    assert texts[len(tokenizer) :] == ("", "", "")  # a model may have more tokens


def test_outputs_match_a_regular_expression_over_their_text() -> None:
    tokenizer = causal_tokenizer()
    pattern = r" (the|a) (cat|dog)s?( and \d{1,2})?"
    constraint = Automaton(pattern, token_texts(tokenizer, 310), tokenizer.eos_token_id)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=310, n_embd=16, n_layer=1, n_head=2, eos_token_id=tokenizer.eos_token_id)
    model_class: Any = GPT2LMHeadModel
    model = model_class(config).eval()
    ids = tokenizer("old dogs")["input_ids"]
    options = {"custom_generate": beam_search, "beam_size": 30, "num_return_sequences": 10, "max_new_tokens": 20}
    found = model.generate(torch.tensor([ids]), constraint=constraint, **options)
    outputs = [tokenizer.decode(row[len(ids) :], skip_special_tokens=True) for row in found.tolist()]
    assert all(re.fullmatch(pattern, output) for output in outputs)
    assert len(set(outputs)) > 3
