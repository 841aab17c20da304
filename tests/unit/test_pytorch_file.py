"""Weights in `pytorch_model.bin`: a plain state dict is read, and no pickle can run code or take much memory."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.memory import measured
from support.tiny_marian import tiny_weights, write_huggingface

from uncurse.errors import UncurseError
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.transformer.pytorch_file import read_state_dict


def pickled(folder: Path, legacy: bool = False) -> Path:
    """A Hugging Face folder with a pickle, in which tied weights have several names, as on the hub."""
    write_huggingface(folder, tiny_weights())
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors |= {
        f"model.{side}.embed_tokens.weight": tensors["model.shared.weight"] for side in ("encoder", "decoder")
    }
    state = OrderedDict(tensors)
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    return folder


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickled_model_translates_as_one_in_safetensors_does(tmp_path: Path, legacy: bool) -> None:
    write_huggingface(tmp_path / "safe", tiny_weights())
    safe = load_model(ModelOptions(str(tmp_path / "safe"))).model
    found = load_model(ModelOptions(str(pickled(tmp_path / "pickled", legacy)))).model
    assert (found.features([(5, 6, 7)]) == safe.features([(5, 6, 7)])).all()


class Poison:
    """An object whose pickle writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_poisoned_pickle_is_refused_and_runs_nothing(tmp_path: Path, legacy: bool) -> None:
    path, ran = tmp_path / "pytorch_model.bin", tmp_path / "ran"
    torch.save({"a": torch.zeros(2), "b": Poison(ran)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UncurseError, match=r"pytorch_model\.bin is refused: .*mkdir"):
        read_state_dict(path)
    assert not ran.exists()


@pytest.mark.parametrize(
    "state",
    [
        [torch.zeros(2)],
        {"a": 1},
        {1: torch.zeros(2)},
        {"a": torch.zeros(2).to_sparse()},
        {"a": torch.zeros(1).expand(10**12)},
    ],
    ids=["list", "number", "key", "sparse", "expanded"],
)
def test_what_is_no_plain_state_dict_is_refused(tmp_path: Path, state: object) -> None:
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(UncurseError, match=r"pytorch_model\.bin is refused"):
        read_state_dict(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize("content", [b"", b"\x80\x02.", b"PK\x03\x04", pickle.dumps({"a": 1})])
def test_what_is_no_pytorch_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(UncurseError, match=r"pytorch_model\.bin"):
        read_state_dict(tmp_path / "pytorch_model.bin")


@pytest.mark.slow
def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.zeros(250_000_000)}, tmp_path / "plain")
    with zipfile.ZipFile(tmp_path / "plain") as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for info in plain.infolist():
            packed.writestr(info.filename, plain.read(info))
    assert path.stat().st_size < 2_000_000
    imports = "import torch\nfrom uncurse.models.transformer.pytorch_file import read_state_dict"
    found = measured(imports, f"read_state_dict(Path({str(path)!r}))")
    assert "is refused" in found.error
    assert found.megabytes < 200


def test_a_folder_without_weights_is_told_which_files_would_do(tmp_path: Path) -> None:
    (pickled(tmp_path) / "pytorch_model.bin").unlink()
    with pytest.raises(UncurseError, match=r"has no weights: neither model\.safetensors nor pytorch_model\.bin"):
        load_model(ModelOptions(str(tmp_path)))
