"""JoeyNMT in an environment of its own, driven by scripts that report line by line; see joeynmt.py."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import track

from uncurse.models.lstm.network import LAYERS
from uncurse.storage.atomic import atomic_write
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer
from uncurse.training.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "runs" / "peers"
PACKAGES = (  # of JoeyNMT's environment, in this order; constraints.txt has the versions that are not here
    ("torch", "numpy"),
    ("matplotlib", "packaging", "PyYAML", "sacrebleu", "sentencepiece", "tensorboard", "tqdm"),
    ("importlib_metadata==10.2.0", "subword-nmt==0.3.8"),
    ("--no-deps", "joeynmt==2.3.0"),  # it asks for a protobuf that tensorboard does not take any more
)
MAX_LENGTH = 100  # tokens of an output
BATCH = 32  # sentences that are translated together

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


def shown(steps: Iterator[Any], total: int) -> Iterator[Any]:
    """The same steps with a bar, for someone who watches."""
    console = Console(stderr=True)
    yield from track(steps, "translating", total, console=console, transient=True, disable=not console.is_terminal)
