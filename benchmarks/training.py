"""Training speed against a plain loop over the same network: `python benchmarks/training.py`.

The plain loop calls the network and PyTorch's default AdamW; ours is what `uncurse train` runs. Both train on the
same random batches, in turn, on one thread. Speeds are target tokens per second of CPU time, which other programs
disturb less than wall-clock time on a shared machine; speeds and ratios are medians over batches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape
from uncurse.training.data import TrainingBatch
from uncurse.training.loss import batch_loss
from uncurse.training.precision import Precision

BATCHES = 8
SENTENCES, POSITIONS, STEPS = 64, 22, 22
PAPER = LSTMShape(  # recipes/paper.toml
    source_vocab_size=18_000,
    target_vocab_size=10_000,
    embedding=500,
    hidden=500,
    dropout=0.3,
    input_feed=True,
)
SMALL = LSTMShape(  # recipes/zh-en-small.toml
    source_vocab_size=8_000,
    target_vocab_size=8_000,
    embedding=256,
    hidden=384,
    dropout=0.15,
    input_feed=False,
    tied=True,
)
Loss = Callable[[AttentionalLSTM, TrainingBatch, Precision], torch.Tensor]


def random_batch(shape: LSTMShape) -> TrainingBatch:
    """Random tokens; sources differ in length, and targets do not, as batches are sorted by target length."""
    lengths = torch.randint(POSITIONS - 8, POSITIONS + 1, (SENTENCES,))
    lengths[0] = POSITIONS
    target = torch.randint(3, shape.target_vocab_size, (SENTENCES, STEPS + 1))
    source = torch.randint(3, shape.source_vocab_size, (SENTENCES, POSITIONS))
    return TrainingBatch(source, lengths, target[:, :-1], target[:, 1:])


def plain_loss(network: AttentionalLSTM, batch: TrainingBatch, precision: Precision) -> torch.Tensor:
    """The loss as a plain loop has it."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is Precision.BFLOAT16):
        logits = network(batch.source, batch.lengths, batch.target_in)
    return cross_entropy(logits.float().flatten(0, 1), batch.target_out.flatten(), reduction="sum")


def our_loss(network: AttentionalLSTM, batch: TrainingBatch, precision: Precision) -> torch.Tensor:
    """The loss as `uncurse train` has it."""
    return batch_loss(network, batch, precision, label_smoothing=0.0)


def tokens_per_second(
    network: AttentionalLSTM,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    batch: TrainingBatch,
    precision: Precision,
) -> float:
    """The speed of one training step."""
    start = time.process_time()
    optimizer.zero_grad()
    (loss(network, batch, precision) / batch.tokens).backward()  # type: ignore[no-untyped-call]
    clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return batch.tokens / (time.process_time() - start)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    table = Table(title="Training, tokens per second of CPU time on one thread")
    for column in ("network", "products in", "plain loop", "ours", "ratio"):
        table.add_column(column, justify="left" if column in ("network", "products in") else "right")
    avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"  # elsewhere the plain loop has no bfloat16 LSTM
    precisions = [each for each in Precision if avx512 or each is Precision.FLOAT32]
    for name, shape in (("the paper's, input feeding", PAPER), ("small, no input feeding", SMALL)):
        torch.manual_seed(1)
        network = AttentionalLSTM(shape)
        systems = (
            (plain_loss, torch.optim.AdamW(network.parameters(), 1e-3)),
            (our_loss, torch.optim.AdamW(network.parameters(), 1e-3, fused=True)),
        )
        for precision in precisions:
            speeds = []
            for _ in range(BATCHES + 1):
                batch = random_batch(shape)
                speeds.append(
                    [tokens_per_second(network, optimizer, loss, batch, precision) for loss, optimizer in systems]
                )
            plain, ours = (statistics.median(each) for each in zip(*speeds[1:], strict=True))  # the first warms up
            ratio = statistics.median(two / one for one, two in speeds[1:])
            table.add_row(name, precision.value, f"{plain:,.0f}", f"{ours:,.0f}", f"{ratio:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
