"""Tiny Transformers with weights of chance, in memory and on disk."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from numpy.typing import NDArray

from uncurse.models.marian import sinusoids
from uncurse.models.products import Matrix
from uncurse.models.transformer_weights import TransformerWeights

SIZE, HEADS, LAYERS, INNER, VOCABULARY = 16, 2, 2, 24, 40
END = 0
PIECES = ["</s>", "<unk>", *(f"▁{letter}" for letter in "abcdefghijklmnopqrs"), *"abcdefghijklmnopqrs"]


def tiny_weights(seed: int = 1, whole: bool = False, ending: float = 2.0) -> TransformerWeights:
    """Weights of the Marian family; whole ones are int8 with a scale."""
    random = torch.Generator().manual_seed(seed)
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, torch.Tensor] = {}

    def matrix(name: str, outputs: int, inputs: int) -> None:
        values = torch.randn(outputs, inputs, generator=random) * 0.5
        if whole:
            scale = 127.0 / values.abs().amax(dim=1)
            matrices[name] = Matrix((values * scale[:, None]).round().to(torch.int8), scale)
        else:
            matrices[name] = Matrix(values)

    def linear(name: str, outputs: int, inputs: int) -> None:
        matrix(name, outputs, inputs)
        vectors[f"{name}/bias"] = torch.randn(outputs, generator=random) * 0.1

    def norm(name: str) -> None:
        vectors[f"{name}/gamma"] = 1.0 + torch.randn(SIZE, generator=random) * 0.1
        vectors[f"{name}/beta"] = torch.randn(SIZE, generator=random) * 0.1

    for side in ("encoder", "decoder"):
        for index in range(LAYERS):
            name = f"{side}/layer_{index}"
            linear(f"{name}/self_attention/linear_0", 3 * SIZE, SIZE)
            linear(f"{name}/self_attention/linear_1", SIZE, SIZE)
            norm(f"{name}/self_attention/layer_norm")
            if side == "decoder":
                linear(f"{name}/attention/linear_0", SIZE, SIZE)
                linear(f"{name}/attention/linear_1", 2 * SIZE, SIZE)
                linear(f"{name}/attention/linear_2", SIZE, SIZE)
                norm(f"{name}/attention/layer_norm")
            linear(f"{name}/ffn/linear_0", INNER, SIZE)
            linear(f"{name}/ffn/linear_1", SIZE, INNER)
            norm(f"{name}/ffn/layer_norm")
    matrix("decoder/embeddings", VOCABULARY, SIZE)
    bias = torch.randn(VOCABULARY, generator=random)
    bias[END] += ending  # so that outputs end
    vectors["decoder/projection/bias"] = bias
    vectors["decoder/position_encodings"] = sinusoids(2048, SIZE)
    return TransformerWeights(matrices, vectors, HEADS, "silu", END)


def write_ctranslate2(folder: Path, weights: TransformerWeights, spec: str = "TransformerSpec") -> None:
    """A folder as CTranslate2 has it."""
    arrays: dict[str, NDArray[Any] | np.signedinteger[Any]] = {
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
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.bin").write_bytes(model_bin(arrays, spec))
    (folder / "shared_vocabulary.json").write_text(json.dumps(PIECES), encoding="utf-8")
    tokens = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>", "decoder_start_token": "</s>"}
    config = {**tokens, "add_source_bos": False, "add_source_eos": True, "layer_norm_epsilon": None}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def model_bin(arrays: dict[str, NDArray[Any] | np.signedinteger[Any]], spec: str) -> bytes:
    kinds = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value.encode()) + 1) + value.encode() + b"\0"

    out = [struct.pack("<I", 6), text(spec), struct.pack("<II", 7, len(arrays))]
    for name, value in sorted(arrays.items()):
        array = np.asarray(value)
        out += [text(name), struct.pack("<B", array.ndim), *(struct.pack("<I", size) for size in array.shape)]
        out += [struct.pack("<BI", kinds[array.dtype.name], array.nbytes), array.tobytes()]
    aliases = {
        "decoder/projection/weight": "decoder/embeddings/weight",
        "encoder/embeddings_0/weight": "decoder/embeddings/weight",
        "encoder/position_encodings/encodings": "decoder/position_encodings/encodings",
    }
    out += [struct.pack("<I", len(aliases)), *(text(one) + text(two) for one, two in aliases.items())]
    return b"".join(out)


def subword_model() -> bytes:
    """A SentencePiece model that knows letters alone."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g h i j k l m n o p q r s"] * 3),
        model_writer=trained,
        model_type="char",
        vocab_size=23,
        minloglevel=2,
    )
    return trained.getvalue()
