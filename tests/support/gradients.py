"""The gradients that each process of a run has after a batch; a module of its own, so that it can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from uncurse.training.distributed import ProcessGroup, init_distributed
from uncurse.training.loop import Trainer
from uncurse.training.recipe import read_recipe

# A batch of the run, one whose halves differ in length, and one with fewer pairs than there are processes.
BATCHES = (tuple(range(32)), (0, 1, 2, 3, 4, 5, 6), (9,))


def gradients(recipe: Path, folder: Path, processes: ProcessGroup) -> dict[str, torch.Tensor]:
    """The gradients after each of the batches, the losses, the development perplexity and the last seed."""
    trainer = Trainer(read_recipe(recipe), recipe.parent, folder, processes=processes)
    found = {}
    for index, chosen in enumerate(BATCHES):
        loss, _ = trainer.compute_gradients(chosen)
        for name, parameter in trainer.network.named_parameters():
            assert parameter.grad is not None
            found[f"{index}.{name}"] = parameter.grad.clone()
        found[f"{index}.loss"] = torch.tensor([loss])
    found["dev"] = torch.tensor([trainer.dev_perplexity()], dtype=torch.float64)
    found["seed"] = torch.tensor([torch.initial_seed()])
    return found


@dataclass(frozen=True)
class SaveGradients:
    """The work of one process."""

    recipe: Path
    folder: Path

    def __call__(self) -> None:
        with init_distributed("cpu") as processes:
            found = gradients(self.recipe, self.folder / "run", processes)
            save_file(found, self.folder / f"{processes.rank}.safetensors")
