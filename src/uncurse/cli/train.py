"""`uncurse train`: a recipe in, a model out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uncurse.training.precision import Precision


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe; see recipes/.")],
    out: Annotated[Path, typer.Option(help="The folder of the run: checkpoints, log and, at the end, the model.")],
    data: Annotated[Path, typer.Option(help="Where the recipe's text files are.")] = Path(),
    device: Annotated[
        str, typer.Option(help="cpu, cuda or mps; of several processes each has a GPU of its own.")
    ] = "cpu",
    precision: Annotated[
        Precision, typer.Option(help="bfloat16 is faster where the hardware has it (AVX512-BF16, AMX, GPUs).")
    ] = Precision.FLOAT32,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 leaves it to PyTorch.")] = 0,
) -> None:
    """Train a translator. A run that was interrupted goes on where it was, to the same weights.

    Several processes train as one: torchrun --nproc-per-node 2 -m uncurse train ...
    """
    import torch

    from uncurse.training.loop import Trainer
    from uncurse.training.processes import joined
    from uncurse.training.recipe import read_recipe

    if threads:
        torch.set_num_threads(threads)
    with joined(device) as processes:
        trainer = Trainer(read_recipe(recipe), data, out, precision, processes)
        trainer.run()
        if processes.first:
            folder = trainer.export()
            typer.echo(f"the model is in {folder}; try: uncurse translate --model {folder}")
