"""The training loop, in one process or several: resumable to the bit."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from uncurse.models.directory import load_folder, save_model
from uncurse.models.lstm import AttentionalLSTM, LSTMShape
from uncurse.models.predictors import LENGTH, save_predictor
from uncurse.signals import answered
from uncurse.text.subwords import Subwords
from uncurse.training.checkpoint import Checkpoint, adam_tensors, load_checkpoint, restore_adam
from uncurse.training.data import Batch, Pairs, ParallelText, read_parallel
from uncurse.training.length import fit_length
from uncurse.training.precision import Precision
from uncurse.training.processes import ALONE, LostProcessError, Processes
from uncurse.training.progress import Progress
from uncurse.training.recipe import Recipe
from uncurse.training.run_folder import BEST, LAST, RunFolder

FITTED_PAIRS = 60_000  # more do not make a length predictor better


class DivergedError(ValueError):
    """The loss is not a number any more."""


def trains_in_bfloat16(device: torch.device) -> bool:
    """Whether it can be done there, found out by doing it: CPUs without AVX-512 have no such LSTM."""
    try:
        with torch.autocast(device.type, torch.bfloat16):
            nn.LSTM(8, 8, device=device)(torch.zeros(1, 1, 8, device=device))
    except RuntimeError:
        return False
    return True


@final
class Trainer:
    """One training run in one folder, or this process's part in it."""

    def __init__(
        self,
        recipe: Recipe,
        data: Path,
        folder: Path,
        precision: Precision = Precision.FLOAT32,
        processes: Processes = ALONE,
    ) -> None:
        self._plan = recipe.training
        self._recipe = recipe
        self._folder = RunFolder(folder, processes)
        self._processes = processes
        train, dev = read_parallel(recipe.data.train, data), read_parallel(recipe.data.dev, data)
        self._text = train.fingerprint + dev.fingerprint
        self._agree()
        self._source, self._target = self._subwords(train)
        subwords = self._source.model + self._target.model
        self._text = sha256(self._text.encode() + subwords).hexdigest()
        self._train = Pairs(train, self._source, self._target, self._plan.max_length)
        self._dev = Pairs(dev, self._source, self._target, self._plan.max_length)
        place = processes.device
        if precision is Precision.BFLOAT16 and not trains_in_bfloat16(place):
            raise ValueError(
                f"precision {precision.value!r} is not allowed: LSTMs cannot train in it on this {place}"
            )
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
        self._recent: float | None = None  # the loss of the last few hundred batches
        self._best = math.inf
        self._stop = False
        self._resume()

    @property
    def total_steps(self) -> int:
        """How many batches the run has."""
        return self._plan.epochs * self._steps_per_epoch

    def run(self) -> None:
        """Train to the end, or until a signal asks to stop; either way nothing is lost."""
        with self._folder.held(), answered(self._ask_to_stop, signal.SIGINT, signal.SIGTERM):
            self._run()

    def _run(self) -> None:
        log = self._folder.log(self._step)
        saved = time.monotonic()
        with Progress(self.total_steps, self._step, shown=self._processes.first) as shown:
            for epoch, chosen in self._batches():
                stop = self._learn(chosen)
                shown.advance(self._step, epoch, self.perplexity, self._train.tokens(chosen))
                if self._step % self._steps_per_epoch == 0 or self._step % 500 == 0:
                    dev = self.dev_perplexity()
                    if dev < self._best:
                        self._best = dev
                        self._folder.save(BEST, Checkpoint(self._weights(), self._facts()))
                    if log is not None:
                        log.write(self._step, epoch, self._tokens, self.perplexity, dev, self._rate(), shown.speed)
                    shown.say(
                        f"step {self._step}, epoch {epoch}: dev perplexity {dev:.2f}, train {self.perplexity:.2f}"
                    )
                if stop or time.monotonic() - saved > 60 * self._plan.checkpoint_minutes:
                    self._folder.save(LAST, self._checkpoint())
                    saved = time.monotonic()
                if stop:
                    self._processes.wait()  # a launcher ends all when one has ended
                    raise KeyboardInterrupt
        self._folder.save(LAST, self._checkpoint())

    def export(self) -> Path:
        """The best weights so far as a model folder, with a length predictor fitted to them."""
        path = self._folder.path / BEST
        try:
            self._network.load_weights(load_checkpoint(path).tensors)
        except ValueError as error:
            raise ValueError(f"{path} cannot be used: {error}") from error
        folder = self._folder.model
        save_model(folder, self._network, self._source, self._target, self._train.ratio, torch.float16)
        loaded = load_folder(folder)
        lengths = self._train.lengths(loaded.model, FITTED_PAIRS)
        save_predictor(folder / LENGTH, fit_length(lengths), loaded.fingerprint)
        return folder

    @property
    def perplexity(self) -> float:
        """The perplexity of the last few hundred batches."""
        return math.nan if self._recent is None else math.exp(min(self._recent, 100.0))

    def dev_perplexity(self) -> float:
        """The perplexity of the development pairs, the same to the bit however many processes share them."""
        self._model.eval()
        batches = self._dev.in_order(self._plan)
        losses = torch.zeros(len(batches), dtype=torch.float64)  # each by one process, and zero from the others
        with torch.inference_mode():
            for index in self._processes.share(range(len(batches))):
                losses[index] = float(self._loss(self._dev.batch(batches[index]), 0.0))
        self._model.train()
        self._processes.add_up([losses])
        count = sum(self._dev.tokens(chosen) for chosen in batches)
        return math.exp(min(math.fsum(losses.tolist()) / count, 100.0))

    def _learn(self, chosen: Sequence[int]) -> bool:
        """Take one step; whether a process was told to stop."""
        try:
            loss, stop = self._gradients(chosen)
        except LostProcessError:
            self._folder.save(LAST, self._checkpoint())  # no weight has changed since the last step
            raise
        norm = float(clip_grad_norm_(self._network.parameters(), self._plan.clip))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise DivergedError(
                f"the loss is {loss} and its gradient {norm} at step {self._step + 1}: lower learning_rate;"
                " the last checkpoint is intact"
            )
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        self._optimizer.step()
        self._step += 1
        self._tokens += self._train.tokens(chosen)
        self._recent = loss if self._recent is None else 0.99 * self._recent + 0.01 * loss
        return stop

    def _gradients(self, chosen: Sequence[int]) -> tuple[float, bool]:
        """Leave the gradient of a batch in the weights; its loss by token, and whether a process was told to stop.

        The loss of every share is divided by the tokens of the whole batch, not of the share: the sums over all
        processes are then what one process would have.
        """
        torch.manual_seed(chance(self._plan.seed, self._step, self._processes.rank))
        self._optimizer.zero_grad()
        loss = torch.zeros((), device=self._fabric.device)
        if share := self._processes.share(chosen):  # a batch may have fewer pairs than there are processes
            loss = self._loss(self._train.batch(share), self._plan.label_smoothing) / self._train.tokens(chosen)
            self._fabric.backward(loss)
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self._network.parameters()
        ]
        facts = torch.stack((loss.detach(), loss.new_tensor(float(self._stop))))
        self._processes.add_up([*gradients, facts])
        for parameter, gradient in zip(self._network.parameters(), gradients, strict=True):
            parameter.grad = gradient
        value, told = facts.tolist()
        return value, told > 0

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

    def _agree(self) -> None:
        """Processes that learn from other text than the first are an error, not a worse model."""
        mine = (self._text + repr(self._recipe)).encode()
        if self._processes.from_first(mine) != mine:
            raise ValueError(f"process {self._processes.rank} has other text or another recipe than the first one")

    def _subwords(self, text: ParallelText) -> tuple[Subwords, Subwords]:
        plan = self._recipe.subwords
        targets = [line for targets in text.targets for line in targets]
        return (
            self._folder.subwords("source.spm", lambda: Subwords.train(text.sources, plan.source, plan.lowercase)),
            self._folder.subwords("target.spm", lambda: Subwords.train(targets, plan.target, plan.lowercase)),
        )

    def _facts(self) -> dict[str, Any]:
        return {
            "family": "lstm",
            "shape": asdict(self._network.shape),
            "recipe": sha256(repr(self._recipe).encode()).hexdigest(),
            "text": self._text,
            "processes": self._processes.count,
            "ratio": self._train.ratio,
            "step": self._step,
            "tokens": self._tokens,
            "loss": self._recent,
            "best": self._best if math.isfinite(self._best) else None,
        }

    def _weights(self) -> dict[str, Tensor]:
        return dict(self._network.named_parameters())

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint({**self._weights(), **adam_tensors(self._optimizer, self._names)}, self._facts())

    def _resume(self) -> None:
        checkpoint = self._folder.begin(self._checkpoint())
        facts = checkpoint.facts
        try:
            self._network.load_weights(checkpoint.tensors)
            restore_adam(self._optimizer, self._names, checkpoint.tensors)
            self._step, self._tokens, best = (facts[name] for name in ("step", "tokens", "best"))
            if not 0 <= self._step <= self.total_steps:
                raise ValueError(f"step {self._step} is not in this run")
            self._recent = facts.get("loss")
            self._best = math.inf if best is None else float(best)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{self._folder.path / LAST} is not a checkpoint of this run: {error}") from error

    def _ask_to_stop(self, _: int) -> None:
        self._stop = True


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


def chance(seed: int, step: int, rank: int) -> int:
    """Where the random numbers of a step begin: what is dropped depends on nothing that would have to be saved."""
    return int(np.random.SeedSequence((seed, step, rank)).generate_state(1)[0])
