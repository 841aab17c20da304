"""Tiny Marian Transformers with random weights, in memory and as CTranslate2 folders."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray

from uncurse.models.transformer.ctranslate2_file import SHARED
from uncurse.models.transformer.huggingface_file import save_marian
from uncurse.models.transformer.positions import sinusoidal_positions
from uncurse.models.transformer.quantization import Weight
from uncurse.models.transformer.weights import TransformerWeights

D_MODEL, HEADS, LAYERS, INNER, VOCAB_SIZE = 16, 2, 2, 24, 40
EOS = 0
TOKENS = ["</s>", "<unk>", *(f"▁{letter}" for letter in "abcdefghijklmnopqrs"), *"abcdefghijklmnopqrs"]

Arrays = dict[str, NDArray[Any] | np.signedinteger[Any]]


def tiny_weights(seed: int = 1, int8: bool = False, eos_bias: float = 2.0) -> TransformerWeights:
    """Random weights, in float32 or in int8 with scales; `</s>` has a bias, so that outputs end."""
    random = torch.Generator().manual_seed(seed)
    matrices: dict[str, Weight] = {}
    vectors: dict[str, torch.Tensor] = {}

    def matrix(name: str, outputs: int, inputs: int) -> None:
        values = torch.randn(outputs, inputs, generator=random) * 0.5
        if int8:
            scale = 127.0 / values.abs().amax(dim=1)
            matrices[name] = Weight((values * scale[:, None]).round().to(torch.int8), scale)
        else:
            matrices[name] = Weight(values)

    def linear(name: str, outputs: int, inputs: int) -> None:
        matrix(name, outputs, inputs)
        vectors[f"{name}/bias"] = torch.randn(outputs, generator=random) * 0.1

    def norm(name: str) -> None:
        vectors[f"{name}/gamma"] = 1.0 + torch.randn(D_MODEL, generator=random) * 0.1
        vectors[f"{name}/beta"] = torch.randn(D_MODEL, generator=random) * 0.1

    for side in ("encoder", "decoder"):
        for index in range(LAYERS):
            name = f"{side}/layer_{index}"
            linear(f"{name}/self_attention/linear_0", 3 * D_MODEL, D_MODEL)
            linear(f"{name}/self_attention/linear_1", D_MODEL, D_MODEL)
            norm(f"{name}/self_attention/layer_norm")
            if side == "decoder":
                linear(f"{name}/attention/linear_0", D_MODEL, D_MODEL)
                linear(f"{name}/attention/linear_1", 2 * D_MODEL, D_MODEL)
                linear(f"{name}/attention/linear_2", D_MODEL, D_MODEL)
                norm(f"{name}/attention/layer_norm")
            linear(f"{name}/ffn/linear_0", INNER, D_MODEL)
            linear(f"{name}/ffn/linear_1", D_MODEL, INNER)
            norm(f"{name}/ffn/layer_norm")
    matrix("decoder/embeddings", VOCAB_SIZE, D_MODEL)
    bias = torch.randn(VOCAB_SIZE, generator=random)
    bias[EOS] += eos_bias
    vectors["decoder/projection/bias"] = bias
    vectors["decoder/position_encodings"] = sinusoidal_positions(2048, D_MODEL)
    return TransformerWeights(matrices, vectors, HEADS, "silu", EOS)


def ctranslate2_arrays(weights: TransformerWeights) -> Arrays:
    """The arrays of a `model.bin` by name."""
    arrays: Arrays = {
        "encoder/num_heads": np.int16(weights.heads),
        "decoder/num_heads": np.int16(weights.heads),
        "encoder/activation": np.int8(2),
        "decoder/activation": np.int8(2),
        "encoder/pre_norm": np.int8(0),
        "decoder/pre_norm": np.int8(0),
        "encoder/embeddings_merge": np.int8(0),
        "encoder/scale_embeddings": np.int8(1),
        "decoder/scale_embeddings": np.int8(1),
        "decoder/start_from_zero_embedding": np.int8(1),
        "decoder/alignment_heads": np.int16(1),
        "decoder/alignment_layer": np.int16(-1),
    }
    for name, matrix in weights.matrices.items():
        arrays[f"{name}/weight"] = matrix.values.numpy()
        if matrix.scale is not None:
            arrays[f"{name}/weight_scale"] = matrix.scale.numpy()
    for name, vector in weights.vectors.items():
        arrays[name + ("/encodings" if name.endswith("position_encodings") else "")] = vector.numpy()
    return arrays


def write_ctranslate2(folder: Path, weights: TransformerWeights) -> None:
    """Write a CTranslate2 folder without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").write_bytes(model_bin(ctranslate2_arrays(weights)))
    (folder / "shared_vocabulary.json").write_text(json.dumps(TOKENS), encoding="utf-8")
    tokens = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>", "decoder_start_token": "</s>"}
    config = {**tokens, "add_source_bos": False, "add_source_eos": True, "layer_norm_epsilon": None}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def model_bin(arrays: Arrays, spec: str = "TransformerSpec", aliases: Mapping[str, str] = SHARED) -> bytes:
    """A `model.bin` of binary version 6."""
    kinds = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value.encode()) + 1) + value.encode() + b"\0"

    out = [struct.pack("<I", 6), text(spec), struct.pack("<II", 7, len(arrays))]
    for name, value in sorted(arrays.items()):
        array = np.asarray(value)
        out += [text(name), struct.pack("<B", array.ndim), *(struct.pack("<I", size) for size in array.shape)]
        out += [struct.pack("<BI", kinds[array.dtype.name], array.nbytes), array.tobytes()]
    out += [struct.pack("<I", len(aliases)), *(text(one) + text(two) for one, two in aliases.items())]
    return b"".join(out)


def write_huggingface(folder: Path, weights: TransformerWeights) -> None:
    """Write a Hugging Face folder with its tokenizers."""
    save_marian(folder, weights)
    ids = {token: index for index, token in enumerate([*TOKENS, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(tokenizer_model())


def tokenizer_model() -> bytes:
    """A SentencePiece model whose tokens are single letters."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g h i j k l m n o p q r s"] * 3),
        model_writer=trained,
        model_type="char",
        vocab_size=23,
        minloglevel=2,
    )
    return trained.getvalue()
