"""Memory and time of wide beams on long prompts, beside the beam search of transformers.

`python benchmarks/decoder_only.py [FOLDER]`, with the folder of a decoder-only model. Without one the model is a
small random Llama. Every run is a process of its own, and the runs of the two take turns.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, LlamaConfig

from uncurse.huggingface import beam_search

BEAM_SIZE, PROMPT, NEW_TOKENS, REPEATS = 50, 1000, 16, 3
OURS, THEIRS = "uncurse", "transformers"
RANDOM: dict[str, Any] = {
    "vocab_size": 8000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def run(who: str, folder: str | None) -> dict[str, float]:
    """Seconds, CPU seconds and the peak of memory in MB; the outputs have the same length in both searches."""
    torch.manual_seed(0)
    auto_class: Any = AutoModelForCausalLM
    model = auto_class.from_config(LlamaConfig(**RANDOM)) if folder is None else auto_class.from_pretrained(folder)
    model = model.float().eval()
    prompt = torch.randint(3, 5000, (1, PROMPT))
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS - 1}  # and then </s>
    with torch.inference_mode():
        model(prompt[:, :8])  # what is set up once
    before, wall, cpu = _peak(), time.perf_counter(), time.process_time()
    if who == OURS:
        model.generate(prompt, **options, custom_generate=beam_search, beam_size=BEAM_SIZE, slots="refill")
    elif who == THEIRS:
        model.generate(prompt, **options, num_beams=BEAM_SIZE, do_sample=False)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": _peak(),
        "more": _peak() - before,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run both in turn and print the medians."""
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    found: dict[str, list[dict[str, float]]] = {OURS: [], THEIRS: []}
    for _ in range(REPEATS):
        for who, runs in found.items():
            call = [sys.executable, __file__, "--run", who, *([folder] if folder else [])]
            done = subprocess.run(call, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    table = Table(title=f"beam size {BEAM_SIZE}, a prompt of {PROMPT} tokens, {NEW_TOKENS} new tokens")
    for name in ("", "seconds", "CPU seconds", "peak MB", "of it the search"):
        table.add_column(name, justify="right" if name else "left")
    medians = {
        who: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        for who, runs in found.items()
    }
    for who, values in medians.items():
        table.add_row(who, *(f"{values[name]:.1f}" for name in ("seconds", "cpu", "peak", "more")))
    ratios = [medians[THEIRS][name] / medians[OURS][name] for name in ("seconds", "cpu", "peak", "more")]
    table.add_row("ratio", *(f"{ratio:.1f}" for ratio in ratios))
    Console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(run(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)))
    else:
        main()
