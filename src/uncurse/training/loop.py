"""The training loop: resumable to the bit, with its log as CSV, TensorBoard events and a plot."""

from __future__ import annotations

import csv
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any, final

import torch
from lightning.fabric import Fabric
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.tensorboard import SummaryWriter

from uncurse.files import write_whole
from uncurse.models.devices import device_of
from uncurse.models.directory import load_folder, save_model
from uncurse.models.lstm import AttentionalLSTM, LSTMShape
from uncurse.models.predictors import LENGTH, save_predictor
from uncurse.text.subwords import Subwords, read_subwords
from uncurse.training.checkpoint import Checkpoint, adam_tensors, load_checkpoint, restore_adam, save_checkpoint
from uncurse.training.data import Batch, Pairs, ParallelText, read_parallel
from uncurse.training.length import fit_length
from uncurse.training.plot import plot_history
from uncurse.training.precision import Precision
from uncurse.training.progress import Progress
from uncurse.training.recipe import Recipe

LOG_COLUMNS = (
    "step",
    "epoch",
    "tokens",
    "train_perplexity",
    "dev_perplexity",
    "learning_rate",
    "tokens_per_second",
)


FITTED_PAIRS = 60_000  # more do not make a length predictor better


class DivergedError(ValueError):
    """The loss is not a number any more."""


