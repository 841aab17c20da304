"""`uncurse train`: a recipe in, a model out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uncurse.cli.options import Threads, use_threads
from uncurse.errors import UncurseError, needs_extra
from uncurse.training.precision import Precision


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe; see recipes/.")],
    out: Annotated[Path, typer.Option(help="The folder of the run: checkpoints, log and, at the end, the model.")],
    data: Annotated[Path, typer.Option(help="The folder of the text files that the recipe names.")] = Path(),
    device: Annotated[
        str, typer.Option(help="cpu, cuda or mps; with torchrun, each process has its own GPU.")
    ] = "cpu",
    precision: Annotated[
        Precision, typer.Option(help="bfloat16 is faster where the hardware has it (AVX512-BF16, AMX, GPUs).")
    ] = Precision.FLOAT32,
    threads: Threads = 0,
    export: Annotated[
        bool, typer.Option("--export", help="Do not train: write the best weights of the run so far as a model.")
    ] = False,
) -> None:
    """Train a translator. The same command resumes an interrupted run, to the same weights.

    Several processes train as one: torchrun --nproc-per-node 2 -m uncurse train ...
    """
    with needs_extra("train"):
        from uncurse.training.distributed import init_distributed
        from uncurse.training.loop import Trainer
        from uncurse.training.recipe import read_recipe
        from uncurse.training.run_folder import BEST

    if export and not (out / BEST).exists():
        raise UncurseError(f"{out} has no weights to export: a run saves the first in {BEST} after some steps")
    use_threads(threads)
    with init_distributed(device) as processes:
        trainer = Trainer(read_recipe(recipe), data, out, precision, processes)
        if not export:
            trainer.run()
        if processes.is_rank_zero:
            folder = trainer.export()
            typer.echo(f"the model is in {folder}; try: uncurse translate --model {folder}")
