"""The loss of the output layer, with its gradients, is that of PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from uncurse.training.output_loss import CHUNK, output_loss

ROWS, SIZE, VOCAB_SIZE = 2 * CHUNK + 3, 12, 50


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    outputs, weight, bias = torch.randn(ROWS, SIZE), torch.randn(VOCAB_SIZE, SIZE), torch.randn(VOCAB_SIZE)
    for each in (outputs, weight, bias):
        each.requires_grad_()
    return outputs, weight, bias, torch.randint(VOCAB_SIZE, (ROWS,))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 0.01)])
def test_it_is_the_cross_entropy_of_a_linear_layer(
    label_smoothing: float, dtype: torch.dtype, tolerance: float
) -> None:
    outputs, weight, bias, target = inputs()
    expected = cross_entropy(
        linear(outputs, weight, bias), target, reduction="sum", label_smoothing=label_smoothing
    )
    found = output_loss(outputs, weight, bias, target, dtype, label_smoothing)
    assert found.item() == pytest.approx(expected.item(), rel=tolerance)
    parameters = (outputs, weight, bias)
    for one, two in zip(
        torch.autograd.grad(expected / 7, parameters), torch.autograd.grad(found / 7, parameters), strict=True
    ):
        assert two.dtype is torch.float32
        assert (two - one).norm() <= tolerance * one.norm()


def test_a_batch_without_targets_has_no_loss() -> None:
    outputs, weight, bias, target = inputs()
    assert output_loss(outputs[:0], weight, bias, target[:0], torch.float32, 0.0).item() == 0.0
