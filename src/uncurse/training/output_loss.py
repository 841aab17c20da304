"""Output layer and cross-entropy as one autograd function.

The logits of a batch are its largest array, [rows, vocabulary], and PyTorch goes over them again and again: to
convert them to float32, for log-softmax, for its gradient and to convert that back. Here they are made for some
rows at a time, which stay in the cache until they have become the gradient; only that is kept.
"""

from __future__ import annotations

from typing import Any, Final, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK: Final = 64  # rows


def output_loss(
    outputs: Tensor, weight: Tensor, bias: Tensor, target: Tensor, dtype: torch.dtype, label_smoothing: float
) -> Tensor:
    """The cross-entropy of an output layer, summed over the rows; products are computed in `dtype`.

    `outputs` are [rows, size] and `target` [rows]. With label smoothing ε the target has 1 − ε, and ε is spread
    evenly over the vocabulary, the target included.
    """
    with torch.autocast(outputs.device.type, enabled=False):
        loss: Tensor = _OutputLoss.apply(outputs.float(), weight, bias, target, dtype, label_smoothing)  # type: ignore[no-untyped-call]
    return loss


@final
class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  (PyTorch's)
        outputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor,
        dtype: torch.dtype,
        label_smoothing: float,
    ) -> Tensor:
        """The loss, a scalar."""
        inputs, layer = outputs.to(dtype), weight.to(dtype)
        d_logits = layer.new_empty(len(outputs), len(weight))
        d_bias, loss = torch.zeros_like(bias), outputs.new_zeros(())
        spread = label_smoothing / len(weight)
        for start in range(0, len(outputs), CHUNK):
            right = target[start : start + CHUNK, None]
            logits = (inputs[start : start + CHUNK] @ layer.T).float().add_(bias)
            logits -= logits.amax(dim=1, keepdim=True)
            chosen = logits.gather(1, right)
            unsmoothed = (1.0 - label_smoothing) * chosen
            smoothed = unsmoothed + spread * logits.sum(dim=1, keepdim=True) if label_smoothing else unsmoothed
            sums = logits.exp_().sum(dim=1, keepdim=True)
            loss += (sums.log() - smoothed).sum()
            gradient = logits.div_(sums)
            if label_smoothing:
                gradient -= spread
            gradient.scatter_add_(1, right, chosen.new_full(chosen.shape, label_smoothing - 1.0))
            d_bias += gradient.sum(dim=0)
            d_logits[start : start + CHUNK] = gradient
        ctx.save_for_backward(inputs, layer, d_logits, d_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """The gradients of outputs, weight and bias."""
        inputs, layer, d_logits, d_bias = ctx.saved_tensors
        d_outputs, d_weight = (d_logits @ layer).float(), (d_logits.T @ inputs).float()
        return d_outputs.mul_(d_loss), d_weight.mul_(d_loss), d_bias * d_loss, None, None, None
