"""The C++ kernels beside PyTorch's: `python benchmarks/kernels.py [--threads 1]`.

The output layer of a model with 65,001 tokens, and a linear layer from 512 to 2048, in int8 and float32. Times are
CPU time, the least of several calls, so that other programs on the machine disturb them little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from uncurse.models.transformer.linear import ComputeType, LinearInput, make_linear
from uncurse.models.transformer.native.library import Library, available_instruction_sets, describe, load_library
from uncurse.models.transformer.native.network import PackedLayer, address
from uncurse.models.transformer.output_layer import OutputLayer
from uncurse.models.transformer.quantization import Weight

INPUTS = 512
VOCAB_SIZE, INNER = 65001, 2048
BEST = 21  # tokens of each row
ROWS = (1, 5, 20, 80, 320)
CALLS = 7


def least(call: Callable[[], object]) -> float:
    """The least CPU time of a call, in milliseconds."""
    spent = []
    for _ in range(CALLS):
        start = time.process_time()
        call()
        spent.append(time.process_time() - start)
    return 1e3 * min(spent)


def top_k(library: Library, packed: PackedLayer, rows: torch.Tensor) -> Callable[[], object]:
    """A call of the output layer."""
    tokens, log_probs = np.empty((len(rows), BEST), dtype=np.int64), np.empty((len(rows), BEST))
    return lambda: library.top_k(
        packed.pointer,
        torch.get_num_threads(),
        len(rows),
        rows.data_ptr(),
        BEST,
        address(tokens),
        address(log_probs),
    )


def linear(library: Library, packed: PackedLayer, rows: torch.Tensor) -> Callable[[], object]:
    """A call of a linear layer."""
    out = np.empty((len(rows), packed.outputs), dtype=np.float32)
    return lambda: library.linear(
        packed.pointer, torch.get_num_threads(), len(rows), rows.data_ptr(), 0, address(out)
    )


def main() -> None:
    """Print a table for each compute type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    console, random = Console(width=120), torch.Generator().manual_seed(1)
    console.print(describe(), highlight=False)
    output, inner = (Weight(torch.randn(size, INPUTS, generator=random)) for size in (VOCAB_SIZE, INNER))
    bias = torch.randn(VOCAB_SIZE, generator=random).sort(descending=True).values  # frequent tokens come first
    for compute_type in (ComputeType.INT8, ComputeType.FLOAT32):
        int8 = compute_type is ComputeType.INT8
        layer, reference = OutputLayer(output, bias, compute_type), make_linear(inner, None, compute_type)
        table = Table(title=f"{compute_type}: ms of CPU time by rows, output layer / linear layer")
        for column in ("", *map(str, ROWS)):
            table.add_column(column, justify="right")
        inputs = [torch.randn(rows, INPUTS, generator=random) for rows in ROWS]
        cells = []
        for rows in inputs:
            one, two = (lambda: layer.top_k(rows, BEST)), (lambda: reference(LinearInput(rows)))  # noqa: B023
            cells.append(f"{least(one):.1f} / {least(two):.2f}")
        table.add_row("PyTorch", *cells)
        for name in available_instruction_sets():
            library = load_library(name)
            packed = PackedLayer(library, output, bias, int8), PackedLayer(library, inner, None, int8)
            table.add_row(
                name,
                *(
                    f"{least(top_k(library, packed[0], rows)):.1f} / {least(linear(library, packed[1], rows)):.2f}"
                    for rows in inputs
                ),
            )
        console.print(table)


if __name__ == "__main__":
    main()
