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
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple, NoReturn

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from uncurse.evaluation.bleu import corpus_quality
from uncurse.lengths.limits import parse_max_length
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.lstm.network import LAYERS
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

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes" / "zh-en-bible.toml"
PEERS = ROOT / "runs" / "peers"
PACKAGES = (  # of JoeyNMT's environment, in this order; constraints.txt has the versions that are not here
    ("torch", "numpy"),
    ("matplotlib", "packaging", "PyYAML", "sacrebleu", "sentencepiece", "tensorboard", "tqdm"),
    ("importlib_metadata==10.2.0", "subword-nmt==0.3.8"),
    ("--no-deps", "joeynmt==2.3.0"),  # it asks for a protobuf that tensorboard does not take any more
)
MAX_TOKENS_PER_SIDE = 60  # of a pair
MAX_LENGTH = 100  # tokens of an output
BATCH = 32  # sentences that are translated together
EPOCHS_PER_MINUTE = 2  # more than a CPU gets through
WAYS: dict[str, Callable[[int], Decoding]] = {
    "like for like": lambda beam_size: Decoding(beam_size, "length-norm", "beam-full", slots="refill"),
    "default": Decoding,
}

# What runs in JoeyNMT's environment. Training is interrupted between two batches; JoeyNMT then writes its weights.
TRAIN = """
import json, sys, time
from pathlib import Path
from joeynmt import config, helpers, training

learn, limit, began, said = training.TrainManager._train_step, float(sys.argv[2]), None, 0.0

def timed(manager, batch):
    global began, said
    began = began or time.monotonic()
    spent = time.monotonic() - began
    if spent >= min(limit, said + 30):
        said = spent
        print(json.dumps([manager.stats.total_tokens, spent]), flush=True)
    if spent >= limit:
        raise KeyboardInterrupt
    return learn(manager, batch)

training.TrainManager._train_step = timed
options = config.load_config(Path(sys.argv[1]))
helpers.make_model_dir(Path(options["model_dir"]), overwrite=True)
training.train(rank=0, world_size=None, cfg=options, skip_test=True)
"""
TRANSLATE = """
import json, sys, time
from pathlib import Path
from joeynmt import config, prediction

options = config.parse_global_args(config.load_config(Path(sys.argv[1])), rank=0, mode="translate")
model, _, _, data = prediction.prepare(options, rank=0, mode="translate")
search = options.test._replace(beam_size=int(sys.argv[2]))

def translated(lines):
    data.reset_cache()
    for line in lines:
        data.set_item(line)
    start = time.perf_counter()
    found = prediction.predict(model, data, options.device, n_gpu=0, args=search, autocast=options.autocast)
    return len(lines), time.perf_counter() - start, found[2]

lines = Path(sys.argv[3]).read_text().splitlines()
translated(lines[:1])  # warms up
for first in range(0, len(lines), search.batch_size):
    print(json.dumps(translated(lines[first : first + search.batch_size])), flush=True)
"""
SCRIPTS = {"train": TRAIN, "translate": TRANSLATE}


class Measured(NamedTuple):
    """What was done in what time."""

    amount: int  # target tokens of training, </s> counted, or sentences
    seconds: float
    outputs: list[str]

    @property
    def speed(self) -> float:
        """The amount per second."""
        return self.amount / self.seconds


@dataclass(frozen=True)
class Run:
    """What the two systems share."""

    recipe: Recipe
    data: Path
    shared: Path  # the folder of tokenizers and tokenized text
    folder: Path
    minutes: float
    threads: int
    lines: list[str]

    @property
    def tokenizers(self) -> tuple[SentencePieceTokenizer, SentencePieceTokenizer]:
        """The tokenizers of the source and the target."""
        source, target = (
            SentencePieceTokenizer((self.shared / name).read_bytes()) for name in ("source.spm", "target.spm")
        )
        return source, target


def say(text: str) -> None:
    """Tell what goes on."""
    print(text, file=sys.stderr, flush=True)


def environment() -> Path:
    """The Python that has JoeyNMT; it is made if it is not there."""
    folder = PEERS / "joeynmt-env"
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        say(f"making {folder}, which takes a few minutes")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            *([*pip, *names] for names in PACKAGES),
        ):
            if subprocess.run(command, check=False).returncode:
                raise ValueError(f"JoeyNMT's environment cannot be made, this failed: {' '.join(command)}")
        ready.touch()
    return python


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


def numbers(sentences: Sequence[Sequence[int]]) -> str:
    """Tokens as lines of ids."""
    return "".join(" ".join(map(str, sentence)) + "\n" for sentence in sentences)


