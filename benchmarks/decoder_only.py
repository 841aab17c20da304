"""Memory and time of wide beams on long prompts, beside the beam search of transformers.

`python benchmarks/decoder_only.py [MODEL]`, with the folder of a decoder-only model, or a GGUF file (this needs
the packages gguf and accelerate). Without one the model is a small random Llama. Each of the two runs in a process
of its own with one thread. Memory is as Linux tells it.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM, LlamaConfig

from uncurse.huggingface import beam_search

BEAM_SIZE, PROMPT, NEW_TOKENS = 50, 1000, 16
OURS, THEIRS = "uncurse", "transformers"
RANDOM: dict[str, Any] = {
    "vocab_size": 8000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def load(model: str | None) -> Any:  # noqa: ANN401
    """A model in float32."""
    auto_class: Any = AutoModelForCausalLM
    if model is None:
        return auto_class.from_config(LlamaConfig(**RANDOM)).float().eval()
    path = Path(model)
    where = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    return auto_class.from_pretrained(path.parent if where else path, **where, dtype=torch.float32).eval()


def run(who: str, model_name: str | None) -> dict[str, float]:
    """Seconds, CPU seconds and the peak of memory in MB; the outputs have the same length in both searches."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = load(model_name)
    prompt = torch.randint(3, 5000, (1, PROMPT))
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS - 1}  # and then </s>
    with torch.inference_mode():
        model(prompt[:, :8])  # what is set up once
    ctypes.CDLL(None).malloc_trim(0)  # what loading has freed must not hide what the search takes
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far
    before, wall, cpu = _megabytes("VmRSS"), time.perf_counter(), time.process_time()
    if who == OURS:
        model.generate(prompt, **options, custom_generate=beam_search, beam_size=BEAM_SIZE, slots="refill")
    elif who == THEIRS:
        model.generate(prompt, **options, num_beams=BEAM_SIZE, do_sample=False)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": _megabytes("VmHWM"),
        "more": _megabytes("VmHWM") - before,
    }


def _megabytes(name: str) -> float:
    """A line of what Linux says about the memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) / 1024


def main() -> None:
    """Run each once and print both."""
    found: dict[str, dict[str, float]] = {}
    for who in (OURS, THEIRS):  # ratios are far beyond what repeated runs differ by
        call = [sys.executable, __file__, "--run", who, *sys.argv[1:2]]
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True)
        found[who] = json.loads(done.stdout.splitlines()[-1])
    table = Table(title=f"beam size {BEAM_SIZE}, a prompt of {PROMPT} tokens, {NEW_TOKENS} new tokens")
    for name in ("", "seconds", "CPU seconds", "peak MB", "of it the search"):
        table.add_column(name, justify="right" if name else "left")
    columns = ("seconds", "cpu", "peak", "more")
    for who, values in found.items():
        table.add_row(who, *(f"{values[name]:.1f}" for name in columns))
    table.add_row("ratio", *(f"{found[THEIRS][name] / found[OURS][name]:.1f}" for name in columns))
    Console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        print(json.dumps(run(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)))
    else:
        main()
