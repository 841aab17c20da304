"""The batch and the learning rate of every step of a run, both known before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from uncurse.training.data import SentencePairs, with_batch_count
from uncurse.training.recipe import TrainingConfig


@final
class Schedule:
    """The steps of a run. They depend on pairs and recipe alone, so a checkpoint need only hold the next step."""

    def __init__(self, pairs: SentencePairs, config: TrainingConfig) -> None:
        self._pairs = pairs
        self._config = config
        self.steps_per_epoch = len(pairs.shuffled_batches(config, 1))
        self.total_steps = config.epochs * self.steps_per_epoch

    def learning_rate(self, step: int) -> float:
        """The rate of a step, counted from 0: linear warm-up, then linear decay to 0."""
        warmup = self._config.warmup_steps
        rising = (step + 1) / max(warmup, 1)
        falling = (self.total_steps - step) / max(self.total_steps - warmup, 1)
        return self._config.learning_rate * min(rising, falling, 1.0)

    def batches_from(self, step: int) -> Iterator[tuple[int, list[int]]]:
        """The batches of the remaining steps, each with the number of its epoch, counted from 1."""
        epochs_done, done = divmod(step, self.steps_per_epoch)
        for epoch in range(epochs_done + 1, self._config.epochs + 1):
            batches = with_batch_count(self._pairs.shuffled_batches(self._config, epoch), self.steps_per_epoch)
            for chosen in batches[done:]:
                yield epoch, chosen
            done = 0
