"""Decoder-only models of transformers as step models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.causal_families import CAUSAL, CAUSAL_EAGER_ONLY, EOS, EVERY_CAUSAL, PROMPTS, causal_network
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BloomConfig,
    FalconConfig,
    GPTNeoConfig,
    MambaConfig,
    MptConfig,
    PreTrainedConfig,
)

import uncurse
from uncurse import Decoding, Sentence, UncurseError
from uncurse.models.huggingface import beam_tree
from uncurse.models.huggingface.causal import CausalStepModel
from uncurse.testing import check_step_model

TINY: dict[str, Any] = {"vocab_size": 40, "hidden_size": 16}


@pytest.mark.parametrize(
    ("family", "implementation"),
    [(family, "eager") for family in CAUSAL]
    + [(each, "sdpa") for each in CAUSAL if each not in CAUSAL_EAGER_ONLY],
)
def test_every_family_keeps_the_contract_of_a_step_model(family: str, implementation: str) -> None:
    model = CausalStepModel(causal_network(family, 1, implementation=implementation), (EOS,))
    check_step_model(model, PROMPTS)


@EVERY_CAUSAL
def test_step_by_step_log_probs_equal_those_of_one_forward(family: str) -> None:
    """Longer than the sliding windows, with several prefixes in each beam."""
    network: Any = causal_network(family, 2, ending=0.5)
    sentences = [Sentence(prompt, max_length=14) for prompt in PROMPTS]
    results = uncurse.beam_search(
        CausalStepModel(network, (EOS,)), sentences, Decoding(4, "log-prob", n_best=3), batch_size=3
    )
    for prompt, result in zip(PROMPTS, results, strict=True):
        for hypothesis in result.hypotheses:
            whole = torch.tensor([[*prompt, *hypothesis.tokens[:-1]]])
            positions = torch.arange(whole.shape[1])[None]
            with torch.inference_mode():
                logits = network(input_ids=whole, position_ids=positions).logits[0, len(prompt) - 1 :]
            forced = logits.log_softmax(dim=-1)[torch.arange(len(hypothesis.tokens)), list(hypothesis.tokens)]
            assert np.abs(forced.numpy() - np.array(hypothesis.log_probs)).max() < 1e-4


@EVERY_CAUSAL
def test_clearing_away_dead_nodes_changes_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [Sentence(prompt, max_length=20) for prompt in PROMPTS]
    decoding = Decoding(5, "length-norm", "exhaustive")
    model = CausalStepModel(causal_network(family, 3), (EOS,))
    found = uncurse.beam_search(model, sentences, decoding)
    sizes: list[int] = []
    compacted = beam_tree.BeamTree.compacted

    def at_once(self: beam_tree.BeamTree) -> beam_tree.BeamTree:
        small = compacted(self, spare=-10_000)
        sizes.append(self.nodes - small.nodes)
        return small

    monkeypatch.setattr(beam_tree.BeamTree, "compacted", at_once)
    again = uncurse.beam_search(model, sentences, decoding)
    assert max(sizes) > 0
    for one, other in zip(found, again, strict=True):
        assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]
        assert one.hypotheses[0].score == pytest.approx(other.hypotheses[0].score, abs=1e-4)


def test_dead_nodes_are_cleared_away_in_a_long_search() -> None:
    model = CausalStepModel(causal_network("llama", 3), (EOS,))
    state = model.start(PROMPTS[:1])
    given, state = model.step(state, np.array([0]), 4, attention=False)
    for _ in range(40):
        state = state.select(np.zeros(6, dtype=np.int64))  # one prefix survives, and branches
        given, state = model.step(state, given.tokens[0][:1].repeat(6), 4, attention=False)
    assert state.groups[0].nodes < 40 + beam_tree.SPARE_NODES + 40 + 12


def test_a_state_that_cannot_be_reordered_is_refused_by_name() -> None:
    mamba = AutoModelForCausalLM.from_config(MambaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2))  # type: ignore[no-untyped-call]
    with pytest.raises(UncurseError, match="MambaForCausalLM keeps a state that is no KV cache"):
        CausalStepModel(mamba, (EOS,))


@pytest.mark.parametrize(
    "config",
    [
        BloomConfig(**TINY, n_layer=2, n_head=2),
        MptConfig(vocab_size=40, d_model=16, n_layers=2, n_heads=2, max_seq_len=64),
        FalconConfig(**TINY, num_hidden_layers=2, num_attention_heads=2, alibi=True),
    ],
    ids=lambda config: config.model_type,
)
def test_models_with_alibi_are_refused_by_name(config: PreTrainedConfig) -> None:
    network = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    with pytest.raises(
        UncurseError, match=r"^\w+ForCausalLM biases attention by the order of its KV cache \(ALiBi"
    ):
        CausalStepModel(network, (EOS,))


def test_a_model_that_takes_no_positions_is_refused_by_name() -> None:
    bart = AutoModelForCausalLM.from_config(BartConfig(vocab_size=40, d_model=16, decoder_layers=1))  # type: ignore[no-untyped-call]
    with pytest.raises(UncurseError, match="BartForCausalLM cannot run a beam as one sequence: its logits differ"):
        CausalStepModel(bart, (EOS,))


def test_a_model_with_masks_in_its_layers_is_refused_by_name() -> None:
    """They count columns of the cache as positions, which only shows in wide and long searches."""
    config = GPTNeoConfig(
        vocab_size=40, hidden_size=16, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]]
    )
    network = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    with pytest.raises(UncurseError, match="GPTNeoForCausalLM has attention masks of its own"):
        CausalStepModel(network, (EOS,))


def test_other_implementations_of_attention_are_refused() -> None:
    network: Any = causal_network("llama")
    network.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UncurseError, match="attn_implementation = 'flash_attention_2' is not supported"):
        CausalStepModel(network, (EOS,))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(UncurseError, match="a prompt is empty"):
        CausalStepModel(causal_network("llama"), (EOS,)).start([(1, 2), ()])


def test_outputs_longer_than_the_positions_are_refused() -> None:
    model = CausalStepModel(causal_network("gpt2", ending=-10.0), (EOS,))
    assert CAUSAL["gpt2"].max_position_embeddings == 64
    with pytest.raises(UncurseError, match="an output of 65 tokens is too long: this model has 64 positions"):
        uncurse.beam_search(model, [Sentence((1,) * 60, max_length=10)], Decoding(1, "log-prob", "exhaustive"))
