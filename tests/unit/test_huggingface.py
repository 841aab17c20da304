"""Models of Hugging Face's library as step models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from families import EVERY_FAMILY, EVERY_IMPLEMENTATION, FAMILIES, LED, SOURCES, network, random_model
from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

import uncurse
from uncurse import Decoding, Sentence
from uncurse.models.huggingface import Frame, HuggingFaceStepModel
from uncurse.testing import check_step_model


@EVERY_IMPLEMENTATION
def test_every_family_keeps_the_contract_of_a_step_model(family: str, implementation: str) -> None:
    model = HuggingFaceStepModel(network(family, 1, implementation=implementation), FAMILIES[family][1])
    assert model.attends == (implementation == "eager")
    check_step_model(model, [*SOURCES[:4], ()])


@EVERY_FAMILY
def test_step_by_step_log_probs_equal_those_of_one_forward(family: str) -> None:
    own, frame = network(family, 2, ending=1.0), FAMILIES[family][1]
    sentences = [Sentence(source, limit=9) for source in SOURCES]
    results = uncurse.beam_search(HuggingFaceStepModel(own, frame), sentences, Decoding.of(3, "log-prob"), batch=2)
    for source, result in zip(SOURCES, results, strict=True):
        tokens = result.hypotheses[0].tokens
        with torch.inference_mode():
            logits = own(
                input_ids=torch.tensor([[*frame.before, *source, *frame.after]]),
                decoder_input_ids=torch.tensor([[*frame.prompt, *tokens[:-1]]]),
            ).logits[0, len(frame.prompt) - 1 :]
        forced = logits.log_softmax(dim=-1)[torch.arange(len(tokens)), list(tokens)]
        assert np.abs(forced.numpy() - np.array(result.hypotheses[0].log_probs)).max() < 1e-5


@EVERY_FAMILY
def test_attention_is_that_of_the_last_layer_over_the_pieces(family: str) -> None:
    own, frame = network(family), FAMILIES[family][1]
    model = HuggingFaceStepModel(own, frame)
    given, _ = model.step(model.start(SOURCES), np.full(len(SOURCES), model.begin), 2, attention=True)
    assert given.attention is not None
    for row, source in enumerate(SOURCES):
        framed = torch.tensor([[*frame.before, *source, *frame.after]])
        decoder = torch.tensor([frame.prompt])
        with torch.inference_mode():
            layers = own(input_ids=framed, decoder_input_ids=decoder, output_attentions=True).cross_attentions
        expected = layers[-1][0, :, -1].mean(dim=0)[len(frame.before) :][: len(source)]
        assert np.abs(given.attention[row, : len(source)] - expected.numpy()).max() < 1e-5


def test_banned_tokens_share_their_probability_among_the_others() -> None:
    frame = FAMILIES["marian"][1]
    model = HuggingFaceStepModel(
        network("marian"), Frame(frame.before, frame.after, frame.prompt, frame.end, (39, 7))
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


def test_signatures_tell_weights_and_frames_apart() -> None:
    frame = FAMILIES["marian"][1]
    other = Frame((7,), frame.after, frame.prompt, frame.end)
    changed = network("marian")
    with torch.no_grad():
        dict(changed.named_parameters())["model.decoder.layers.1.fc1.weight"][0, 0] += 1e-3
    models = [
        (network("marian"), frame),
        (network("marian", 1), frame),
        (network("marian"), other),
        (changed, frame),
    ]
    assert len({HuggingFaceStepModel(*each).signature for each in models}) == 4
    again: Any = network("marian")
    again.config._name_or_path = "elsewhere/" + again.config._name_or_path
    assert HuggingFaceStepModel(*models[0]).signature == HuggingFaceStepModel(again, frame).signature


def test_sides_may_have_different_numbers_of_positions() -> None:
    model = HuggingFaceStepModel(random_model(LED, 1, attn_implementation="eager"), Frame((0,), (2,), (2,), end=2))
    check_step_model(model, SOURCES)
    assert (model.longest_source, model.longest_output) == (62, 20)


def test_two_models_put_together_have_the_positions_of_each() -> None:
    sizes: dict[str, Any] = {
        "vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }  # fmt: skip
    encoder = BertConfig(**sizes, max_position_embeddings=30)
    decoder = BertConfig(**sizes, max_position_embeddings=20, is_decoder=True, add_cross_attention=True)
    torch.manual_seed(1)
    own = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
    model = HuggingFaceStepModel(own.train(mode=False), Frame((1,), (2,), (3,), end=2))
    assert (model.longest_source, model.longest_output) == (28, 20)
    check_step_model(model, SOURCES)


def test_rows_of_sentences_that_change_places_are_refused() -> None:
    model = HuggingFaceStepModel(network("t5"), FAMILIES["t5"][1])
    with pytest.raises(ValueError, match="order in which they joined"):
        model.start(SOURCES[:1]).append(model.start(SOURCES[1:2])).select(np.array([1, 0]))


def test_texts_longer_than_the_positions_are_refused() -> None:
    model = HuggingFaceStepModel(network("marian"), Frame((), (0,), (39,), end=0, banned=(0,)))
    assert (model.longest_source, model.longest_output) == (63, 64)
    with pytest.raises(ValueError, match="a source of 65 tokens is too long: this model has 64 positions"):
        model.start([(5,) * 64])
    with pytest.raises(ValueError, match="an output of 65 tokens is too long"):
        uncurse.beam_search(model, [Sentence((5,), limit=100)], Decoding.of(1, "log-prob"))
