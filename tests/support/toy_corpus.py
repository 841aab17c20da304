"""A toy language pair: a translation has every word of its source twice, in reverse order."""

from __future__ import annotations

import random
from pathlib import Path

WORDS = ["ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu"]

RECIPE = """
[data]
train = [{ source = "train.source", targets = ["train.target"] }]
dev = [{ source = "dev.source", targets = ["dev.target"] }]
[tokenizer]
source = 300
target = 300
[model]
embedding = 32
hidden = 64
dropout = 0.0
input_feed = true
tied = true
[training]
batch_sentences = 32
epochs = %d
learning_rate = 0.004
warmup_steps = 20
seed = 3
checkpoint_minutes = 1
"""


def translated(line: str) -> str:
    return " ".join(word for word in reversed(line.split()) for _ in range(2))


def write_task(folder: Path, lines: int, epochs: int) -> Path:
    """Write a small corpus and a recipe for it; return the recipe."""
    rng = random.Random(1)
    for part, count in (("train", lines), ("dev", 40)):
        sources = [" ".join(rng.choices(WORDS, k=rng.randint(1, 5))) for _ in range(count)]
        (folder / f"{part}.source").write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
        (folder / f"{part}.target").write_text(
            "".join(f"{translated(line)}\n" for line in sources), encoding="utf-8"
        )
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE % epochs, encoding="utf-8")
    return recipe


def write_checkpointing_task(folder: Path, lines: int = 200, dropout: float = 0.3) -> Path:
    """A corpus for a second of training with a checkpoint after every batch; return the recipe."""
    recipe = write_task(folder, lines, epochs=2)
    text = recipe.read_text(encoding="utf-8").replace("dropout = 0.0", f"dropout = {dropout}")
    text = text.replace("checkpoint_minutes = 1", "checkpoint_minutes = 0\nlabel_smoothing = 0.1")
    recipe.write_text(text, encoding="utf-8")
    return recipe
