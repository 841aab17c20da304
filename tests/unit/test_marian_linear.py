"""Linear layers in int8, and the output layer."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_marian import tiny_weights

from uncurse.models.transformer import linear, output_layer
from uncurse.models.transformer.linear import ComputeType, LinearInput, make_linear
from uncurse.models.transformer.output_layer import OutputLayer
from uncurse.models.transformer.quantization import OneDNNInt8, PlainInt8, Weight, max_quantized_value


def falling(log_probs: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens in the order of their log-probabilities; all of them come in the order of their ids."""
    values, order = log_probs.sort(dim=1, descending=True, stable=True)
    return values, tokens.gather(1, order)


@pytest.mark.parametrize("k", [1, 7, 25, 90, 102])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_top_k_are_those_of_a_log_softmax(k: int, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_layer, "CHUNK", 32)
    monkeypatch.setattr(output_layer, "BLOCK", 4)
    random = torch.Generator().manual_seed(3)
    weight, rows = torch.randn(102, 8, generator=random), torch.randn(5, 8, generator=random)
    bias = torch.linspace(9.0, -9.0, 102) if ordered else torch.linspace(-9.0, 9.0, 102)
    bias[40:75] = -torch.inf  # a whole chunk of impossible tokens
    log_probs, tokens = falling(*OutputLayer(Weight(weight), bias, ComputeType.FLOAT32).top_k(rows, k))
    expected = (rows @ weight.T + bias).log_softmax(dim=1)
    values, ids = expected.topk(k, dim=1)
    assert torch.allclose(log_probs, values, atol=1e-5)
    possible = values > -torch.inf
    assert (tokens == ids)[possible].all()
    assert len({*tokens[0].tolist()}) == k  # distinct, even the impossible ones
    allowed = torch.arange(0, 102, 3)
    log_probs, tokens = falling(*OutputLayer(Weight(weight), bias, ComputeType.FLOAT32, allowed).top_k(rows, k))
    left_out = torch.ones(102, dtype=torch.bool).index_fill(0, allowed, value=False)
    values, ids = (rows @ weight.T + bias.masked_fill(left_out, -torch.inf)).log_softmax(dim=1).topk(k, dim=1)
    assert torch.allclose(log_probs, values, atol=1e-5)
    assert (tokens == ids)[values > -torch.inf].all()
    assert len({*tokens[0].tolist()}) == k


needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch comes without oneDNN")  # type: ignore[no-untyped-call]


