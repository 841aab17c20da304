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
from uncurse.jsonfile import SEAL, read_json, sealed_json, unsealed
from uncurse.length import MLPLength
from uncurse.loading import load
from uncurse.models.directory import DESCRIPTION, load_folder
from uncurse.models.predictors import LENGTH, load_predictor, save_predictor
from uncurse.parts import Parts
from uncurse.shards import Shard
from uncurse.study.store import Recording, Store
from uncurse.testing import RandomModel
from uncurse.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from uncurse.training.log import read_log

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
        ({"shape": {"hidden": 99_998}}, "has the shape"),  # 100 GB, of which nothing is asked for
        ({"shape": {"dropout": "0.1"}}, "shape.dropout = '0.1' must be of type float"),
        ({"shape": {"source_vocabulary": 50}}, "does not fit the 290 and 290 subwords"),
        ({"ratio": -1.0}, "ratio = -1.0 is not allowed"),
        ({"format": "uncurse model 9"}, "the format is 'uncurse model 9'"),
        ({"more": 1}, "unknown key 'more'"),
        ({"sha256": {}}, "it has checksums of .* and not of weights.safetensors"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path: Path, change: Config, complaint: str) -> None:
    path = trained(tmp_path) / DESCRIPTION
    said = unsealed(read_json(path))
    new = {
        name: {**said[name], **each} if each and isinstance(each, dict) else each for name, each in change.items()
    }
    path.write_bytes(sealed_json({**said, **new}))
    with pytest.raises(ValueError, match=complaint):
        load_folder(tmp_path)


def test_a_description_is_sealed_and_one_from_before_is_still_read(tmp_path: Path) -> None:
    path = trained(tmp_path) / DESCRIPTION
    whole = json.loads(path.read_bytes())
    assert SEAL in whole
    path.write_text(json.dumps({**whole, "ratio": 3.0}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"model.json does not describe a model: it is damaged"):
        load_folder(tmp_path)
    path.write_text(json.dumps({name: each for name, each in whole.items() if name != SEAL}), encoding="utf-8")
    assert load_folder(tmp_path).ratio == 2.0


def a_predictor() -> MLPLength:
    random = np.random.default_rng(1)
    sizes: Any = ((5,), (5,), (4, 5), (4,), (3, 4), (3,))
    arrays = [np.abs(random.normal(size=size)) + 0.1 for size in sizes]
    return MLPLength((0.5, 0.8), *arrays)


def test_a_predictor_is_for_one_model_and_whole(tmp_path: Path) -> None:
    path = tmp_path / LENGTH
    save_predictor(path, a_predictor(), "0123456789abcdef")
    whole = path.read_bytes()
    assert load_predictor(path, "0123456789abcdef").levels == (0.5, 0.8)
    with pytest.raises(ValueError, match="was fitted to model 0123456789abcdef, and this is fedcba9876543210"):
        load_predictor(path, "fedcba9876543210")
    for old, new in ((b"[0.5, 0.8]", b"[0.5, 0.9]"), (b"0123456789abcdef", b"fedcba9876543210")):
        path.write_bytes(whole.replace(old, new))
        assert path.read_bytes() != whole
        with pytest.raises(ValueError, match="is not a length predictor: it is damaged"):
            load_predictor(path, "fedcba9876543210")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"levels": (0.8, 0.5)}, "they must rise"),
        ({"levels": (0.5, 1.5)}, "level = 1.5 is not allowed"),
        ({"levels": (0.5,)}, "output_weight has the shape"),
        ({"scale": np.zeros(5)}, "scale is not allowed"),
        ({"mean": np.full(5, np.nan)}, "mean has the shape .* or is not finite"),
        ({"hidden_weight": np.ones((4, 6))}, "mean has the shape"),
        ({"hidden_weight": np.ones(20)}, "has the shape"),
    ],
)
def test_a_predictor_that_does_not_fit_together_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        MLPLength(**{**vars(a_predictor()), **change})


