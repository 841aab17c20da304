"""A small file takes little memory, whatever sizes it claims, and only regular files are read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.memory import Outcome, measured
from support.tiny_marian import (
    Arrays,
    ctranslate2_arrays,
    model_bin,
    tiny_weights,
    tokenizer_model,
    write_ctranslate2,
    write_huggingface,
)

from uncurse.models.pretrained_models import BUNDLED
from uncurse.models.transformer.ctranslate2_file import SHARED

pytestmark = pytest.mark.slow

IMPORTS = """
import torch
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
import uncurse.models.lstm.folder, uncurse.models.transformer.folder
"""
SMALL = 200  # MB


def load(folder: Path) -> Outcome:
    return measured(IMPORTS, f"load_model(ModelOptions({str(folder)!r}))")


def write_model_bin(folder: Path, arrays: Arrays, aliases: dict[str, str]) -> None:
    write_ctranslate2(folder, tiny_weights())
    (folder / "source.spm").write_bytes(tokenizer_model())
    (folder / "model.bin").write_bytes(model_bin(arrays, aliases={**SHARED, **aliases}))


def test_aliases_in_a_ctranslate2_file_take_no_memory(tmp_path: Path) -> None:
    one = "encoder/layer_0/ffn/linear_0/bias"
    arrays: Arrays = {**ctranslate2_arrays(tiny_weights()), one: np.zeros(80_000, np.float32)}
    write_model_bin(tmp_path, arrays, {f"encoder/layer_{n}/ffn/linear_0/bias": one for n in range(1, 20_000)})
    assert (tmp_path / "model.bin").stat().st_size < 3_000_000
    found = load(tmp_path)
    assert "UncurseError" in found.error
    assert found.megabytes < SMALL


def test_a_thousand_layers_with_the_weights_of_one_are_refused(tmp_path: Path) -> None:
    one = "encoder/layer_0/ffn/linear_0/weight"
    arrays: Arrays = {**ctranslate2_arrays(tiny_weights()), one: np.zeros((512, 512), np.float32)}
    write_model_bin(tmp_path, arrays, {one.replace("layer_0", f"layer_{n}"): one for n in range(1, 1000)})
    found = load(tmp_path)
    assert "UncurseError" in found.error
    assert found.megabytes < SMALL


def test_wide_embeddings_without_layers_are_refused_before_positions_are_computed(tmp_path: Path) -> None:
    write_huggingface(tmp_path, tiny_weights())
    embeddings, bias = torch.zeros(2, 400_000, dtype=torch.float16), torch.zeros(1, 2)
    save_file({"model.shared.weight": embeddings, "final_logits_bias": bias}, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"encoder_layers": 0, "decoder_layers": 0, "pad_token_id": 1, "decoder_start_token_id": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 1}))
    found = load(tmp_path)
    assert "UncurseError" in found.error
    assert found.megabytes < SMALL


def bundled(folder: Path) -> None:
    shutil.copytree(BUNDLED, folder, dirs_exist_ok=True)


def ctranslate2(folder: Path) -> None:
    write_ctranslate2(folder, tiny_weights())
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(tokenizer_model())
    (folder / "origin.json").write_text(json.dumps({"files": []}))


def huggingface(folder: Path) -> None:
    write_huggingface(folder, tiny_weights())


@pytest.mark.parametrize("endless", ["/dev/zero", "a pipe"])
@pytest.mark.parametrize(
    ("write", "name"),
    [
        *((bundled, name) for name in ("model.json", "weights.safetensors", "source.spm", "length.safetensors")),
        *((ctranslate2, name) for name in ("model.bin", "shared_vocabulary.json", "source.spm", "origin.json")),
        *((huggingface, name) for name in ("config.json", "model.safetensors", "vocab.json", "target.spm")),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_only_regular_files_are_read(
    tmp_path: Path, write: Callable[[Path], None], name: str, endless: str
) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    if endless == "a pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to(endless)
    found = load(tmp_path)
    assert f"{name} is not a regular file" in found.error
    assert found.megabytes < SMALL


@pytest.mark.parametrize("name", ["read_lines", "read_sentences"])
def test_text_without_a_line_break_is_refused(name: str) -> None:
    imports = "from uncurse.text.corpus_formats import read_sentences\nfrom uncurse.text.lines import read_lines"
    argument = "Path('/dev/zero')" if name == "read_lines" else "[Path('/dev/zero')]"
    found = measured(imports, f"list({name}({argument}))")
    assert "UncurseError: /dev/zero, line 1 has more than 1048576 bytes" in found.error
    assert found.megabytes < SMALL
