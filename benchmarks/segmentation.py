"""How well lengths are counted and predicted for OPUS-MT: `python benchmarks/segmentation.py SOURCE [--lines N]`.

The model comes without a subword model of its target side, so its greedy outputs are cut into its pieces again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from uncurse.decoding import Decoding
from uncurse.loading import load
from uncurse.text.lines import read_lines
from uncurse.translator import Task


def main() -> None:
    """Print how many pieces come back, and how long outputs were expected to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=400, help="evenly spread over SOURCE")
    options = parser.parse_args()
    if not options.source.exists():
        sys.exit(f"{options.source} is not there: name a file of Chinese sentences")
    translator = load("opus-mt-zh-en", dtype="int8")
    lines = [line for line in read_lines(options.source) if line.strip()]
    chosen = [lines[place] for place in np.linspace(0, len(lines) - 1, min(options.lines, len(lines))).astype(int)]
    own, again, expected = [], [], []
    for each in translator.stream(chosen, Task(Decoding.of(1, "log-prob", "first-finished"))):
        if each.result is not None and each.result.finished and each.predicted is not None:
            own.append(each.result.hypotheses[0].length)
            again.append(len(translator.target_pieces(each.texts[0])) + 1)
            expected.append(each.predicted)
    off = np.array(again) - np.array(own)
    print(
        f"{len(own)} of {len(chosen)} greedy outputs ended: {np.mean(own):.2f} pieces, {np.mean(again):.2f} cut"
        f" again ({off.mean():+.2f}; {np.abs(off).mean():.2f} off on average, {np.mean(off == 0):.0%} the same)\n"
        f"expected: {np.mean(expected):.2f}, {np.mean(expected) / np.mean(own):.2f} × greedy"
    )


if __name__ == "__main__":
    main()
