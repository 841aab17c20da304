"""Length predictors on text they have not seen: each kind of text is left out of the fit once, and tested on.

python benchmarks/lengths.py DATA [--pairs 6000] [--hidden 128]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn

from uncurse.arrays import Floats
from uncurse.lengths.predictors import predictor_inputs
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
from uncurse.text.parallel import ParallelFiles, read_parallel
from uncurse.training.data import SentencePairs
from uncurse.training.fit_length import LengthSample, concatenate, fit_length

# By kind: texts to fit to, each with the number of the reference to take, and the text to test on.
KINDS: Final[Mapping[str, tuple[Mapping[str, int], str]]] = {
    "news": ({f"wmt/newstest{year}": 0 for year in (2017, 2018, 2019, 2020)}, "wmt/newstest2020"),
    "UN": ({"un/dev": 0}, "un/dev"),
    "captions": ({"captions/train": 0}, "captions/dev"),
    "Microsoft": ({"msdocs/train": 0}, "msdocs/dev"),
    "Python": ({"pydocs/train": 0}, "pydocs/dev"),
    "Kubernetes": ({"k8sdocs/train": 0}, "k8sdocs/dev"),
    "Bible": ({"bible/train": 2}, "bible/dev"),
    "Tatoeba": ({"tatoeba/train": 0}, "tatoeba/dev"),
}
Predict = Callable[[LengthSample], Floats]


def linear(texts: Sequence[LengthSample]) -> Predict:
    """What the library fits."""
    predictor = fit_length(texts)
    return lambda sample: predictor.predict(sample.source, sample.features)


def with_hidden_layer(texts: Sequence[LengthSample], hidden: int, epochs: int = 6) -> Predict:
    """The paper's network of two layers, by AdamW with dropout."""
    torch.manual_seed(1)
    random, train = np.random.default_rng(1), concatenate(texts)
    share = np.concatenate([np.full(len(text.source), 1 / len(text.source)) for text in texts])
    inputs = predictor_inputs(train.source, train.features)
    mean, scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-6)
    x = torch.from_numpy((inputs - mean) / scale).float()
    ratio = torch.from_numpy(train.target / train.source).float()
    weight = torch.from_numpy(share / share.mean()).float()
    network = nn.Sequential(
        nn.Dropout(0.2),
        nn.Linear(x.shape[1], hidden),
        nn.Tanh(),
        nn.Dropout(0.1),
        nn.Linear(hidden, 1),
        nn.Softplus(),
    )
    optimizer = torch.optim.AdamW(network.parameters(), 4e-3, weight_decay=0.01)
    steps = -(-len(x) // 512)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, epochs * steps)
    for _ in range(epochs):
        for rows in np.array_split(random.permutation(len(x)), steps):
            optimizer.zero_grad()
            error = network(x[rows])[:, 0] - ratio[rows]
            (weight[rows] * error.square()).mean().backward()
            optimizer.step()
            schedule.step()
    network.eval()

    def predict(sample: LengthSample) -> Floats:
        standardised = (predictor_inputs(sample.source, sample.features) - mean) / scale
        with torch.inference_mode():
            ratios: Floats = network(torch.from_numpy(standardised).float())[:, 0].double().numpy()
        return np.maximum(ratios * sample.source, 1.0)

    return predict


def left_out(
    texts: Mapping[str, Sequence[LengthSample]], tests: Mapping[str, LengthSample], fit: Callable[..., Predict]
) -> None:
    """Print error and bias on each kind of text, left out of the fit and part of it."""
    inside = fit([text for each in texts.values() for text in each])
    print("| text | length | left out: error | bias | part of the fit: error | bias |\n|---|--:|--:|--:|--:|--:|")
    for kind, test in tests.items():
        outside = fit([text for name, each in texts.items() if name != kind for text in each])
        cells = []
        for predict in (outside, inside):
            off = predict(test) - test.target
            cells += [f"{np.abs(off).mean():.2f}", f"{off.mean() / test.target.mean():+.1%}"]
        print(f"| {kind} | {test.target.mean():.1f} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Encode every text once, then fit and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="opus-mt-zh-en")
    parser.add_argument("--pairs", type=int, default=6000)
    parser.add_argument("--hidden", type=int, default=0, help="units of a hidden layer; 0: what the library fits")
    given = parser.parse_args()
    loaded = load_model(ModelOptions(given.model))

    def sample(name: str, reference: int) -> LengthSample:
        files = ParallelFiles(f"{name}.zh", (f"{name}.en.{reference}",))
        pairs = SentencePairs(read_parallel([files], given.data), loaded.source, loaded.target, 400)
        return pairs.length_sample(loaded.model, given.pairs)

    texts = {kind: [sample(*text) for text in each.items()] for kind, (each, _) in KINDS.items()}
    tests = {kind: sample(test, 0) for kind, (_, test) in KINDS.items()}
    left_out(
        texts,
        tests,
        (lambda given_texts: with_hidden_layer(given_texts, given.hidden)) if given.hidden else linear,
    )


if __name__ == "__main__":
    main()
