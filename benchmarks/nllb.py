"""Ours beside CTranslate2 and Hugging Face on a random model of NLLB-600M's shape: `python benchmarks/nllb.py`.

The model (12 + 12 layers of 1024, some 256,000 tokens; 2.4 GB) is written once to --folder, and CTranslate2
converts it. Every system translates the same token ids, in turn, several times; ratios are of medians. A random
model hardly ever ends an output, so all compute --length tokens: the same work for all.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

from uncurse import Decoding, Sentence, beam_search
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions

SOURCE_LANG, TARGET_LANG = "eng_Latn", "fra_Latn"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
Sources = list[tuple[int, ...]]
Run = Callable[[], list[tuple[int, ...]]]
GOALS = (  # ours, the peer, at least
    ("ours int8", "CTranslate2 int8", "1.3"),
    ("ours int8", "HF float32", "3"),
    ("ours float32", "HF float32", ""),
)


def write_model(folder: Path, layers: int, d_model: int, vocab_size: int) -> None:
    """Write a random model with a tokenizer, as Hugging Face and as CTranslate2 in int8."""
    if (folder / "ctranslate2" / "model.bin").exists():
        return
    torch.manual_seed(1)
    tokens = [*SPECIAL, *(f"\u2581w{index}" for index in range(vocab_size - len(SPECIAL)))]
    tokenizer: Any = NllbTokenizer(vocab={token: index for index, token in enumerate(tokens)}, merges=[])
    sides: Any = {
        f"{side}_{what}": size
        for side in ("encoder", "decoder")
        for what, size in (("layers", layers), ("attention_heads", d_model // 64), ("ffn_dim", 4 * d_model))
    }
    size = max(tokenizer.get_vocab().values()) + 1
    config = M2M100Config(vocab_size=size, d_model=d_model, max_position_embeddings=1024, **sides)
    M2M100ForConditionalGeneration(config).save_pretrained(folder / "huggingface")
    tokenizer.save_pretrained(folder / "huggingface")
    files = [path.name for path in (folder / "huggingface").glob("*token*")]
    converter = ctranslate2.converters.TransformersConverter(str(folder / "huggingface"), copy_files=files)
    converter.convert(str(folder / "ctranslate2"), quantization="int8", force=True)


def ours(folder: Path, dtype: str, sources: Sources, options: argparse.Namespace) -> Run:
    """This library."""
    name = str(folder / "huggingface")
    model = load_model(ModelOptions(name, dtype=dtype, source_lang=SOURCE_LANG, target_lang=TARGET_LANG)).model
    decoding = Decoding(options.beam_size, "length-norm", "beam-full", slots="refill")
    sentences = [Sentence(source, options.length) for source in sources]

    def run() -> list[tuple[int, ...]]:
        results = beam_search(model, sentences, decoding, batch_size=options.batch)
        return [result.hypotheses[0].tokens[: options.length] for result in results]

    return run


def ctranslate2_system(folder: Path, sources: Sources, options: argparse.Namespace) -> Run:
    """CTranslate2 in int8."""
    peer = ctranslate2.Translator(
        str(folder / "ctranslate2"), device="cpu", compute_type="int8", intra_threads=options.threads
    )
    tokenizer: Any = NllbTokenizer.from_pretrained(folder / "huggingface")
    names = [[SOURCE_LANG, *tokenizer.convert_ids_to_tokens(source), "</s>"] for source in sources]

    def run() -> list[tuple[int, ...]]:
        results = peer.translate_batch(
            names, target_prefix=[[TARGET_LANG]] * len(names), beam_size=options.beam_size, length_penalty=1,
            max_decoding_length=options.length + 1, min_decoding_length=options.length + 1,
            max_batch_size=options.batch,
        )  # fmt: skip
        return [tuple(tokenizer.convert_tokens_to_ids(each.hypotheses[0][1:])) for each in results]

    return run


def hugging_face(folder: Path, sources: Sources, options: argparse.Namespace) -> Run:
    """The transformers library in float32."""
    model: Any = M2M100ForConditionalGeneration.from_pretrained(folder / "huggingface")
    model.eval()
    tokenizer: Any = NllbTokenizer.from_pretrained(folder / "huggingface")
    first, target = tokenizer.convert_tokens_to_ids([SOURCE_LANG, TARGET_LANG])

    def run() -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for begin in range(0, len(sources), options.batch):
            rows = [[first, *source, 2] for source in sources[begin : begin + options.batch]]
            longest = max(map(len, rows))
            ids = torch.tensor([[*row, *[1] * (longest - len(row))] for row in rows])
            with torch.inference_mode():
                given = model.generate(
                    input_ids=ids, attention_mask=(ids != 1).long(), num_beams=options.beam_size, do_sample=False,
                    forced_bos_token_id=target, max_new_tokens=options.length + 1, bad_words_ids=[[1]],
                    early_stopping=True, length_penalty=1.0,
                )  # fmt: skip
            found += [tuple(row[2 : 2 + options.length]) for row in given.tolist()]
        return found

    return run


def compare(systems: dict[str, Run], options: argparse.Namespace, console: Console) -> None:
    """Print the times, their ratios and how many outputs are the same."""
    spent: dict[str, list[float]] = {name: [] for name in systems}
    outputs: dict[str, list[tuple[int, ...]]] = {}
    for repeat in range(options.repeats + 1):  # the first warms up
        for name, run in systems.items():
            start = time.perf_counter()
            outputs[name] = run()
            if repeat:
                spent[name].append(time.perf_counter() - start)
    work = (
        f"{options.sentences} sentences, batch {options.batch}, b = {options.beam_size}, {options.length} tokens"
    )
    table = Table(title=f"{work}, {options.threads} threads, medians of {options.repeats} in turn")
    for column in ("system", "seconds (least, most)"):
        table.add_column(column)
    for name, each in spent.items():
        table.add_row(name, f"{statistics.median(each):.2f} ({min(each):.2f}, {max(each):.2f})")
    console.print(table)
    table = Table(title="How many times as fast, and how many outputs are the same")
    for column in ("ours", "peer", "ratio", "goal", "same outputs"):
        table.add_column(column)
    for mine, peer, goal in GOALS:
        ratio = statistics.median(spent[peer]) / statistics.median(spent[mine])
        same = sum(one == two for one, two in zip(outputs[mine], outputs[peer], strict=True))
        table.add_row(mine, peer, f"{ratio:.2f}", goal, f"{same} of {options.sentences}")
    console.print(table)


def main() -> None:
    """Write the model if it is not there, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/nllb-shape"))
    for name, default in (
        *(("layers", 12), ("d-model", 1024), ("vocab-size", 256_000)),
        *(("sentences", 8), ("batch", 8), ("beam-size", 5), ("length", 32), ("repeats", 5), ("threads", 2)),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    write_model(options.folder, options.layers, options.d_model, options.vocab_size)
    random = np.random.default_rng(1)
    sources: Sources = [
        tuple(random.integers(len(SPECIAL), options.vocab_size, random.integers(15, 41)).tolist())
        for _ in range(options.sentences)
    ]
    systems = {
        "ours int8": ours(options.folder, "int8", sources, options),
        "CTranslate2 int8": ctranslate2_system(options.folder, sources, options),
        "ours float32": ours(options.folder, "float32", sources, options),
        "HF float32": hugging_face(options.folder, sources, options),
    }
    compare(systems, options, Console(width=120))


if __name__ == "__main__":
    main()
