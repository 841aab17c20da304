"""The C++ kernels one by one, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from uncurse.models.transformer.native.library import (
    INSTRUCTION_SETS,
    Library,
    available_instruction_sets,
    load_library,
)
from uncurse.models.transformer.native.network import PackedLayer, address
from uncurse.models.transformer.quantization import QuantizedRows, Weight

AVAILABLE = available_instruction_sets()
Float32s = NDArray[np.float32]
few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
threads = st.integers(1, 3)


@pytest.fixture(params=INSTRUCTION_SETS, scope="module")
def library(request: pytest.FixtureRequest) -> Library:
    if request.param not in AVAILABLE:
        pytest.skip(f"no kernels for {request.param} here")
    return load_library(request.param)


def normal(random: np.random.Generator, *shape: int) -> Float32s:
    return random.normal(size=shape).astype(np.float32)


def layer(library: Library, weight: Float32s, bias: Float32s, int8: bool) -> PackedLayer:
    return PackedLayer(library, Weight(torch.from_numpy(weight)), torch.from_numpy(bias), int8)


def products(
    library: Library, rows: Float32s, weight: Float32s, bias: Float32s, int8: bool
) -> NDArray[np.float64]:
    """What a linear layer must give, in double precision; int8 by the same quantisation."""
    if not int8:
        return rows.astype(np.float64) @ weight.T + bias
    values, step = Weight(torch.from_numpy(weight)).quantize()
    quantized = QuantizedRows.of(torch.from_numpy(rows), library.max_quantized)
    restored = quantized.minimum.double() + quantized.step.double() * quantized.values
    found: NDArray[np.float64] = (restored @ (values.double() * step[:, None]).T).numpy() + bias
    return found


def run_linear(
    library: Library, packed: PackedLayer, rows: Float32s, threads: int, activation: int = 0
) -> Float32s:
    out = np.full((len(rows), packed.outputs), np.nan, dtype=np.float32)
    library.linear(packed.pointer, threads, len(rows), address(rows), activation, address(out))
    return out


def run_top_k(
    library: Library, packed: PackedLayer, rows: Float32s, k: int, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    tokens, log_probs = np.empty((len(rows), k), dtype=np.int64), np.empty((len(rows), k or packed.outputs))
    library.top_k(packed.pointer, threads, len(rows), address(rows), k, address(tokens), address(log_probs))
    return tokens, log_probs


@pytest.mark.parametrize("int8", [False, True])
@few
@given(
    rows=st.integers(1, 60), inputs=st.integers(1, 70), outputs=st.integers(1, 150), threads=threads, seed=seeds
)
def test_a_linear_layer_is_a_product_and_a_bias(
    library: Library, int8: bool, rows: int, inputs: int, outputs: int, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    given, weight, bias = normal(random, rows, inputs), normal(random, outputs, inputs), normal(random, outputs)
    found = run_linear(library, layer(library, weight, bias, int8), given, threads)
    assert np.allclose(found, products(library, given, weight, bias, int8), atol=1e-4)


@pytest.mark.parametrize("name", ["relu", "silu", "gelu"])
def test_activations_are_those_of_pytorch(library: Library, name: str) -> None:
    random = np.random.default_rng(5)
    given, weight, bias = normal(random, 3, 20), normal(random, 90, 20), normal(random, 90)
    packed = layer(library, weight, bias, int8=False)
    plain = torch.from_numpy(run_linear(library, packed, given, 1))
    found = run_linear(library, packed, given, 1, 1 + ["relu", "silu", "gelu"].index(name))
    assert np.allclose(found, getattr(torch.nn.functional, name)(plain).numpy(), atol=1e-6)


@pytest.mark.parametrize("int8", [False, True])
@few
@given(rows=st.integers(1, 40), vocab_size=st.integers(1, 2500), part=st.floats(0, 1), threads=threads, seed=seeds)
def test_the_output_layer_gives_the_k_most_likely_tokens(
    library: Library, int8: bool, rows: int, vocab_size: int, part: float, threads: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    given, weight, bias = normal(random, rows, 12), normal(random, vocab_size, 12), normal(random, vocab_size)
    bias[random.random(vocab_size) < 0.1] = -np.inf
    bias[0] = 30.0  # one is possible, and far above the others
    k = 1 + round(part * (min(vocab_size, 300) - 1))
    packed = layer(library, weight, bias, int8)
    tokens, log_probs = run_top_k(library, packed, given, k, threads)
    logits = products(library, given, weight, bias, int8)
    expected = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    assert all(len(set(row)) == k for row in tokens.tolist())
    assert np.allclose(log_probs, np.take_along_axis(expected, tokens, axis=1), atol=1e-4)
    assert np.allclose(log_probs, -np.sort(-expected, axis=1)[:, :k], atol=1e-4)
    assert (log_probs[:, 1:] <= log_probs[:, :-1]).all()
    _, every = run_top_k(library, packed, given, 0, threads)
    assert (np.take_along_axis(every, tokens, axis=1) == log_probs).all()


def test_among_equal_logits_those_of_lower_id_are_given(library: Library) -> None:
    packed = layer(library, np.zeros((1000, 8), np.float32), np.zeros(1000, np.float32), int8=False)
    for threads in (1, 2, 3):
        tokens, log_probs = run_top_k(library, packed, np.ones((2, 8), np.float32), 70, threads)
        assert (tokens == np.arange(70)).all()
        assert np.allclose(log_probs, -np.log(1000.0))


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_has_no_probabilities(library: Library, int8: bool, bad: float) -> None:
    random = np.random.default_rng(1)
    packed = layer(library, normal(random, 300, 20), normal(random, 300), int8)
    rows = normal(random, 7, 20)
    _, fine = run_top_k(library, packed, rows, 5, 2)
    rows[3, 19] = bad
    _, log_probs = run_top_k(library, packed, rows, 5, 2)
    assert not np.isfinite(log_probs[3]).any()
    others = [0, 1, 2, 4, 5, 6]
    assert (log_probs[others] == fine[others]).all()


@pytest.mark.parametrize("int8", [False, True])
def test_a_row_has_the_same_result_in_any_batch_and_with_any_number_of_threads(
    library: Library, int8: bool
) -> None:
    random = np.random.default_rng(2)
    packed = layer(library, normal(random, 3000, 33), normal(random, 3000), int8)
    rows = normal(random, 101, 33)
    linear, (tokens, log_probs) = run_linear(library, packed, rows, 1), run_top_k(library, packed, rows, 9, 1)
    for first, last, threads in ((0, 101, 2), (0, 101, 3), (50, 51, 1), (7, 60, 3), (90, 101, 2)):
        part = rows[first:last]
        assert (run_linear(library, packed, part, threads) == linear[first:last]).all()
        some, probs = run_top_k(library, packed, part, 9, threads)
        assert (some == tokens[first:last]).all()
        assert (probs == log_probs[first:last]).all()


@few
@given(positions=st.integers(1, 50), heads=st.integers(1, 4), size=st.sampled_from([1, 4, 8, 20, 64]), seed=seeds)
def test_attention_is_a_softmax_of_scaled_products(
    library: Library, positions: int, heads: int, size: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    query, key, value = normal(random, 3, heads, size), *normal(random, 2, positions, heads, size)
    out, received = np.empty((3, heads, size), np.float32), np.zeros((3, positions), np.float32)
    both = np.ascontiguousarray([key, value])
    library.attention(3, positions, heads, size, *(address(each) for each in (query, both, out, received)))
    scores = np.einsum("rhs,phs->rhp", query, key).astype(np.float64) / np.sqrt(size)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    assert np.allclose(out, np.einsum("rhp,phs->rhs", weights, value), atol=1e-5)
    assert np.allclose(received, weights.mean(axis=1), atol=1e-5)


@few
@given(rows=st.integers(1, 3), size=st.integers(2, 100), seed=seeds)
def test_layer_norm_comes_after_the_residual(library: Library, rows: int, size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    states, added = normal(random, rows, size), normal(random, rows, size)
    gamma, beta = normal(random, size), normal(random, size)
    total = (states + added).astype(np.float64)
    centred = total - total.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * gamma + beta
    library.add_and_normalize(rows, size, *(address(each) for each in (states, added, gamma, beta)))
    assert np.allclose(states, expected, atol=1e-4)
