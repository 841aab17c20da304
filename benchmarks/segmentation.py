"""How well the ranked tokenizer counts tokens for OPUS-MT: `python benchmarks/segmentation.py SOURCE [--lines N]`.

The model comes without a tokenizer of its target side. Greedy outputs are tokenized again by a `RankedTokenizer`,
and the number of tokens is compared with what the model produced and with what the length predictor expected.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import uncurse
from uncurse.scoring.decoding import Decoding
from uncurse.text.lines import read_lines
from uncurse.translation.options import TranslationOptions


def main() -> None:
    """Print how many tokens there are the second time, and how long outputs were expected to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--lines", type=int, default=400, help="evenly spread over SOURCE")
    options = parser.parse_args()
    if not options.source.exists():
        sys.exit(f"{options.source} is not there: name a file of Chinese sentences")
    translator = uncurse.load("opus-mt-zh-en", dtype="int8")
    lines = [line for line in read_lines(options.source) if line.strip()]
    chosen = [lines[index] for index in np.linspace(0, len(lines) - 1, min(options.lines, len(lines))).astype(int)]
    own, again, expected = [], [], []
    for each in translator.stream(chosen, TranslationOptions(Decoding(1, "log-prob", "first-finished"))):
        if each.result is not None and each.result.finished and each.expected_length is not None:
            own.append(each.result.hypotheses[0].length)
            again.append(len(translator.encode_target(each.text)) + 1)
            expected.append(each.expected_length)
    off = np.array(again) - np.array(own)
    print(
        f"{len(own)} of {len(chosen)} greedy outputs ended: {np.mean(own):.2f} tokens, {np.mean(again):.2f} when"
        f" tokenized again ({off.mean():+.2f}; {np.abs(off).mean():.2f} off on average,"
        f" {np.mean(off == 0):.0%} the same)\n"
        f"expected length: {np.mean(expected):.2f}, {np.mean(expected) / np.mean(own):.2f} × greedy"
    )


if __name__ == "__main__":
    main()
