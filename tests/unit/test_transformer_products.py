"""The Transformer runtime: its products of whole numbers and its output layer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from tiny import tiny_weights

from uncurse.models import output_layer, products
from uncurse.models.output_layer import OutputLayer
from uncurse.models.products import Given, Matrix, Numbers, PackedBytes, PlainBytes, product_of, written


def falling(log_probs: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs in the order of their log-probabilities: if all are wanted they come in no order."""
    values, order = log_probs.sort(dim=1, descending=True, stable=True)
    return values, tokens.gather(1, order)


@pytest.mark.parametrize("k", [1, 7, 25, 90, 102])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_best_outputs_are_those_of_a_log_softmax(
    k: int, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_layer, "CHUNK", 32)
    monkeypatch.setattr(output_layer, "BLOCK", 4)
    random = torch.Generator().manual_seed(3)
    weight, rows = torch.randn(102, 8, generator=random), torch.randn(5, 8, generator=random)
    bias = torch.linspace(9.0, -9.0, 102) if ordered else torch.linspace(-9.0, 9.0, 102)
    bias[40:75] = -torch.inf  # a whole chunk that cannot be said
    log_probs, tokens = falling(*OutputLayer(Matrix(weight), bias, Numbers.FLOAT32).best(rows, k))
    expected = (rows @ weight.T + bias).log_softmax(dim=1)
    values, ids = expected.topk(k, dim=1)
    assert torch.allclose(log_probs, values, atol=1e-5)
    possible = values > -torch.inf
    assert (tokens == ids)[possible].all()
    assert len({*tokens[0].tolist()}) == k  # distinct, even those that cannot be said
    allowed = torch.arange(0, 102, 3)
    log_probs, tokens = falling(*OutputLayer(Matrix(weight), bias, Numbers.FLOAT32, allowed).best(rows, k))
    left_out = torch.ones(102, dtype=torch.bool).index_fill(0, allowed, value=False)
    values, ids = (rows @ weight.T + bias.masked_fill(left_out, -torch.inf)).log_softmax(dim=1).topk(k, dim=1)
    assert torch.allclose(log_probs, values, atol=1e-5)
    assert (tokens == ids)[values > -torch.inf].all()
    assert len({*tokens[0].tolist()}) == k


needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch comes without oneDNN")  # type: ignore[no-untyped-call]


@needs_onednn
@pytest.mark.parametrize("highest", [127, 255])
def test_whole_numbers_come_near_and_do_not_depend_on_the_batch(
    highest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if highest > products.highest_byte():
        pytest.skip("this CPU adds up bytes in pairs of 16 bits, which hold no more than 127")
    monkeypatch.setattr(products, "highest_byte", lambda: highest)
    random = torch.Generator().manual_seed(5)
    weight, bias = torch.randn(64, 32, generator=random), torch.randn(64, generator=random)
    rows = torch.randn(2100, 32, generator=random)  # enough for several threads
    rows += torch.linspace(-5.0, 5.0, 2100)[:, None]  # hardly one is symmetric
    rows[7] = 0.25
    floats, bytes_ = (product_of(Matrix(weight), bias, numbers) for numbers in (Numbers.FLOAT32, Numbers.INT8))

    def exact(rows: torch.Tensor) -> torch.Tensor:
        return floats(Given(rows))

    def whole(rows: torch.Tensor) -> torch.Tensor:
        return bytes_(Given(rows))

    assert (exact(rows) - whole(rows)).abs().max() < 0.02 * (exact(rows) - bias).abs().max()
    together = whole(rows)
    for row in (0, 3, 7, 1049, 1050, 2099):
        assert torch.equal(together[row : row + 1], whole(rows[row : row + 1]))
    assert torch.equal(whole(rows.view(3, 700, 32)), together.view(3, 700, 64))
    assert torch.equal(whole(rows.t().contiguous().t()), together)


@needs_onednn
@pytest.mark.parametrize("kind", [PlainBytes, PackedBytes])
def test_products_of_the_largest_whole_numbers_are_exact(kind: type[PlainBytes | PackedBytes]) -> None:
    highest = products.highest_byte()
    weight = torch.tensor([127, -127, 3], dtype=torch.int8)[:, None].repeat(8, 64)
    wholes = torch.tensor([0, highest, 1], dtype=torch.uint8)[:, None].repeat(1, 64)
    assert torch.equal(kind(weight, torch.ones(24), highest)(wholes), wholes.float() @ weight.float().T)


@needs_onednn
def test_products_of_bytes_are_the_same_however_they_are_packed() -> None:
    random = torch.Generator().manual_seed(6)
    highest = products.highest_byte()
    weight = torch.randint(-127, 128, (64, 32), generator=random).to(torch.int8)
    rows = torch.randint(0, highest + 1, (9, 32), generator=random).to(torch.uint8)
    packed, plain = (kind(weight, torch.ones(64), highest)(rows) for kind in (PackedBytes, PlainBytes))
    assert torch.equal(packed, plain)


@needs_onednn
@pytest.mark.parametrize("isa", ["AVX2", "ALL"])
def test_what_bytes_may_be_is_found_out_by_trying(isa: str) -> None:
    code = "from uncurse.models.products import Numbers, highest_byte, written\n"
    code += "print(highest_byte(), written(Numbers.INT8))"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": isa}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert found == {"AVX2": ["127", "int8x7"]}.get(isa, [str(products.highest_byte()), written(Numbers.INT8)])


def test_int8_is_for_cpus() -> None:
    with pytest.raises(ValueError, match="dtype int8 is for CPUs"):
        product_of(Matrix(torch.zeros(8, 8, device="meta")), None, Numbers.INT8)


def test_stored_whole_numbers_are_used_as_they_are() -> None:
    weights = tiny_weights(whole=True).matrices["decoder/embeddings"]
    wholes, step = weights.wholes
    assert wholes is weights.values
    assert torch.allclose(wholes.float() * step[:, None], weights.floats)
