"""The LSTM network, and the network as a step model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from uncurse import Decoding, Sentence, beam_search
from uncurse.models.lstm.folder import load_folder
from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape
from uncurse.models.lstm.step_model import LSTMStepModel, pad_sources
from uncurse.models.pretrained_models import BUNDLED
from uncurse.models.transformer.native.library import VARIABLE, WITHOUT, available_instruction_sets, load_library
from uncurse.testing import check_step_model
from uncurse.training.recipe import read_recipe

SOURCES = [(5, 6, 7, 8), (9,), (4, 4, 4), (11, 3)]
RECIPES = Path(__file__).parents[2] / "recipes"


def model(input_feed: bool, tied: bool = False) -> LSTMStepModel:
    torch.manual_seed(1)
    return LSTMStepModel(AttentionalLSTM(LSTMShape(12, 10, 8, 12, 0.3, input_feed, tied)), "tiny")


@pytest.mark.parametrize("input_feed", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_the_lstm_keeps_the_contract_of_a_step_model(input_feed: bool, tied: bool) -> None:
    check_step_model(model(input_feed, tied), SOURCES, tolerance=1e-5)


@pytest.mark.parametrize("input_feed", [True, False])
def test_step_by_step_log_probs_equal_teacher_forced_ones(input_feed: bool) -> None:
    steps = model(input_feed)
    network = steps._network
    results = beam_search(
        steps, [Sentence(source, max_length=7) for source in SOURCES], Decoding(3, "log-prob", "exhaustive")
    )
    for source, result in zip(SOURCES, results, strict=True):
        tokens = result.hypotheses[0].tokens
        with torch.inference_mode():
            logits = network(*pad_sources([source]), torch.tensor([[steps.bos, *tokens[:-1]]]))[0]
        forced = logits.log_softmax(dim=-1)[torch.arange(len(tokens)), list(tokens)]
        assert np.abs(forced.numpy() - np.array(result.hypotheses[0].log_probs)).max() < 1e-5


@pytest.mark.parametrize("instruction_set", available_instruction_sets())
def test_the_output_layer_of_the_kernels_gives_what_pytorch_gives(instruction_set: str) -> None:
    torch.manual_seed(1)
    network = AttentionalLSTM(LSTMShape(12, 203, 8, 12, 0.3))
    network.output.bias.detach().uniform_(-3.0, 3.0)
    plain = LSTMStepModel(network, "tiny")
    ours = LSTMStepModel(network, "tiny", load_library(instruction_set))
    check_step_model(ours, SOURCES, tolerance=1e-5)
    for k in (1, 7, 150, 203):
        one, two = (
            steps.step(steps.start(SOURCES), np.full(4, 1), k, attention=True)[0] for steps in (ours, plain)
        )
        if k < 203:  # all of them are in no order
            assert (one.tokens == two.tokens).all()
        in_order = -np.sort(-one.log_probs, axis=1), -np.sort(-two.log_probs, axis=1)
        assert np.allclose(*in_order, atol=1e-5)


def test_the_signature_of_an_lstm_says_which_kernels_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, WITHOUT)
    plain = load_folder(BUNDLED).model.signature
    for name in available_instruction_sets():
        monkeypatch.setenv(VARIABLE, name)
        assert load_folder(BUNDLED).model.signature == f"{plain}-{name}"


def test_attention_is_over_the_tokens_of_the_source() -> None:
    steps = model(input_feed=True)
    continuations, _ = steps.step(steps.start(SOURCES), np.full(4, steps.bos), 2, attention=True)
    assert continuations.attention is not None
    for row, source in enumerate(SOURCES):
        assert continuations.attention[row].sum() == pytest.approx(1.0, abs=1e-6)
        assert (continuations.attention[row, len(source) :] == 0).all()


def test_a_long_source_leaves_no_padding_behind() -> None:
    steps = model(input_feed=True)
    state = steps.start([(5,) * 30, *SOURCES]).select(np.arange(1, 5))
    assert all(part.shape[1] == 4 for part in state.encoded)
    found, _ = steps.step(state, np.full(4, steps.bos), 3, attention=True)
    expected, _ = steps.step(steps.start(SOURCES), np.full(4, steps.bos), 3, attention=True)
    assert np.abs(found.log_probs - expected.log_probs).max() < 1e-5


def test_an_empty_source_can_be_encoded() -> None:
    steps = model(input_feed=True)
    alone, _ = steps.step(steps.start([()]), np.array([steps.bos]), 3, attention=True)
    batched, _ = steps.step(steps.start([(), (5, 6)]), np.full(2, steps.bos), 3, attention=True)
    assert np.abs(alone.log_probs[0] - batched.log_probs[0]).max() < 1e-5


def test_features_do_not_depend_on_the_batch() -> None:
    steps = model(input_feed=True)
    together = steps.features(SOURCES)
    for row, source in enumerate(SOURCES):
        assert np.abs(steps.features([source])[0] - together[row]).max() < 1e-6


def test_the_paper_setting_has_the_paper_s_size() -> None:
    recipe = read_recipe(RECIPES / "paper.toml")
    plan = recipe.model
    assert (recipe.tokenizer.source, recipe.tokenizer.target) == (18_000, 10_000)
    assert (plan.embedding, plan.hidden, plan.dropout, plan.input_feed, plan.tied) == (500, 500, 0.3, True, False)
    shape = LSTMShape(18_000, 10_000, plan.embedding, plan.hidden, plan.dropout, plan.input_feed, plan.tied)
    assert AttentionalLSTM(shape).parameter_count() == pytest.approx(28.5e6, rel=0.03)


@pytest.mark.parametrize(("change", "message"), [({"hidden": 7}, "must be even"), ({"dropout": 1.0}, r"\[0, 1\)")])
def test_a_bad_shape_is_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LSTMShape(**{"source_vocab_size": 9, "target_vocab_size": 9, "embedding": 8, "hidden": 8, **change})  # type: ignore[arg-type]
