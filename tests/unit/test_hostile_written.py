"""What is written here is not read again if it is damaged or belongs to something else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzz.readers import readers

import uncurse
from uncurse import UncurseError
from uncurse.lengths.predictor_file import LENGTH, load_predictor, save_predictor
from uncurse.lengths.predictors import LinearLength
from uncurse.models.lstm.folder import DESCRIPTION, FILES, load_folder
from uncurse.models.pretrained_models import BUNDLED
from uncurse.study.trace_store import Recording, TraceStore
from uncurse.testing import RandomModel
from uncurse.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from uncurse.training.log import read_log
from uncurse.translation.resumable_output import ResumableOutput
from uncurse.translation.shards import Shard

Config = dict[str, Any]


# What is written here.


def trained(folder: Path) -> Path:
    for name, content in readers()["folder of a trained model"].files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"shape": {"hidden": 1 << 40}}, "hidden = 1099511627776 is not allowed"),
        (
            {"shape": {"hidden": 99_998}},
            "weights.safetensors does not fit",
        ),  # 100 GB, of which nothing is asked for
        ({"shape": {"dropout": "0.1"}}, "shape.dropout = '0.1' must be of type float"),
        ({"shape": {"source_vocab_size": 50}}, "does not fit the tokenizers of 290 and 290 tokens"),
        ({"length_ratio": -1.0}, "ratio = -1.0 is not allowed"),
        ({"format": "uncurse model 9"}, "its format is 'uncurse model 9'"),
        ({"more": 1}, "unknown key 'more'"),
        ({"sha256": {}}, "it has checksums of .*; expected weights.safetensors"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path: Path, change: Config, complaint: str) -> None:
    path = trained(tmp_path) / DESCRIPTION
    said = json.loads(path.read_bytes())
    new = {
        name: {**said[name], **each} if each and isinstance(each, dict) else each for name, each in change.items()
    }
    path.write_text(json.dumps({**said, **new}), encoding="utf-8")
    with pytest.raises(UncurseError, match=complaint):
        load_folder(tmp_path)


def a_predictor() -> LinearLength:
    random = np.random.default_rng(1)
    sizes: Any = ((5,), (5,), (3, 5), (3,))
    arrays = [np.abs(random.normal(size=size)) + 0.1 for size in sizes]
    return LinearLength((0.5, 0.8), *arrays)


def test_a_predictor_is_for_one_model_and_whole(tmp_path: Path) -> None:
    path = tmp_path / LENGTH
    save_predictor(path, a_predictor(), "0123456789abcdef")
    whole = path.read_bytes()
    assert load_predictor(path, "0123456789abcdef").levels == (0.5, 0.8)
    with pytest.raises(UncurseError, match="was fitted to model 0123456789abcdef, and this is fedcba9876543210"):
        load_predictor(path, "fedcba9876543210")
    for old, new in ((b"[0.5, 0.8]", b"[0.5, 0.9]"), (b"0123456789abcdef", b"fedcba9876543210")):
        path.write_bytes(whole.replace(old, new))
        assert path.read_bytes() != whole
        with pytest.raises(UncurseError, match="is not a length predictor: it is damaged"):
            load_predictor(path, "fedcba9876543210")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"levels": (0.8, 0.5)}, "they must rise"),
        ({"levels": (0.5, 1.5)}, "level = 1.5 is not allowed"),
        ({"levels": (0.5,)}, "weight has the shape"),
        ({"scale": np.zeros(5)}, "scale is not allowed"),
        ({"mean": np.full(5, np.nan)}, "mean has the shape .* or is not finite"),
        ({"weight": np.ones((3, 6))}, "weight has the shape"),
        ({"weight": np.ones(15)}, "has the shape"),
    ],
)
def test_a_predictor_that_does_not_fit_together_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UncurseError, match=complaint):
        LinearLength(**{**vars(a_predictor()), **change})


def test_no_flipped_byte_of_a_checkpoint_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint = Checkpoint(
        {"weight": torch.arange(6.0), "random": torch.arange(3, dtype=torch.uint8)}, {"step": 3}
    )
    save_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    assert load_checkpoint(path).metadata == {"step": 3}
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(UncurseError, match="is not a whole checkpoint"):
            load_checkpoint(path)
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(UncurseError, match="is not a whole checkpoint"):
            load_checkpoint(path)


@pytest.mark.parametrize("name", [*FILES, LENGTH])
def test_the_bundled_model_is_covered_by_checksums(tmp_path: Path, name: str) -> None:
    for path in BUNDLED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    load_folder(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[-9] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UncurseError, match="is damaged"):
        load_folder(tmp_path)


COLUMNS = "step,epoch,tokens,train_perplexity,dev_perplexity,learning_rate,tokens_per_second\n"


@pytest.mark.parametrize(
    "content",
    ["", '"', "\0", "step\n1\n", f"{COLUMNS}1,2\n", f"{COLUMNS}1,1,1,x,1,1,1\n", f"{COLUMNS}1,1,1,1,1,1,1,1\n"],
)
def test_a_damaged_log_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UncurseError, match=r"log.csv is damaged; remove it"):
        read_log(path)
    path.write_text(f"{COLUMNS}1,1,9,3.5,3.6,0.1,99\n", encoding="utf-8")
    assert [row["dev_perplexity"] for row in read_log(path)] == ["3.6"]


def test_the_shard_of_another_search_is_refused(tmp_path: Path) -> None:
    model = RandomModel(seed=8, vocab_size=9, ending=0.5)
    sentences = tuple(uncurse.Sentence((1,) * (1 + index % 3), max_length=5) for index in range(4))
    narrow, wide = (Recording(model.signature, sentences, beam_size) for beam_size in (2, 3))
    store = TraceStore(tmp_path)
    for recording in (narrow, wide):
        list(store.record(model, recording))
    shutil.copy(tmp_path / narrow.key / "0000.npz", tmp_path / wide.key / "0000.npz")
    store.load(narrow)
    with pytest.raises(UncurseError, match="holds the traces of another search; remove it"):
        store.load(wide)


# An output that is resumed.


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("000000.json", lambda old: old.replace(b'"lines": 2', b'"lines": 1')),
        ("000000.json", lambda old: old.replace(b'"checksum"', b'"check"')),
        ("000000.json", lambda old: old[:20]),
        ("000000.json", lambda old: b"[]"),
        ("manifest.json", lambda old: old.replace(b"settings", b"nothing")),
        ("manifest.json", lambda old: b""),
    ],
)
def test_an_output_with_a_damaged_manifest_is_not_resumed(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    shard = Shard(0, 1, ("a", "b"))
    settings = {"model": "some model"}
    with ResumableOutput(tmp_path / "out", settings, resume=False) as output:
        output.add(shard, b"A\nB\n")

    def resume() -> bool:
        with ResumableOutput(tmp_path / "out", settings, resume=True) as output:
            return output.has(shard)

    assert resume()
    path = output.folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UncurseError, match=f"{name} is damaged"):
        resume()


def test_another_predictor_is_another_signature(tmp_path: Path) -> None:
    """A length predictor decides maximum lengths, so an output that was begun with another is not resumed."""
    folder = trained(tmp_path)
    without = uncurse.load(folder).signature
    wide: Any = ((9,), (9,), (3, 9), (3,))
    for value in (1.0, 2.0):
        predictor = LinearLength((0.5, 0.8), *(np.full(size, value) for size in wide))
        save_predictor(folder / LENGTH, predictor, load_folder(folder).fingerprint)
        with_predictor = uncurse.load(folder).signature
        assert with_predictor != without
        without = with_predictor