@final
class Trainer:
    """One training run in one folder: `last.safetensors`, `best.safetensors`, subword models and the log."""

    def __init__(
        self,
        recipe: Recipe,
        data: Path,
        folder: Path,
        device: str = "cpu",
        precision: Precision = Precision.FLOAT32,
    ) -> None:
        self._plan = recipe.training
        self._recipe = recipe
        self._folder = folder
        train, dev = read_parallel(recipe.data.train, data), read_parallel(recipe.data.dev, data)
        folder.mkdir(parents=True, exist_ok=True)
        self._source, self._target = self._subwords(train)
        self._text = _digest(train, dev, self._source, self._target)
        self._train = Pairs(train, self._source, self._target, self._plan.max_length)
        self._dev = Pairs(dev, self._source, self._target, self._plan.max_length)
        place = device_of(device)
        devices = [place.index] if place.index else 1
        self._fabric = Fabric(accelerator=place.type, devices=devices, precision=precision.fabric)
        torch.manual_seed(self._plan.seed)
        shape = LSTMShape(len(self._source), len(self._target), **asdict(recipe.model))
        self._network = AttentionalLSTM(shape)
        self._names = [name for name, _ in self._network.named_parameters()]
        optimizer = torch.optim.AdamW(
            self._network.parameters(), self._plan.learning_rate, weight_decay=self._plan.weight_decay
        )
        self._model, self._optimizer = self._fabric.setup(self._network, optimizer)
        self._steps_per_epoch = len(self._train.shuffled(self._plan, 1))
        self._step = 0
        self._tokens = 0
        self._best = math.inf
        self._stop = False
        self._resume()

    @property
    def total_steps(self) -> int:
        """How many batches the run has."""
        return self._plan.epochs * self._steps_per_epoch

    def run(self) -> None:
        """Train to the end, or until a signal asks to stop; either way nothing is lost."""
        log = Log(self._folder, self._step)
        shown = Progress(self.total_steps, self._step)
        saved = time.monotonic()
        with self._signals(), shown:
            for epoch, chosen in self._batches():
                loss, tokens = self._learn(self._train.batch(chosen))
                self._step += 1
                self._tokens += tokens
                shown.advance(self._step, epoch, loss, tokens)
                if self._step % self._steps_per_epoch == 0 or self._step % 500 == 0:
                    dev = self.dev_perplexity()
                    if dev < self._best:
                        self._best = dev
                        self._save("best.safetensors", optimizer=False)
                    log.write(self._step, epoch, self._tokens, shown.perplexity, dev, self._rate(), shown.speed)
                    shown.say(
                        f"step {self._step}, epoch {epoch}: dev perplexity {dev:.2f}, train {shown.perplexity:.2f}"
                    )
                if self._stop or time.monotonic() - saved > 60 * self._plan.checkpoint_minutes:
                    self._save("last.safetensors", optimizer=True)
                    saved = time.monotonic()
                if self._stop:
                    raise KeyboardInterrupt
        self._save("last.safetensors", optimizer=True)

    def export(self) -> Path:
        """The best weights so far as a model folder, with a length predictor fitted to them."""
        path = self._folder / "best.safetensors"
        try:
            self._network.load_weights(load_checkpoint(path).tensors)
        except ValueError as error:
            raise ValueError(f"{path} cannot be used: {error}") from error
        folder = self._folder / "model"
        save_model(folder, self._network, self._source, self._target, self._train.ratio, torch.float16)
        loaded = load_folder(folder)
        lengths = self._train.lengths(loaded.model, FITTED_PAIRS)
        save_predictor(folder / LENGTH, fit_length(lengths), loaded.fingerprint)
        return folder

    def dev_perplexity(self) -> float:
        """The perplexity of the development pairs."""
        self._model.eval()
        total, count = 0.0, 0
        with torch.inference_mode():
            for batch in self._dev.in_order(self._plan):
                total += float(self._loss(batch, 0.0))
                count += batch.tokens
        self._model.train()
        return math.exp(min(total / count, 100.0))

    def _learn(self, batch: Batch) -> tuple[float, int]:
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        self._optimizer.zero_grad()
        tokens = batch.tokens
        loss = self._loss(batch, self._plan.label_smoothing) / tokens
        value = float(loss.detach())
        if not math.isfinite(value):
            raise DivergedError(
                f"the loss is {value} at step {self._step + 1}: lower learning_rate; the last checkpoint is intact"
            )
        self._fabric.backward(loss)
        self._fabric.clip_gradients(self._model, self._optimizer, max_norm=self._plan.clip)
        self._optimizer.step()
        return value, tokens

    def _loss(self, batch: Batch, smoothing: float) -> Tensor:
        device = self._fabric.device
        logits = self._model(batch.source.to(device), batch.lengths, batch.target_in.to(device))
        target = batch.target_out.to(device).flatten()
        return cross_entropy(logits.flatten(0, 1), target, reduction="sum", label_smoothing=smoothing)

    def _rate(self) -> float:
        """A straight line up over the warm-up, and a straight line down to nothing after it."""
        step = self._step + 1
        up = step / max(self._plan.warmup, 1)
        down = (self.total_steps - step + 1) / max(self.total_steps - self._plan.warmup, 1)
        return self._plan.learning_rate * min(up, down, 1.0)

    def _batches(self) -> Iterator[tuple[int, list[int]]]:
        """What is left to do, with the number of its epoch."""
        for epoch in range(self._step // self._steps_per_epoch + 1, self._plan.epochs + 1):
            batches = self._train.shuffled(self._plan, epoch)
            if len(batches) != self._steps_per_epoch:  # token-bounded batches differ a little by shuffle
                batches = _fitted(batches, self._steps_per_epoch)
            for chosen in batches[self._step % self._steps_per_epoch :]:
                yield epoch, chosen

    def _subwords(self, text: ParallelText) -> tuple[Subwords, Subwords]:
        plan = self._recipe.subwords
        paths = self._folder / "source.spm", self._folder / "target.spm"
        lines = text.sources, [line for targets in text.targets for line in targets]
        for path, side, size in zip(paths, lines, (plan.source, plan.target), strict=True):
            if not path.exists():
                write_whole(path, Subwords.train(side, size, plan.lowercase).model)
        return read_subwords(paths[0]), read_subwords(paths[1])

    def _facts(self) -> dict[str, Any]:
        return {
            "family": "lstm",
            "shape": asdict(self._network.shape),
            "recipe": sha256(repr(self._recipe).encode()).hexdigest(),
            "text": self._text,
            "ratio": self._train.ratio,
            "step": self._step,
            "tokens": self._tokens,
            "best": self._best if math.isfinite(self._best) else None,
        }

    def _save(self, name: str, optimizer: bool) -> None:
        tensors: dict[str, Tensor] = dict(self._network.named_parameters())
        if optimizer:
            tensors = {**tensors, **adam_tensors(self._optimizer, self._names), "random": torch.get_rng_state()}
        save_checkpoint(self._folder / name, Checkpoint(tensors, self._facts()))

    def _resume(self) -> None:
        path = self._folder / "last.safetensors"
        if not path.exists():
            return
        checkpoint = load_checkpoint(path)
        facts = checkpoint.facts
        if facts.get("recipe") != self._facts()["recipe"]:
            raise ValueError(f"{path} was trained by another recipe: use another folder")
        if facts.get("text", self._text) != self._text:  # once it was not noted
            raise ValueError(f"{path} was trained on other text or subwords: use another folder")
        try:
            self._network.load_weights(checkpoint.tensors)
            restore_adam(self._optimizer, self._names, checkpoint.tensors)
            torch.set_rng_state(checkpoint.tensors["random"])
            self._step, self._tokens, best = (facts[name] for name in ("step", "tokens", "best"))
            if not 0 <= self._step <= self.total_steps:
                raise ValueError(f"step {self._step} is not in this run")
            self._best = math.inf if best is None else float(best)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path} is not a checkpoint of this run: {error}") from error

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def ask(signum: int, frame: FrameType | None) -> None:
            self._stop = True

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _digest(train: ParallelText, dev: ParallelText, *subwords: Subwords) -> str:
    """Identify what is learnt from: the same recipe in the same folder must go on with the same text."""
    digest = sha256()
    for text in (train, dev):
        for source, targets in zip(text.sources, text.targets, strict=True):
            digest.update("\n".join((source, *targets, "")).encode())
        digest.update(b"\n\n")
    for model in subwords:
        digest.update(sha256(model.model).digest())
    return digest.hexdigest()


