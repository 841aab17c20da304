"""The Marian Transformer by the C++ kernels, against the one by PyTorch."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_marian import tiny_weights, tokenizer_model, write_ctranslate2

from uncurse import Decoding, Sentence, UncurseError, beam_search, record
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.special_tokens import marian_tokens
from uncurse.models.transformer.layers import TransformerNetwork
from uncurse.models.transformer.linear import ComputeType
from uncurse.models.transformer.native import library as native_library
from uncurse.models.transformer.native.library import (
    INSTRUCTION_SETS,
    VARIABLE,
    WITHOUT,
    available_instruction_sets,
    describe,
    load_library,
)
from uncurse.models.transformer.native.network import NativeNetwork
from uncurse.models.transformer.native.step_model import NativeStepModel
from uncurse.models.transformer.quantization import Weight, max_quantized_value
from uncurse.models.transformer.step_model import TransformerStepModel
from uncurse.models.transformer.weights import EMBEDDINGS, TransformerWeights
from uncurse.search.step_model import ModelError, StepModel
from uncurse.search.trace import Trace
from uncurse.testing import check_step_model

AVAILABLE = available_instruction_sets()
SOURCES = [(5, 6, 7, 8), (9,), (4, 4, 4), (11, 3, 8, 7, 2), ()]
TYPES = [ComputeType.FLOAT32, ComputeType.INT8]
pytestmark = pytest.mark.skipif(not AVAILABLE, reason="the kernels were not built")


@pytest.fixture(params=INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> str:
    if request.param not in AVAILABLE:
        pytest.skip(f"no kernels for {request.param} here")
    name: str = request.param
    return name


def native(
    instruction_set: str,
    compute_type: ComputeType,
    weights: TransformerWeights | None = None,
    language: int | None = None,
) -> NativeStepModel:
    network = NativeNetwork(weights or tiny_weights(), compute_type, load_library(instruction_set))
    return NativeStepModel(network, "tiny", marian_tokens(network.eos, network.vocab_size, language))


def reference(
    compute_type: ComputeType, weights: TransformerWeights | None = None, language: int | None = None
) -> TransformerStepModel:
    network = TransformerNetwork(weights or tiny_weights(), compute_type, torch.device("cpu"))
    return TransformerStepModel(network, "tiny", marian_tokens(network.eos, network.vocab_size, language))


def traces(model: NativeStepModel, batch_size: int = 5, beam_size: int = 4) -> list[Trace]:
    return record(model, [Sentence(source, 12) for source in SOURCES], beam_size, batch_size=batch_size)


def best(model: StepModel[Any]) -> list[tuple[tuple[int, ...], float]]:
    decoding = Decoding(beam_size=4, score="length-norm")
    results = beam_search(model, [Sentence(source, 12) for source in SOURCES], decoding)
    return [(result.hypotheses[0].tokens, result.hypotheses[0].log_prob) for result in results]


@pytest.mark.parametrize("compute_type", TYPES)
def test_the_kernels_keep_the_contract_of_a_step_model(instruction_set: str, compute_type: ComputeType) -> None:
    check_step_model(native(instruction_set, compute_type), SOURCES, steps=9, tolerance=0.0)


@pytest.mark.parametrize("int8_file", [False, True])
@pytest.mark.parametrize("language", [None, 5])
@pytest.mark.parametrize("compute_type", TYPES)
def test_a_step_gives_what_pytorch_gives(
    instruction_set: str, compute_type: ComputeType, language: int | None, int8_file: bool
) -> None:
    if compute_type is ComputeType.INT8 and load_library(instruction_set).max_quantized != max_quantized_value():
        pytest.skip("PyTorch quantises to another number of bits here")
    weights = tiny_weights(int8=int8_file)
    ours, theirs = (
        native(instruction_set, compute_type, weights, language),
        reference(compute_type, weights, language),
    )
    assert np.allclose(ours.features(SOURCES), theirs.features(SOURCES), atol=1e-5)
    random, tokens = np.random.default_rng(3), np.full(len(SOURCES), ours.bos)
    one, two = ours.start(SOURCES), theirs.start(SOURCES)
    for _ in range(7):
        found, one = ours.step(one, tokens, 6, attention=True)
        expected, two = theirs.step(two, tokens, 6, attention=True)
        assert (found.tokens == expected.tokens).all()
        assert np.allclose(found.log_probs, expected.log_probs, atol=1e-4)
        assert found.attention is not None
        assert expected.attention is not None
        assert np.allclose(found.attention, expected.attention, atol=1e-5)
        rows = np.sort(random.integers(0, len(tokens), 12))
        tokens = random.integers(0, ours.vocab_size, 12)
        one, two = one.select(rows), two.select(rows)


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu"])
def test_every_activation_gives_what_pytorch_gives(instruction_set: str, activation: str) -> None:
    weights = replace(tiny_weights(), activation=activation)
    ours, theirs = (best(model) for model in (
        native(instruction_set, ComputeType.FLOAT32, weights), reference(ComputeType.FLOAT32, weights)
    ))  # fmt: skip
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
    assert [log_prob for _, log_prob in ours] == pytest.approx([log_prob for _, log_prob in theirs], abs=1e-4)


@pytest.mark.parametrize("compute_type", TYPES)
def test_a_search_is_the_same_bit_for_bit_in_any_batch_and_with_any_number_of_threads(
    instruction_set: str, compute_type: ComputeType
) -> None:
    model, before = native(instruction_set, compute_type), torch.get_num_threads()
    expected = traces(model, batch_size=1)
    try:
        for batch_size, threads in ((5, 1), (2, 2), (3, 3), (5, 4)):
            torch.set_num_threads(threads)
            found = traces(model, batch_size)
            for one, two in zip(found, expected, strict=True):
                assert one.tokens.tolist() == two.tokens.tolist()
                assert one.log_probs.tolist() == two.log_probs.tolist()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("compute_type", TYPES)
def test_only_allowed_tokens_are_given(instruction_set: str, compute_type: ComputeType) -> None:
    allowed = [0, 3, 4, 9, 20, 39]
    network = NativeNetwork(tiny_weights(), compute_type, load_library(instruction_set), allowed)
    model = NativeStepModel(network, "tiny")
    few, _ = model.step(model.start(SOURCES), np.full(5, model.bos), 1, attention=False)
    every, _ = model.step(model.start(SOURCES), np.full(5, model.bos), 40, attention=False)
    assert set(few.tokens.flat) <= {*allowed}
    assert np.exp(every.log_probs).sum(axis=1) == pytest.approx(1.0)
    assert np.isfinite(every.log_probs).sum(axis=1).tolist() == [len(allowed)] * 5
    assert few.log_probs[:, 0].tolist() == every.log_probs.max(axis=1).tolist()


def test_states_that_branch_do_not_disturb_one_another(instruction_set: str) -> None:
    model = native(instruction_set, ComputeType.FLOAT32)
    _, state = model.step(model.start(SOURCES[:1]), np.array([model.bos]), 3, attention=False)
    one, two = state.select(np.array([0, 0])), state.select(np.array([0, 0]))
    for tokens in ([5, 6], [7, 8], [9, 9]):
        expected, one = model.step(one, np.array(tokens), 3, attention=False)
    _, two = model.step(two, np.array([3, 3]), 3, attention=False)
    again = state.select(np.array([0, 0]))
    for tokens in ([5, 6], [7, 8], [9, 9]):
        found, again = model.step(again, np.array(tokens), 3, attention=False)
    assert found.log_probs.tolist() == expected.log_probs.tolist()


def test_dead_nodes_and_finished_sentences_leave_nothing_in_the_cache() -> None:
    model = native(AVAILABLE[0], ComputeType.FLOAT32)
    state = model.start(SOURCES[:2])
    for _ in range(30):  # every prefix of a sentence has the same parent
        _, state = model.step(state, np.full(len(state.paths), 7), 1, attention=False)
        state = state.select(np.repeat([int(np.argmax(state.sentence == index)) for index in (0, 1)], 10))
    assert state.paths.shape == (20, 30)
    assert state.trees[0].capacity <= 2 * (30 + 10 * 10)  # and not 30 nodes for each of 10 prefixes
    for _ in range(40):  # another joins, three steps are made, the first leaves
        state = state.append(model.start(SOURCES[:1]))
        for _ in range(3):
            _, state = model.step(state, np.full(len(state.paths), 7), 1, attention=False)
        state = state.select(np.flatnonzero(state.sentence == len(state.trees) - 1))
    assert (len(state.trees), state.paths.shape) == (1, (1, 3))
    assert state.trees[0].capacity <= 64


def test_several_threads_of_a_program_can_use_one_model() -> None:
    model = native(AVAILABLE[0], ComputeType.INT8)
    expected = best(model)
    with ThreadPoolExecutor(4) as pool:
        assert all(found == expected for found in pool.map(best, [model] * 12))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes can be forked")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_can_use_the_model() -> None:
    model, before = native(AVAILABLE[0], ComputeType.FLOAT32), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = best(model)
        child = os.fork()
        if child == 0:
            os._exit(0 if best(model) == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("compute_type", TYPES)
def test_a_model_that_computes_nan_is_refused_by_the_search(
    instruction_set: str, compute_type: ComputeType
) -> None:
    weights = tiny_weights(int8=True)
    embeddings = weights.matrices[EMBEDDINGS]
    assert embeddings.scale is not None
    embeddings.scale[:] = 1e-38  # embeddings overflow
    broken = replace(
        weights, matrices={**weights.matrices, EMBEDDINGS: Weight(embeddings.values, embeddings.scale)}
    )
    with pytest.raises(ModelError):
        best(native(instruction_set, compute_type, broken))


def test_wrong_tokens_and_lengths_are_refused() -> None:
    model = native(AVAILABLE[0], ComputeType.FLOAT32)
    with pytest.raises(UncurseError, match="-1 is no token"):
        model.start([(3, -1)])
    with pytest.raises(UncurseError, match="-5 is no token"):
        model.step(model.start(SOURCES[:1]), np.array([-5]), 1, attention=False)
    with pytest.raises(UncurseError, match="this model can read"):
        model.start([(3,) * 5000])


def test_the_signature_says_what_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ctranslate2(tmp_path, tiny_weights())
    (tmp_path / "source.spm").write_bytes(tokenizer_model())
    signatures = set()
    for name in (*AVAILABLE, WITHOUT):
        monkeypatch.setenv(VARIABLE, name)
        signature = load_model(ModelOptions(str(tmp_path), dtype="int8")).model.signature
        assert signature.endswith(f"-{name}") != (name == WITHOUT)
        signatures.add(signature)
    assert len(signatures) == len(AVAILABLE) + 1


def test_without_kernels_pytorch_computes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ctranslate2(tmp_path, tiny_weights())
    (tmp_path / "source.spm").write_bytes(tokenizer_model())
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    assert isinstance(load_model(ModelOptions(str(tmp_path))).model, TransformerStepModel)
    assert "were not built" in describe()
    load_library.cache_clear()
    (tmp_path / "kernels_portable.so").write_bytes(b"for another system")
    assert "were not built" in describe()


def test_the_kernels_in_use_can_be_chosen_and_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "portable")
    assert describe() == "C++ kernels for portable, int8 with 8-bit inputs"
    monkeypatch.setenv(VARIABLE, WITHOUT)
    assert describe() == f"PyTorch, as {VARIABLE} asks for"
    monkeypatch.setenv(VARIABLE, "avx51")
    with pytest.raises(UncurseError, match="cannot be used here"):
        describe()
