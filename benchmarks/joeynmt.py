"""Our attentional LSTM beside that of JoeyNMT 2.3.0: `python benchmarks/joeynmt.py DATA [options]`.

DATA has bible/train.zh, bible/train.en.0 … as in recipes/zh-en-bible.toml. Both systems get the same tokens of the
same pairs (the first target of each source, at most 60 tokens on either side), train networks of the same size for
the same number of minutes, counted from the first batch, and translate the same lines with their last weights;
loading is not timed. JoeyNMT has an environment of its own, runs/peers/joeynmt-env. Finished steps are kept in
runs/peers/joeynmt, and a second call resumes there; remove that folder to measure again.

Alike: embeddings of 256, a decoder of 384 in 2 layers, an encoder of 192 in each direction in 2 layers, Luong's
general attention, no input feeding, dropout 0.2, embeddings that start with unit variance, cross-entropy for each
token, AdamW at 0.002 without a warm-up, gradients clipped at 1, batches of 2,400 tokens of the longer side and its
padding.

Different:
- JoeyNMT ties output weights only if embeddings are as large as the decoder, so neither does; --tied ties ours.
- JoeyNMT fills a batch with pairs of any length until it has 2,400 tokens; ours takes pairs of similar length.
- JoeyNMT unrolls its decoder step by step in training even without input feeding; ours is one call.
- Both layers of JoeyNMT's decoder start, state and cell, from the last states of the upper encoder layer; ours
  layer from layer and cell from cell. JoeyNMT's recurrent weights start larger, its sources end in </s>, its
  vocabulary has <pad>, its bias is before tanh, ours in the output layer; its dropout is before tanh, ours after.
- JoeyNMT's rate is constant; ours falls in a straight line, of which the clock leaves the beginning. Ours looks at
  the development pairs in every epoch, in its own time; JoeyNMT never does.
- JoeyNMT ranks by S / ((5 + n) / 6), stops when every slot of the beam has ended, and forbids the empty output.
  `like for like` ranks by S / n and stops when as many as the beam is wide have ended; `default` is F1-Norm,
  optimal, with the maximum length that the length predictor sets.
- JoeyNMT is given sorted and tokenized lines, 32 at a time. Ours tokenizes and detokenizes within the time, and
  gives the place of a finished sentence to another, up to the source tokens of 32 average sentences.
The weights differ, so do the lengths of outputs and with them sentences per second: see the length ratio.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Timer
from typing import NoReturn

import torch
from joeynmt_peer import (
    BATCH,
    MAX_LENGTH,
    PEERS,
    ROOT,
    Measured,
    Run,
    environment,
    numbers,
    say,
    shown,
    train_joeynmt,
    translate_joeynmt,
)
from rich.console import Console
from rich.table import Table

from uncurse.evaluation.bleu import corpus_quality
from uncurse.lengths.limits import parse_max_length
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import Decoding
from uncurse.storage.atomic import atomic_write
from uncurse.text.lines import read_lines
from uncurse.text.parallel import ParallelFiles, read_parallel
from uncurse.text.sentencepiece_tokenizer import EOS, SentencePieceTokenizer
from uncurse.training.checkpoint import load_checkpoint
from uncurse.training.loop import Trainer
from uncurse.training.recipe import DataConfig, Recipe, read_recipe
from uncurse.translation.options import TranslationOptions
from uncurse.translation.translator import load_translator

RECIPE = ROOT / "recipes" / "zh-en-bible.toml"
MAX_TOKENS_PER_SIDE = 60  # of a pair
EPOCHS_PER_MINUTE = 2  # more than a CPU gets through
WAYS: dict[str, Callable[[int], Decoding]] = {
    "like for like": lambda beam_size: Decoding(beam_size, "length-norm", "beam-full", slots="refill"),
    "default": Decoding,
}


def plan(minutes: float, tied: bool) -> Recipe:
    """The recipe of the study with one target for each source, as far as JoeyNMT can follow it."""
    study = read_recipe(RECIPE)
    train, dev = (
        tuple(ParallelFiles(corpus.source, corpus.targets[:1]) for corpus in corpora)
        for corpora in (study.data.train, study.data.dev)
    )
    epochs = math.ceil(EPOCHS_PER_MINUTE * minutes) + 1
    training = replace(study.training, max_tokens_per_side=MAX_TOKENS_PER_SIDE, epochs=epochs, warmup_steps=0)
    return replace(study, data=DataConfig(train, dev), model=replace(study.model, tied=tied), training=training)


def prepare(run: Run) -> None:
    """Train the tokenizers as the study does, and write the pairs for JoeyNMT.

    Tokens are written as their ids: JoeyNMT would split some of the texts at Unicode spaces and line ends.
    """
    if (run.shared / "train.en").exists():
        return
    say("training tokenizers")
    run.shared.mkdir(parents=True, exist_ok=True)
    size = run.recipe.tokenizer
    text = read_parallel(read_recipe(RECIPE).data.train, run.data)
    source = SentencePieceTokenizer.train(text.sources, size.source, size.lowercase)
    target = SentencePieceTokenizer.train(
        (line for lines in text.targets for line in lines), size.target, size.lowercase
    )
    firsts = target.encode([lines[0] for lines in text.targets])
    pairs = [
        pair
        for pair in zip(source.encode(text.sources), firsts, strict=True)
        if all(0 < len(tokens) <= MAX_TOKENS_PER_SIDE for tokens in pair)
    ]
    for side, (language, name, tokenizer) in enumerate((("zh", "source", source), ("en", "target", target))):
        atomic_write(run.shared / f"{name}.spm", tokenizer.model)
        vocabulary = [[token] for token in range(EOS + 1, len(tokenizer))]
        atomic_write(run.shared / f"vocabulary.{language}", numbers(vocabulary).encode())
        atomic_write(run.shared / f"train.{language}", numbers([pair[side] for pair in pairs]).encode())


def train_ours(run: Run) -> Measured:
    """Train ours until the time is up, and export its last weights, as JoeyNMT's are."""
    folder = run.folder / "ours"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("source.spm", "target.spm"):
        shutil.copy(run.shared / name, folder)
    trainer = Trainer(run.recipe, run.data, folder)
    timer = Timer(60 * run.minutes, os.kill, (os.getpid(), signal.SIGTERM))
    start = time.perf_counter()
    timer.start()
    try:
        trainer.run()
    except KeyboardInterrupt:
        if timer.is_alive():  # it was not the timer
            raise
    finally:
        timer.cancel()
    seconds = time.perf_counter() - start
    shutil.copy(folder / "last.safetensors", folder / "best.safetensors")
    trainer.export()
    return Measured(load_checkpoint(folder / "last.safetensors").metadata["tokens"], seconds, [])


