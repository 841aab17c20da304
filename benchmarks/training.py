"""Training speed against a plain loop over the same layers and batches: `python benchmarks/training.py`.

Both train the network of recipes/zh-en-small.toml on made-up pairs, in turn, batch by batch.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

from uncurse.models.lstm import AttentionalLSTM
from uncurse.training.data import Batch
from uncurse.training.loop import Trainer
from uncurse.training.recipe import read_recipe

RECIPE = """
[data]
train = [{ source = "source", targets = ["target"] }]
dev = [{ source = "source", targets = ["target"] }]
[subwords]
source = 2000
target = 2000
[model]
embedding = 256
hidden = 384
dropout = 0.15
input_feed = %s
tied = true
[training]
batch_tokens = 2400
epochs = 1
"""
BATCHES = 12


def write_task(folder: Path, input_feed: bool) -> Path:
    """Lines of made-up words."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(3000)]
    for name in ("source", "target"):
        lines = [" ".join(chance.choices(words, k=chance.randint(5, 20))) for _ in range(3000)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE % str(input_feed).lower(), encoding="utf-8")
    return recipe


def plain_step(network: AttentionalLSTM, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """What anyone would write."""
    optimizer.zero_grad()
    logits = network(batch.source, batch.lengths, batch.target_in)
    loss = cross_entropy(logits.flatten(0, 1), batch.target_out.flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()


def main() -> None:
    """Print the table."""
    table = Table(title=f"Training, {torch.get_num_threads()} threads, medians of {BATCHES} batches in turn")
    for column in ("input feeding", "ours, tokens / s", "plain loop", "ratio", "bar"):
        table.add_column(column, justify="right")
    for input_feed in (False, True):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            trainer = Trainer(read_recipe(write_task(folder, input_feed)), folder, folder / "run")
            plain = AttentionalLSTM(trainer._network.shape)
            optimizer = torch.optim.AdamW(plain.parameters(), 1e-3)
            ours, theirs = [], []
            for index, (_, chosen) in enumerate(trainer._batches()):
                batch = trainer._train.batch(chosen)
                start = time.perf_counter()
                trainer._learn(chosen)
                middle = time.perf_counter()
                plain_step(plain, optimizer, batch)
                end = time.perf_counter()
                if index:  # the first warms up
                    ours.append(batch.tokens / (middle - start))
                    theirs.append(batch.tokens / (end - middle))
                if index == BATCHES:
                    break
            ratio = statistics.median(one / two for one, two in zip(ours, theirs, strict=True))
            table.add_row(
                "yes" if input_feed else "no",
                f"{statistics.median(ours):,.0f}",
                f"{statistics.median(theirs):,.0f}",
                f"{ratio:.2f}",
                "0.9",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
