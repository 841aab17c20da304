"""The training loop, in one process or several; an interrupted run resumes to the same weights, bit for bit."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from uncurse.errors import UncurseError
from uncurse.models.lstm.network import AttentionalLSTM, LSTMShape
from uncurse.signals import handle_signals
from uncurse.training.checkpoint import Checkpoint, adam_tensors, restore_adam
from uncurse.training.distributed import SINGLE_PROCESS, LostProcessError, ProcessGroup
from uncurse.training.environment import current_environment, environment_changes
from uncurse.training.export import export_model
from uncurse.training.loss import batch_loss
from uncurse.training.precision import Precision
from uncurse.training.progress import TrainingProgress, training_progress
from uncurse.training.recipe import Recipe
from uncurse.training.run_folder import BEST, LAST, RunFolder, RunMetadata
from uncurse.training.schedule import Schedule
from uncurse.training.training_data import TrainingData, load_training_data

EVALUATION_STEPS: Final = 500  # the development pairs are scored this often, and at the end of each epoch
MAX_LOG: Final = 100.0  # the logarithm of the largest perplexity that is reported


class DivergedError(UncurseError):
    """The loss or the gradient is no longer finite."""


@final
class Trainer:
    """One training run in one folder, or this process's part in it."""

    def __init__(
        self,
        recipe: Recipe,
        data: Path,
        folder: Path,
        precision: Precision = Precision.FLOAT32,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        environment = current_environment(processes.device, precision)
        processes.require_same(repr(environment), "versions, kind of CPU and precision")
        self._config = recipe.training
        self._processes = processes
        self._precision = precision
        self._folder = RunFolder(folder, processes)
        self._data = load_training_data(recipe, data, self._folder, processes)
        self.network = _initial_network(recipe, self._data).to(processes.device)
        self._optimizer = torch.optim.AdamW(
            self.network.parameters(),
            self._config.learning_rate,
            weight_decay=self._config.weight_decay,
            fused=True,  # one pass over the parameters instead of ten
        )
        self.schedule = Schedule(self._data.train, self._config)
        self._stop = False
        self._metadata = RunMetadata(
            recipe=sha256(repr(recipe).encode()).hexdigest(),
            data=self._data.fingerprint,
            processes=processes.size,
            environment={**environment, "threads": str(torch.get_num_threads())},
        )
        self._resume()

    def run(self) -> None:
        """Train to the end, or until a signal asks to stop; either way a checkpoint is saved."""
        with self._folder.lock(), handle_signals(self._ask_to_stop, signal.SIGINT, signal.SIGTERM):
            self._run()

    def _run(self) -> None:
        log = self._folder.log(self._metadata.step)
        saved = time.monotonic()
        with training_progress(
            self.schedule.total_steps, self._metadata.step, self._processes.is_rank_zero
        ) as progress:
            if 0 < self._metadata.step < self.schedule.total_steps:
                progress.print(f"resuming at step {self._metadata.step} of {self.schedule.total_steps}")
            if self._changes:
                progress.print(f"{self._changes}: weights may round differently from those of an unbroken run")
            for epoch, chosen in self.schedule.batches_from(self._metadata.step):
                stop = self.train_step(chosen)
                step = self._metadata.step
                progress.advance(step, epoch, self.perplexity, self._data.train.target_tokens(chosen))
                if step % self.schedule.steps_per_epoch == 0 or step % EVALUATION_STEPS == 0:
                    dev = self._evaluate(epoch, progress)
                    if log is not None:
                        tokens, rate = self._metadata.tokens, self.schedule.learning_rate(step)
                        log.write(step, epoch, tokens, self.perplexity, dev, rate, progress.speed)
                if stop or time.monotonic() - saved > 60 * self._config.checkpoint_minutes:
                    self._folder.save(LAST, self._checkpoint())
                    saved = time.monotonic()
                if stop:
                    self._processes.barrier()  # a launcher ends all processes once one has ended
                    raise KeyboardInterrupt
        self._folder.save(LAST, self._checkpoint())

    def _evaluate(self, epoch: int, progress: TrainingProgress) -> float:
        """Score the development pairs, and keep the weights if they are the best so far."""
        dev = self.dev_perplexity()
        if self._metadata.best is None or dev < self._metadata.best:
            self._metadata = replace(self._metadata, best=dev)
            self._folder.save(BEST, self._metadata.checkpoint(self._weights()))
        progress.print(
            f"step {self._metadata.step}, epoch {epoch}: dev perplexity {dev:.2f}, train {self.perplexity:.2f}"
        )
        return dev

    def export(self) -> Path:
        """Write the best weights as a model folder, with a length predictor fitted to them."""
        return export_model(self._folder, self.network, self._data)

    @property
    def perplexity(self) -> float:
        """The training perplexity, averaged over the last few hundred batches."""
        return math.nan if self._metadata.loss is None else math.exp(min(self._metadata.loss, MAX_LOG))

    def dev_perplexity(self) -> float:
        """The perplexity of the development pairs, the same to the bit for any number of processes."""
        self.network.eval()
        batches = self._data.dev.sorted_batches(self._config)
        losses = torch.zeros(len(batches), dtype=torch.float64)  # one process fills each; the others leave 0
        with torch.inference_mode():
            for index in self._processes.share(range(len(batches))):
                losses[index] = float(
                    batch_loss(self.network, self._data.dev.batch(batches[index]), self._precision, 0.0)
                )
        self.network.train()
        self._processes.all_reduce_sum([losses])
        tokens = sum(self._data.dev.target_tokens(chosen) for chosen in batches)
        return math.exp(min(math.fsum(losses.tolist()) / tokens, MAX_LOG))

    def train_step(self, chosen: Sequence[int]) -> bool:
        """Update the weights with one batch; whether any process was asked to stop."""
        try:
            loss, stop = self.compute_gradients(chosen)
        except LostProcessError:
            self._folder.save(LAST, self._checkpoint())  # no weight has changed since the last step
            raise
        before = self._metadata
        norm = float(clip_grad_norm_(self.network.parameters(), self._config.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise DivergedError(
                f"the loss is {loss} and the norm of its gradient {norm} at step {before.step + 1}: lower"
                " learning_rate; the last checkpoint is intact"
            )
        for group in self._optimizer.param_groups:
            group["lr"] = self.schedule.learning_rate(before.step)
        self._optimizer.step()
        self._metadata = replace(
            before,
            step=before.step + 1,
            tokens=before.tokens + self._data.train.target_tokens(chosen),
            loss=loss if before.loss is None else 0.99 * before.loss + 0.01 * loss,
        )
        return stop

    def compute_gradients(self, chosen: Sequence[int]) -> tuple[float, bool]:
        """Set the gradients of a batch; its loss per token, and whether any process was asked to stop.

        Each share's loss is divided by the tokens of the whole batch, so that the sums over all processes are the
        gradients of one process that does the whole batch.
        """
        torch.manual_seed(dropout_seed(self._config.seed, self._metadata.step, self._processes.rank))
        self._optimizer.zero_grad()
        loss = torch.zeros((), device=self._processes.device)
        if share := self._processes.share(chosen):  # a batch may have fewer pairs than there are processes
            total = batch_loss(
                self.network, self._data.train.batch(share), self._precision, self._config.label_smoothing
            )
            loss = total / self._data.train.target_tokens(chosen)
            loss.backward()  # type: ignore[no-untyped-call]
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self.network.parameters()
        ]
        loss_and_stop = torch.stack((loss.detach(), loss.new_tensor(float(self._stop))))
        self._processes.all_reduce_sum([*gradients, loss_and_stop])
        for parameter, gradient in zip(self.network.parameters(), gradients, strict=True):
            parameter.grad = gradient
        value, stop = loss_and_stop.tolist()
        return value, stop > 0

    def _weights(self) -> dict[str, Tensor]:
        return dict(self.network.named_parameters())

    def _checkpoint(self) -> Checkpoint:
        weights = self._weights()
        return self._metadata.checkpoint({**weights, **adam_tensors(self._optimizer, list(weights))})

    def _resume(self) -> None:
        weights = self._weights()
        checkpoint, metadata = self._folder.last_or_first(weights, self._metadata)
        try:
            if not 0 <= metadata.step <= self.schedule.total_steps:
                raise UncurseError(f"step {metadata.step} is not one of the {self.schedule.total_steps} steps")
            self.network.load_weights(checkpoint.tensors)
            restore_adam(self._optimizer, list(weights), checkpoint.tensors)
        except UncurseError as error:
            raise UncurseError(f"{self._folder.path / LAST} is not a checkpoint of this run: {error}") from error
        self._changes = environment_changes(metadata.environment, self._metadata.environment)
        self._metadata = replace(metadata, environment=self._metadata.environment)

    def _ask_to_stop(self, _: int) -> None:
        self._stop = True


def _initial_network(recipe: Recipe, data: TrainingData) -> AttentionalLSTM:
    torch.manual_seed(recipe.training.seed)
    config = recipe.model
    shape = LSTMShape(
        source_vocab_size=len(data.source),
        target_vocab_size=len(data.target),
        embedding=config.embedding,
        hidden=config.hidden,
        dropout=config.dropout,
        input_feed=config.input_feed,
        tied=config.tied,
    )
    if data.initial is None:
        return AttentionalLSTM(shape)
    found = replace(data.initial.network.shape, dropout=config.dropout)
    tokens, planned = (len(data.source), len(data.target)), (recipe.tokenizer.source, recipe.tokenizer.target)
    if found != shape or tokens != planned:
        raise UncurseError(f"{config.finetune_from} has other sizes than the recipe: {found}")
    network = AttentionalLSTM(shape)
    network.load_weights(data.initial.network.state_dict())
    return network


def dropout_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a step in one process: dropout then depends on nothing that a checkpoint would have to hold."""
    return int(np.random.SeedSequence((seed, step, rank)).generate_state(1)[0])