def test_no_flipped_byte_of_a_checkpoint_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    checkpoint = Checkpoint(
        {"weight": torch.arange(6.0), "random": torch.arange(3, dtype=torch.uint8)}, {"step": 3}
    )
    save_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    assert load_checkpoint(path).facts == {"step": 3}
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(ValueError, match="is not a whole checkpoint"):
            load_checkpoint(path)
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="is not a whole checkpoint"):
            load_checkpoint(path)


def test_the_box_is_sealed(tmp_path: Path) -> None:
    """Also the two predictors in it, whose checksums cover what they say."""
    for path in uncurse.catalogue.BOXED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name, old, new in ((DESCRIPTION, b'"ratio": 1', b'"ratio": 2'), (LENGTH, b"0.95", b"0.97")):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content.replace(old, new))
        with pytest.raises(ValueError, match="is damaged"):
            load_folder(tmp_path)
        (tmp_path / name).write_bytes(content)
    load_folder(tmp_path)


COLUMNS = "step,epoch,tokens,train_perplexity,dev_perplexity,learning_rate,tokens_per_second\n"


@pytest.mark.parametrize(
    "content",
    ["", '"', "\0", "step\n1\n", f"{COLUMNS}1,2\n", f"{COLUMNS}1,1,1,x,1,1,1\n", f"{COLUMNS}1,1,1,1,1,1,1,1\n"],
)
def test_a_damaged_log_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"log.csv is damaged; remove it"):
        read_log(path)
    path.write_text(f"{COLUMNS}1,1,9,3.5,3.6,0.1,99\n", encoding="utf-8")
    assert [row["dev_perplexity"] for row in read_log(path)] == ["3.6"]


def test_the_shard_of_another_search_is_refused(tmp_path: Path) -> None:
    model = RandomModel(seed=8, vocabulary=9, ending=0.5)
    sentences = tuple(uncurse.Sentence((1,) * (1 + index % 3), limit=5) for index in range(4))
    narrow, wide = (Recording(model.signature, sentences, width) for width in (2, 3))
    store = Store(tmp_path)
    for recording in (narrow, wide):
        list(store.record(model, recording))
    shutil.copy(tmp_path / narrow.key / "0000.npz", tmp_path / wide.key / "0000.npz")
    store.load(narrow)
    with pytest.raises(ValueError, match="holds the traces of another search; remove it"):
        store.load(wide)


# An output that goes on.


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("000000.json", lambda old: old.replace(b'"lines": 2', b'"lines": 1')),
        ("000000.json", lambda old: old.replace(b'"seal"', b'"sea"')),
        ("000000.json", lambda old: old[:20]),
        ("000000.json", lambda old: b"[]"),
        ("manifest.json", lambda old: old.replace(b"means", b"nothing")),
        ("manifest.json", lambda old: b""),
    ],
)
def test_a_damaged_note_is_not_gone_on_with(tmp_path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    shard = Shard(0, 1, ("a", "b"))
    parts = Parts(tmp_path / "out", "some means", resume=False)
    parts.add(shard, b"A\nB\n")
    assert Parts(tmp_path / "out", "some means", resume=True).has(shard)
    path = parts.folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        Parts(tmp_path / "out", "some means", resume=True).has(shard)


def test_another_predictor_is_another_way(tmp_path: Path) -> None:
    """A length predictor decides limits, so an output that was begun with another is not gone on with."""
    folder = trained(tmp_path)
    without = load(folder).signature
    wide: Any = ((9,), (9,), (4, 9), (4,), (3, 4), (3,))
    for value in (1.0, 2.0):
        predictor = MLPLength((0.5, 0.8), *(np.full(size, value) for size in wide))
        save_predictor(folder / LENGTH, predictor, load_folder(folder).fingerprint)
        with_predictor = load(folder).signature
        assert with_predictor != without
        without = with_predictor
