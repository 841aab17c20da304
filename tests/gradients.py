"""What processes that train together have after a batch; a module of its own, so that it can be sent to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from uncurse.training.loop import Trainer
from uncurse.training.processes import Processes, joined
from uncurse.training.recipe import read_recipe

# A batch of the run, one whose halves differ in length, and one with fewer pairs than there are processes.
BATCHES = (tuple(range(32)), (0, 1, 2, 3, 4, 5, 6), (9,))


def gradients(recipe: Path, folder: Path, processes: Processes) -> dict[str, torch.Tensor]:
    """What a process has after each of the batches, and a few numbers beside it."""
    trainer = Trainer(read_recipe(recipe), recipe.parent, folder, processes=processes)
    found = {}
    for index, chosen in enumerate(BATCHES):
        loss, _ = trainer._gradients(chosen)
        for name, parameter in trainer._network.named_parameters():
            assert parameter.grad is not None
            found[f"{index}.{name}"] = parameter.grad.clone()
        found[f"{index}.loss"] = torch.tensor([loss])
    found["dev"] = torch.tensor([trainer.dev_perplexity()], dtype=torch.float64)
    found["seed"] = torch.tensor([torch.initial_seed()])
    return found


@dataclass(frozen=True)
class Gradients:
    """The work of one process."""

    recipe: Path
    folder: Path

    def __call__(self) -> None:
        with joined("cpu") as processes:
            found = gradients(self.recipe, self.folder / "run", processes)
            save_file(found, self.folder / f"{processes.rank}.safetensors")