@needs_onednn
@pytest.mark.parametrize("max_value", [127, 255])
def test_int8_is_close_to_float32_and_does_not_depend_on_the_batch(
    max_value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if max_value > max_quantized_value():
        pytest.skip("this CPU adds products in pairs in 16 bits, which hold no more than 127")
    monkeypatch.setattr(linear, "max_quantized_value", lambda: max_value)
    random = torch.Generator().manual_seed(5)
    weight, bias = torch.randn(64, 32, generator=random), torch.randn(64, generator=random)
    rows = torch.randn(2100, 32, generator=random)  # enough for several threads
    rows += torch.linspace(-5.0, 5.0, 2100)[:, None]  # hardly one is symmetric
    rows[7] = 0.25
    float32, int8 = (make_linear(Weight(weight), bias, each) for each in (ComputeType.FLOAT32, ComputeType.INT8))

    def exact(rows: torch.Tensor) -> torch.Tensor:
        return float32(LinearInput(rows))

    def quantized(rows: torch.Tensor) -> torch.Tensor:
        return int8(LinearInput(rows))

    assert (exact(rows) - quantized(rows)).abs().max() < 0.02 * (exact(rows) - bias).abs().max()
    together = quantized(rows)
    for row in (0, 3, 7, 1049, 1050, 2099):
        assert torch.equal(together[row : row + 1], quantized(rows[row : row + 1]))
    assert torch.equal(quantized(rows.view(3, 700, 32)), together.view(3, 700, 64))
    assert torch.equal(quantized(rows.t().contiguous().t()), together)


@needs_onednn
@pytest.mark.parametrize("kind", [PlainInt8, OneDNNInt8])
def test_products_of_the_largest_values_are_exact(kind: type[PlainInt8 | OneDNNInt8]) -> None:
    max_value = max_quantized_value()
    weight = torch.tensor([127, -127, 3], dtype=torch.int8)[:, None].repeat(8, 64)
    rows = torch.tensor([0, max_value, 1], dtype=torch.uint8)[:, None].repeat(1, 64)
    assert torch.equal(kind(weight, torch.ones(24), max_value)(rows), rows.float() @ weight.float().T)


@needs_onednn
def test_both_int8_kernels_give_the_same_products() -> None:
    random = torch.Generator().manual_seed(6)
    max_value = max_quantized_value()
    weight = torch.randint(-127, 128, (64, 32), generator=random).to(torch.int8)
    rows = torch.randint(0, max_value + 1, (9, 32), generator=random).to(torch.uint8)
    packed, plain = (kind(weight, torch.ones(64), max_value)(rows) for kind in (OneDNNInt8, PlainInt8))
    assert torch.equal(packed, plain)


@pytest.mark.slow
@needs_onednn
@pytest.mark.parametrize("isa", ["AVX2", "ALL"])
def test_the_largest_quantised_value_is_found_by_trying(isa: str) -> None:
    code = "from uncurse.models.transformer.linear import ComputeType, max_quantized_value\n"
    code += "print(max_quantized_value(), ComputeType.INT8.signature)"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": isa}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert found == {"AVX2": ["127", "int8x7"]}.get(isa, [str(max_quantized_value()), ComputeType.INT8.signature])


def test_int8_is_for_cpus() -> None:
    with pytest.raises(ValueError, match="dtype int8 is for CPUs"):
        make_linear(Weight(torch.zeros(8, 8, device="meta")), None, ComputeType.INT8)


def test_weights_that_are_stored_as_int8_are_used_as_they_are() -> None:
    weight = tiny_weights(int8=True).matrices["decoder/embeddings"]
    values, step = weight.quantize()
    assert values is weight.values
    assert torch.allclose(values.float() * step[:, None], weight.dequantize())


SHAPES = st.tuples(
    st.sampled_from([0, 1, 2, 3, 17]), st.integers(1, 70), st.integers(1, 70)
)  # rows, inputs, outputs


@needs_onednn
@pytest.mark.parametrize("kind", [PlainInt8, OneDNNInt8])
@given(SHAPES, st.integers(0, 2**32 - 1))
def test_int8_kernels_are_exact_for_any_shape(
    kind: type[PlainInt8 | OneDNNInt8], shape: tuple[int, int, int], seed: int
) -> None:
    rows, inputs, outputs = shape
    random, max_value = np.random.default_rng(seed), max_quantized_value()
    values = random.integers(0, max_value + 1, (rows, inputs), dtype=np.uint8)
    weight = random.integers(-127, 128, (outputs, inputs), dtype=np.int8)
    found = kind(torch.from_numpy(weight), torch.ones(outputs), max_value)(torch.from_numpy(values))
    assert found.shape == (rows, outputs)
    assert np.array_equal(found.numpy(), values.astype(np.int64) @ weight.astype(np.int64).T)


@pytest.mark.parametrize("compute_type", list(ComputeType))
@given(SHAPES, st.integers(0, 2**32 - 1), st.booleans())
def test_linear_layers_are_right_for_any_shape(
    compute_type: ComputeType, shape: tuple[int, int, int], seed: int, with_bias: bool
) -> None:
    rows, inputs, outputs = shape
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, inputs)) + random.normal(scale=3.0, size=(rows, 1))
    weight, bias = random.normal(size=(outputs, inputs)), random.normal(size=outputs) * with_bias
    tensors = [torch.from_numpy(each.astype(np.float32)) for each in (values, weight, bias)]
    layer = make_linear(Weight(tensors[1]), tensors[2] if with_bias else None, compute_type)
    found = layer(LinearInput(tensors[0])).numpy()
    assert found.shape == (rows, outputs)
    relative = {"float32": 1e-5, "int8": 0.02, "bfloat16": 0.02, "float16": 3e-3}[compute_type]
    bound = relative * (np.abs(values) @ np.abs(weight).T + np.abs(bias) + 1.0)
    if compute_type is ComputeType.INT8:  # a step of a row is shared by all its values, one of weights likewise
        widest = np.abs(values).max(axis=1, keepdims=True) * np.abs(weight).max(axis=1) * inputs
        bound = bound + relative * widest
    assert (np.abs(found - (values @ weight.T + bias)) <= bound).all()
