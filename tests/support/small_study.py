"""A small study of the bundled model."""

from __future__ import annotations

from pathlib import Path

PLAN = """
title = "A small study"
model = "zh-en-small"
beam_sizes = [1, 2]
small = [3]
large = [4, 5]
baseline_beam_size = 2
max_lengths = ["predicted", "q0.95"]
exact = 2
exact_budget = 20
[tuning.word-reward]
reward = [0.0, 0.5]
[tuning.bounded-word-reward]
reward = [0.0, 0.5]
[tuning.gnmt]
alpha = [0.2]
beta = [0.0]
[dev]
source = "dev.zh"
references = ["dev.en"]
[test]
source = "test.zh"
references = ["test.en"]
"""
SENTENCES = [
    ("我们要去山上。", "we will go up the mountain"),
    ("他对我说话。", "he spoke to me"),
    ("请打开这个文件。", "please open this file"),
    ("孩子们在河边吃饼。", "the children eat bread by the river"),
    ("王听见这话，就起来。", "when the king heard this he arose"),
]
ROUNDS = 8  # every sentence in several lengths, so that there is more than one shard


def write_plan(folder: Path) -> None:
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    for name, turn in (("dev", 0), ("test", 1)):
        pairs = [SENTENCES[(each + turn) % len(SENTENCES)] for each in range(ROUNDS * len(SENTENCES))]
        for side, suffix in enumerate(("zh", "en")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
