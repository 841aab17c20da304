"""The loss of a batch, in the precision that was asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from uncurse.models.lstm.network import AttentionalLSTM
from uncurse.training.data import IGNORED, TrainingBatch
from uncurse.training.output_loss import output_loss
from uncurse.training.precision import Precision
from uncurse.training.teacher_forcing import attention_outputs


def batch_loss(
    network: AttentionalLSTM, batch: TrainingBatch, precision: Precision, label_smoothing: float
) -> Tensor:
    """The cross-entropy of a batch, summed over its target tokens."""
    layer = network.output
    device = layer.weight.device
    source, target = batch.source.to(device), batch.target_in.to(device)
    dtype = torch.bfloat16 if precision is Precision.BFLOAT16 else torch.float32
    with torch.autocast(device.type, dtype, enabled=precision is Precision.BFLOAT16):
        if network.shape.input_feed or dtype is torch.bfloat16:
            attended = attention_outputs(network, source, batch.lengths, target, dtype)
        else:  # PyTorch's own LSTM is fused, and faster in float32
            attended = network.attended(source, batch.lengths, target)
    right = batch.target_out.to(device).flatten()
    there = right != IGNORED
    return output_loss(
        attended.flatten(0, 1)[there], layer.weight, layer.bias, right[there], dtype, label_smoothing
    )