def _fitted(batches: list[list[int]], count: int) -> list[list[int]]:
    """The same pairs in exactly so many batches: the last ones are joined, or the longest are split."""
    while len(batches) > count:
        last = batches.pop()
        batches[-1] = [*batches[-1], *last]
    while len(batches) < count:
        longest = max(range(len(batches)), key=lambda index: len(batches[index]))
        chosen = batches[longest]
        batches[longest : longest + 1] = [chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]]
    return batches


def read_log(path: Path) -> list[dict[str, str]]:
    """The history of a run."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            rows = list(reader)
        if tuple(reader.fieldnames or ()) != LOG_COLUMNS:
            raise ValueError("its columns are others")
        for row in rows:
            if None in row or not all(math.isfinite(float(each)) for each in row.values()):
                raise ValueError(f"{row} is no line of it")
            int(row["step"])
    except (ValueError, TypeError, csv.Error) as error:
        raise ValueError(f"{path} is damaged; remove it, and the run goes on: {error}") from error
    return rows


@final
class Log:
    """The history of a run as CSV, a plot and TensorBoard events; a resumed run forgets what it will repeat."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / "log.csv"
        history = read_log(self._path) if self._path.exists() else []
        self._rows = [row for row in history if int(row["step"]) <= step]
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, *values: float) -> None:
        """Add a line."""
        self._rows.append({name: f"{value:.6g}" for name, value in zip(LOG_COLUMNS, values, strict=True)})
        for name, value in zip(LOG_COLUMNS[3:], values[3:], strict=True):
            self._events.add_scalar(name, value, int(values[0]))
        self._events.flush()
        lines = [",".join(LOG_COLUMNS), *(",".join(row[name] for name in LOG_COLUMNS) for row in self._rows)]
        write_whole(self._path, ("\n".join(lines) + "\n").encode())
        plot_history(self._path.with_name("perplexity.png"), self._rows)
