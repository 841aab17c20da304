"""Encoder-decoders of transformers as step models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.families import (
    EVERY_FAMILY,
    EVERY_IMPLEMENTATION,
    FAMILIES,
    LED,
    SOURCES,
    network,
    random_model,
    special,
)
from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

import uncurse
from uncurse import Decoding, Sentence, UncurseError
from uncurse.models.huggingface.step_model import HuggingFaceStepModel
from uncurse.testing import check_step_model


@EVERY_IMPLEMENTATION
def test_every_family_keeps_the_contract_of_a_step_model(family: str, implementation: str) -> None:
    model = HuggingFaceStepModel(network(family, 1, implementation=implementation), FAMILIES[family][1])
    assert model.attends == (implementation == "eager")
    check_step_model(model, [*SOURCES[:4], ()])


@EVERY_FAMILY
def test_step_by_step_log_probs_equal_those_of_one_forward(family: str) -> None:
    own, tokens = network(family, 2, ending=1.0), FAMILIES[family][1]
    sentences = [Sentence(source, max_length=9) for source in SOURCES]
    results = uncurse.beam_search(
        HuggingFaceStepModel(own, tokens), sentences, Decoding(3, "log-prob"), batch_size=2
    )
    for source, result in zip(SOURCES, results, strict=True):
        found = result.hypotheses[0].tokens
        with torch.inference_mode():
            logits = own(
                input_ids=torch.tensor([[*tokens.source_prefix, *source, *tokens.source_suffix]]),
                decoder_input_ids=torch.tensor([[*tokens.decoder_prompt, *found[:-1]]]),
            ).logits[0, len(tokens.decoder_prompt) - 1 :]
        forced = logits.log_softmax(dim=-1)[torch.arange(len(found)), list(found)]
        assert np.abs(forced.numpy() - np.array(result.hypotheses[0].log_probs)).max() < 1e-5


@EVERY_FAMILY
def test_attention_is_that_of_the_last_layer_over_the_source_tokens(family: str) -> None:
    own, tokens = network(family), FAMILIES[family][1]
    model = HuggingFaceStepModel(own, tokens)
    given, _ = model.step(model.start(SOURCES), np.full(len(SOURCES), model.bos), 2, attention=True)
    assert given.attention is not None
    for row, source in enumerate(SOURCES):
        framed = torch.tensor([[*tokens.source_prefix, *source, *tokens.source_suffix]])
        decoder = torch.tensor([tokens.decoder_prompt])
        with torch.inference_mode():
            layers = own(input_ids=framed, decoder_input_ids=decoder, output_attentions=True).cross_attentions
        expected = layers[-1][0, :, -1].mean(dim=0)[len(tokens.source_prefix) :][: len(source)]
        assert np.abs(given.attention[row, : len(source)] - expected.numpy()).max() < 1e-5


def test_suppressed_tokens_share_their_probability_among_the_others() -> None:
    tokens = FAMILIES["marian"][1]
    model = HuggingFaceStepModel(
        network("marian"),
        special(tokens.source_prefix, tokens.source_suffix, tokens.decoder_prompt, tokens.eos, (39, 7)),
    )
    given, _ = model.step(model.start([(5, 6)]), np.array([39]), 40, attention=False)
    assert set(given.tokens[0, -2:].tolist()) == {39, 7}
    assert (given.log_probs[0, -2:] == -np.inf).all()
    assert np.exp(given.log_probs).sum() == pytest.approx(1.0, abs=1e-6)


def test_more_continuations_than_tokens_can_be_asked_for() -> None:
    model = HuggingFaceStepModel(network("t5"), FAMILIES["t5"][1])
    given, _ = model.step(model.start([(5, 6)]), np.array([0]), 1000, attention=False)
    assert given.tokens.shape == (1, 40)


@EVERY_FAMILY
def test_features_do_not_depend_on_the_batch(family: str) -> None:
    model = HuggingFaceStepModel(network(family), FAMILIES[family][1])
    together = model.features(SOURCES)
    for row, source in enumerate(SOURCES):
        assert np.abs(model.features([source])[0] - together[row]).max() < 1e-5


def test_signatures_tell_weights_and_special_tokens_apart() -> None:
    tokens = FAMILIES["marian"][1]
    other = special((7,), tokens.source_suffix, tokens.decoder_prompt, tokens.eos)
    changed = network("marian")
    with torch.no_grad():
        dict(changed.named_parameters())["model.decoder.layers.1.fc1.weight"][0, 0] += 1e-3
    models = [
        (network("marian"), tokens),
        (network("marian", 1), tokens),
        (network("marian"), other),
        (changed, tokens),
    ]
    assert len({HuggingFaceStepModel(*each).signature for each in models}) == 4
    again: Any = network("marian")
    again.config._name_or_path = "elsewhere/" + again.config._name_or_path
    assert HuggingFaceStepModel(*models[0]).signature == HuggingFaceStepModel(again, tokens).signature


def test_sides_may_have_different_numbers_of_positions() -> None:
    model = HuggingFaceStepModel(
        random_model(LED, 1, attn_implementation="eager"), special((0,), (2,), (2,), eos=2)
    )
    check_step_model(model, SOURCES)
    assert (model.max_source_length, model.max_target_length) == (62, 20)


def test_an_encoder_and_a_decoder_put_together_have_their_own_positions() -> None:
    sizes: dict[str, Any] = {
        "vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }  # fmt: skip
    encoder = BertConfig(**sizes, max_position_embeddings=30)
    decoder = BertConfig(**sizes, max_position_embeddings=20, is_decoder=True, add_cross_attention=True)
    torch.manual_seed(1)
    own = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
    model = HuggingFaceStepModel(own.train(mode=False), special((1,), (2,), (3,), eos=2))
    assert (model.max_source_length, model.max_target_length) == (28, 20)
    check_step_model(model, SOURCES)


def test_rows_of_sentences_that_change_places_are_refused() -> None:
    model = HuggingFaceStepModel(network("t5"), FAMILIES["t5"][1])
    with pytest.raises(UncurseError, match="order in which they joined"):
        model.start(SOURCES[:1]).append(model.start(SOURCES[1:2])).select(np.array([1, 0]))


def test_texts_longer_than_the_positions_are_refused() -> None:
    model = HuggingFaceStepModel(network("marian"), special((), (0,), (39,), eos=0, suppressed=(0,)))
    assert (model.max_source_length, model.max_target_length) == (63, 64)
    with pytest.raises(UncurseError, match="a source of 65 tokens is too long: this model has 64 positions"):
        model.start([(5,) * 64])
    with pytest.raises(UncurseError, match="an output of 65 tokens is too long"):
        uncurse.beam_search(model, [Sentence((5,), max_length=100)], Decoding(1, "log-prob"))
