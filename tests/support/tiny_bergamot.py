"""Tiny Bergamot models with random weights, as files in Marian's binary format."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from support.tiny_marian import tokenizer_model
from uncurse.arrays import Floats

D_MODEL, INNER, VOCAB_SIZE, HEADS = 16, 24, 23, 2
WEIGHTS, VOCABULARY = "model.xxyy.intgemm.alphas.bin", "vocab.xxyy.spm"
INT8, FLOAT32, INTGEMM8 = 0x0101, 0x0404, 0x4101
CONFIG = f"""\
dec-cell: ssru
dec-depth: 2
dim-vocabs:
  - {VOCAB_SIZE}
  - {VOCAB_SIZE}
enc-depth: 2
input-types: []
right-left: false
tied-embeddings-all: true
transformer-decoder-autoreg: rnn
transformer-ffn-activation: relu
transformer-ffn-depth: 2
transformer-heads: {HEADS}
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-postprocess-top: ""
transformer-preprocess: ""
transformer-train-position-embeddings: false
type: transformer
ulr: false
"""
Item = tuple[int, tuple[int, ...], bytes]  # type, shape, data


def tiny_arrays(seed: int = 1) -> dict[str, Floats]:
    """Weights by Marian's names, [inputs, outputs], exact in int8; `</s>` has a bias, so that outputs end."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, int]] = {"Wemb": (VOCAB_SIZE, D_MODEL)}
    for layer in (1, 2):
        for name in (f"encoder_l{layer}_self", f"decoder_l{layer}_context"):
            shapes |= {f"{name}_W{part}": (D_MODEL, D_MODEL) for part in "qkvo"}
            shapes |= {f"{name}_b{part}": (1, D_MODEL) for part in "qkvo"}
            shapes |= {f"{name}_Wo_ln_{part}": (1, D_MODEL) for part in ("scale", "bias")}
        for side in ("encoder", "decoder"):
            name = f"{side}_l{layer}_ffn"
            shapes |= {f"{name}_W1": (D_MODEL, INNER), f"{name}_W2": (INNER, D_MODEL)}
            shapes |= {f"{name}_b1": (1, INNER), f"{name}_b2": (1, D_MODEL)}
            shapes |= {f"{name}_ffn_ln_{part}": (1, D_MODEL) for part in ("scale", "bias")}
        name = f"decoder_l{layer}_rnn"
        shapes |= {f"{name}_W": (D_MODEL, D_MODEL), f"{name}_Wf": (D_MODEL, D_MODEL), f"{name}_bf": (1, D_MODEL)}
        shapes |= {f"{name}_ffn_ln_{part}": (1, D_MODEL) for part in ("scale", "bias")}
    arrays = {}
    for name, shape in shapes.items():
        if shape[0] > 1:
            arrays[name] = random.integers(-127, 128, shape) / 100.0
        else:
            arrays[name] = np.float32(random.normal(0.0, 0.1, shape) + name.endswith("scale")).astype(float)
    bias = random.normal(0.0, 1.0, (1, VOCAB_SIZE))
    bias[0, 2] += 2.0
    return arrays | {"decoder_ff_logit_out_b": np.float32(bias).astype(float)}


def tiny_items(seed: int = 1, config: str = CONFIG) -> dict[str, Item]:
    """What a file holds."""
    items: dict[str, Item] = {}
    for name, array in tiny_arrays(seed).items():
        if len(array) == 1:
            items[name] = FLOAT32, array.shape, array.astype("<f4").tobytes()
            continue
        stored = array if name == "Wemb" else array.T
        data = np.rint(stored * 100.0).astype(np.int8).tobytes() + struct.pack("<f", 100.0)
        items[name] = INTGEMM8, array.shape, data + bytes(252)
        items[f"{name}_QuantMultA"] = FLOAT32, (1, 1), struct.pack("<f", 12.5) + bytes(252)
    text = config.encode() + b"\0"
    return items | {"special:model.yml": (INT8, (len(text),), text)}


def marian_file(items: dict[str, Item]) -> bytes:
    """A file of binary version 1."""
    names = [name.encode() + b"\0" for name in items]
    headers = [
        struct.pack("<4Q", len(name), kind, len(shape), len(data))
        for name, (kind, shape, data) in zip(names, items.values(), strict=True)
    ]
    shapes = [struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in items.values()]
    head = struct.pack("<QQ", 1, len(items)) + b"".join((*headers, *names, *shapes))
    gap = -(len(head) + 8) % 256
    return head + struct.pack("<Q", gap) + bytes(gap) + b"".join(data for _, _, data in items.values())


def write_bergamot(folder: Path, seed: int = 1) -> None:
    """Write a folder with a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WEIGHTS).write_bytes(marian_file(tiny_items(seed)))
    (folder / VOCABULARY).write_bytes(tokenizer_model())