def translate_ours(run: Run, way: str, beam_size: int) -> Measured:
    """Translate with ours."""
    translator = load_translator(ModelOptions(str(run.folder / "ours" / "model")))
    tokens = sum(map(len, run.tokenizers[0].encode(run.lines)))
    max_length = None if way == "default" else parse_max_length(str(MAX_LENGTH))
    options = TranslationOptions(
        decoding=WAYS[way](beam_size),
        max_length=max_length,
        batch_tokens=max(1, BATCH * tokens // len(run.lines)),
    )
    list(translator.stream(run.lines[:1], options))  # warms up
    start = time.perf_counter()
    outputs = [each.text for each in shown(translator.stream(run.lines, options), len(run.lines))]
    return Measured(len(outputs), time.perf_counter() - start, outputs)


def kept(path: Path, what: str, work: Callable[[], Measured]) -> Measured:
    """The result of a step, which is done unless it was done before."""
    if not path.exists():
        say(what)
        atomic_write(path, json.dumps(work()).encode())
    return Measured(*json.loads(path.read_bytes()))


def table_of(run: Run, beam_sizes: Sequence[int]) -> Table:
    """Train both, translate with both, and compare."""
    references = [read_lines(run.data / f"bible/test.en.{index}")[: len(run.lines)] for index in range(4)]
    environment()
    prepare(run)
    run.folder.mkdir(exist_ok=True)
    trained = [
        kept(run.folder / f"{name}.json", f"{name} trains for {run.minutes:g} minutes", partial(train, run))
        for name, train in (("JoeyNMT", train_joeynmt), ("ours", train_ours))
    ]
    systems = {"JoeyNMT": partial(translate_joeynmt, run)}
    systems |= {f"ours, {way}": partial(translate_ours, run, way) for way in WAYS}
    table = Table(title=f"{run.minutes:g} minutes, {len(run.lines)} lines, threads: {run.threads}")
    for column in ("", "JoeyNMT", *(each for way in WAYS for each in (f"ours, {way}", "ours : JoeyNMT"))):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("training, target tokens / s", *compared(trained, 0))
    for beam_size in beam_sizes:
        found = []
        for name, translate in systems.items():
            path = run.folder / f"{name} {beam_size} {len(run.lines)}.json".replace(",", "").replace(" ", "-")
            what = f"{name}: {len(run.lines)} lines, beam {beam_size}"
            found.append(kept(path, what, partial(translate, beam_size)))
        scores = [corpus_quality(each.outputs, references, lowercase=True) for each in found]
        first, *others = (f"{score.bleu:.2f} ({score.ratio:.2f})" for score in scores)
        table.add_section()
        table.add_row(f"beam {beam_size}, sentences / s", *compared(found, 2))
        cells = [cell for other in others for cell in (other, "")]
        table.add_row(f"beam {beam_size}, BLEU (length ratio)", first, *cells)
        table.caption = scores[0].signature
    return table


def compared(found: Sequence[Measured], digits: int) -> list[str]:
    """The speed of the first, and of each other with its ratio to the first."""
    others = [(f"{each.speed:,.{digits}f}", f"{each.speed / found[0].speed:.2f}") for each in found[1:]]
    return [f"{found[0].speed:,.{digits}f}", *(cell for pair in others for cell in pair)]


class OneLine(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and stop."""
        self.exit(2, f"{self.prog}: {message}\n")


def whole(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: it must be a whole number of at least 1")
    return int(text)


def main() -> None:
    """Print the table."""
    parser = OneLine(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, of each system")
    parser.add_argument("--lines", type=whole, default=100, help="the first so many of bible/test.zh")
    parser.add_argument("--beam-sizes", type=lambda text: list(map(whole, text.split(","))), default=[5, 20, 40])
    parser.add_argument("--threads", type=whole, default=torch.get_num_threads(), help="of each system")
    parser.add_argument("--tied", action="store_true", help="tie the output weights of ours")
    options = parser.parse_args()
    if not 0 < options.minutes < math.inf:
        parser.error(f"argument --minutes: {options.minutes:g} is not allowed: it must be more than 0")
    for name in ("train.zh", "test.zh"):
        if not (options.data / "bible" / name).is_file():
            parser.error(f"{options.data / 'bible' / name} is not there: name the folder that has bible/{name}")
    torch.set_num_threads(options.threads)
    recipe = plan(options.minutes, options.tied)
    known = sha256(f"{options.data.resolve()} {recipe.data} {recipe.tokenizer}".encode()).hexdigest()[:8]
    shared = PEERS / "joeynmt" / known
    folder = shared / f"{options.minutes:g}-minutes-{options.threads}-threads{'-tied' * options.tied}"
    lines = read_lines(options.data / "bible" / "test.zh")[: options.lines]
    run = Run(recipe, options.data, shared, folder, options.minutes, options.threads, lines)
    try:
        Console(width=140).print(table_of(run, options.beam_sizes))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: interrupted; a second call goes on after the last finished step\n")


if __name__ == "__main__":
    main()
