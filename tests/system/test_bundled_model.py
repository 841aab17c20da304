"""The bundled model: small, complete, and used if no model is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

import uncurse
from uncurse.models.load import load_model, model_folder
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.pretrained_models import BUNDLED

pytestmark = pytest.mark.slow

LINES = ["默认情况下，每个线程都有自己的缓冲区。", "", "我明天想和朋友一起去图书馆看书。"]


def test_the_bundled_model_is_small_and_complete() -> None:
    files = {path.name: path.stat().st_size for path in BUNDLED.iterdir()}
    assert sum(files.values()) <= 25_000_000
    with safe_open(BUNDLED / "weights.safetensors", framework="np") as weights:
        tensors = [weights.get_tensor(name) for name in weights.keys()]  # noqa: SIM118
    assert sum(tensor.size for tensor in tensors) <= 12_000_000
    assert {str(tensor.dtype) for tensor in tensors} == {"float16"}
    assert load_model(ModelOptions()).predictor is not None
    card = (BUNDLED / "README.md").read_text(encoding="utf-8")
    assert all(word in card for word in ("Licences", "recipes/zh-en-small.toml", "BLEU", "CC BY"))


def test_its_name_may_be_given_as_a_path() -> None:
    assert model_folder(Path(BUNDLED.name)) == model_folder(BUNDLED.name) == BUNDLED


def test_translate_needs_no_model_to_be_named() -> None:
    found = subprocess.run(
        [Path(sys.executable).with_name("uncurse"), "translate", "--beam-size", "5", "--json"],
        input="\n".join(LINES) + "\n",
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    records = [json.loads(line) for line in found.stdout.splitlines()]
    assert [bool(record["text"]) for record in records] == [True, False, True]
    assert "thread" in records[0]["text"].lower()
    assert records[0]["certificate"] in ("GLOBAL", "BEAM")
    assert records[1]["certificate"] is None


def test_wide_beams_do_not_shrink_the_outputs_of_bp_norm() -> None:
    translator = uncurse.load()
    lines = [line for line in LINES if line]
    tokens = {
        (score, beam_size): sum(
            each.result.hypotheses[0].length
            for each in translator.translate(lines, beam_size=beam_size, score=score)
            if each.result is not None
        )
        for score in ("log-prob", "bp-norm")
        for beam_size in (5, 40)
    }
    assert tokens["bp-norm", 40] >= tokens["bp-norm", 5] - 1
    assert tokens["log-prob", 40] <= tokens["log-prob", 5]