def settings(run: Run) -> dict[str, Any]:
    """The network and its training in JoeyNMT's words."""
    network, training, text = run.recipe.model, run.recipe.training, str(run.shared / "train")
    source, target = (
        {"lang": language, "level": "word", "voc_file": str(run.shared / f"vocabulary.{language}")}
        for language in ("zh", "en")
    )
    layers = {
        "type": "recurrent", "rnn_type": "lstm", "num_layers": LAYERS, "dropout": network.dropout,
        "embeddings": {"embedding_dim": network.embedding, "dropout": network.dropout},
    }  # fmt: skip
    return {
        "name": "zh-en", "model_dir": str(run.folder / "joeynmt"), "use_cuda": False, "random_seed": training.seed,
        # Development pairs must be there, but validation never comes.
        "data": {"train": text, "dev": text, "dataset_type": "plain", "src": source, "trg": target},
        "training": {
            "optimizer": "adamw", "adam_betas": [0.9, 0.999], "learning_rate": training.learning_rate,
            "weight_decay": training.weight_decay, "clip_grad_norm": training.clip_norm, "normalization": "tokens",
            "scheduling": "exponential", "decrease_factor": 1.0,  # a schedule must be there; this is a constant
            "batch_type": "token", "batch_size": training.batch_tokens, "epochs": training.epochs,
            "logging_freq": 10, "validation_freq": 10**9,
        },
        "testing": {
            "beam_alpha": 1.0, "max_output_length": MAX_LENGTH, "batch_size": BATCH, "batch_type": "sentence",
        },
        "model": {
            "embed_initializer": "normal", "embed_init_weight": 1.0,
            "lstm_forget_gate": 0.5,  # of two biases, whose sum is 1 as it is in ours
            "encoder": {**layers, "hidden_size": network.hidden // 2, "bidirectional": True},
            "decoder": {
                **layers, "hidden_size": network.hidden, "hidden_dropout": network.dropout, "attention": "luong",
                "init_hidden": "last", "input_feeding": network.input_feed,
            },
        },
    }  # fmt: skip


def driven(run: Run, name: str, *arguments: object) -> Iterator[list[Any]]:
    """What a script in JoeyNMT's environment reports, line by line."""
    options, errors = run.folder / "joeynmt.yaml", run.folder / f"joeynmt-{name}.log"
    atomic_write(options, json.dumps(settings(run), indent=2).encode())  # JSON is YAML
    # Without -P an `import joeynmt` in the folder of this file would find this file.
    command = [str(environment()), "-P", "-c", SCRIPTS[name], str(options), *map(str, arguments)]
    with (
        errors.open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(run.threads)},
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:  # nobody is there to read the rest
            process.terminate()
            raise
    if process.returncode:
        raise ValueError(f"JoeyNMT failed with status {process.returncode}; {errors} says why")


def train_joeynmt(run: Run) -> Measured:
    """Train JoeyNMT until the time is up."""
    tokens, seconds = 0, 0.0
    for tokens, seconds in driven(run, "train", 60 * run.minutes):
        say(f"{seconds:.0f} s · {tokens / seconds:,.0f} tokens/s")
    if seconds < 60 * run.minutes:
        raise ValueError(f"JoeyNMT stopped after {seconds:.0f} s; {run.folder / 'joeynmt-train.log'} may say why")
    return Measured(tokens, seconds, [])


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


def translate_joeynmt(run: Run, beam_size: int) -> Measured:
    """Translate with JoeyNMT; it does not sort by length, so this does."""
    source, target = run.tokenizers
    tokens = source.encode(run.lines)
    order = sorted(range(len(tokens)), key=lambda index: len(tokens[index]))
    path = run.folder / "joeynmt-lines"
    atomic_write(path, numbers([tokens[index] for index in order]).encode())
    reports = shown(driven(run, "translate", beam_size, path), math.ceil(len(order) / BATCH))
    batches = [Measured(*each) for each in reports]
    texts = [
        target.decode([int(token) for token in output.split() if token.isdecimal()])  # and no <unk>
        for batch in batches
        for output in batch.outputs
    ]
    outputs = [text for _, text in sorted(zip(order, texts, strict=True))]
    return Measured(len(outputs), sum(batch.seconds for batch in batches), outputs)


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


def shown(steps: Iterator[Any], total: int) -> Iterator[Any]:
    """The same steps with a bar, for someone who watches."""
    console = Console(stderr=True)
    yield from track(steps, "translating", total, console=console, transient=True, disable=not console.is_terminal)


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
