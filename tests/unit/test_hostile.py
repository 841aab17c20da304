"""What the files of a model claim is checked before it is believed, and no pickle is opened."""

from __future__ import annotations

import ast
import json
import pickle
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fuzz.readers import readers
from safetensors.torch import load_file, save_file
from support.tiny_marian import EOS, TOKENS, tiny_weights, tokenizer_model, write_ctranslate2

import uncurse
from uncurse import UncurseError
from uncurse.models.download import MANIFEST
from uncurse.models.load import load_model
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.transformer.ctranslate2_file import read_model, transformer_weights
from uncurse.models.transformer.huggingface_file import read_marian, save_marian

Config = dict[str, Any]
Tensors = dict[str, torch.Tensor]


# CTranslate2.


def renamed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old, new)


def after(name: bytes, offset: int, new: bytes) -> Callable[[bytes], bytes]:
    """Bytes at some distance from the end of a name: 0 the rank, 1 the first size."""

    def change(content: bytes) -> bytes:
        at = content.index(name + b"\0") + len(name) + 1 + offset
        return content[:at] + new + content[at + len(new) :]

    return change


EMBEDDINGS = b"decoder/embeddings/weight"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (after(EMBEDDINGS, 1, struct.pack("<II", 1 << 20, 1 << 20)), "damaged: an array \\(1048576, 1048576\\)"),
        (after(EMBEDDINGS, 10, struct.pack("<I", 0xFFFFFFFF)), "has 4294967295 bytes"),
        (after(EMBEDDINGS, 0, b"\xff"), "damaged|ends before"),
        (after(EMBEDDINGS, 9, b"\x03"), "embeddings/weight is of type int32"),
        (after(EMBEDDINGS, 1, struct.pack("<II", 16, 40)), "has the shape"),
        (renamed(b"layer_1/ffn/linear_0/w", b"layer_7/ffn/linear_0/w"), "which a Marian model does not have"),
        (renamed(b"encoder/layer_1/ffn/layer_norm/beta", b"encoder/layer_1/ffn/layer_norm/beta"[:-4] + b"gamm"),
         "is not supported: it has encoder/layer_1/ffn/layer_norm/gamm"),
        (lambda content: content + b"more", "has bytes after its end"),
        (lambda content: after(b"encoder/num_heads", 2, struct.pack("<IH", 2, 3))(
            after(b"decoder/num_heads", 2, struct.pack("<IH", 2, 3))(content)
         ), "a model of size 16 cannot have 3 attention heads"),
        (after(b"encoder/num_heads", 2, struct.pack("<IH", 2, 4)), "4 in the encoder and 2 in the decoder"),
        (after(b"encoder/activation", 2, struct.pack("<IB", 1, 0)), "0 in the encoder and 2 in the decoder"),
        (after(b"decoder/position_encodings/encodings", 14, struct.pack("<f", np.nan)), "is not finite"),
    ],
)  # fmt: skip
def test_a_ctranslate2_file_is_refused_before_it_runs(
    tmp_path: Path, change: Callable[[bytes], bytes], complaint: str
) -> None:
    write_ctranslate2(tmp_path, tiny_weights())
    path = tmp_path / "model.bin"
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    assert path.read_bytes() != whole
    with pytest.raises(UncurseError, match=complaint):
        transformer_weights(read_model(path), path, EOS)


def test_a_scale_that_is_nothing_is_refused(tmp_path: Path) -> None:
    write_ctranslate2(tmp_path, tiny_weights(int8=True))
    path = tmp_path / "model.bin"
    scale = b"decoder/layer_0/ffn/linear_0/weight_scale"
    path.write_bytes(after(scale, 10, struct.pack("<f", 0.0))(path.read_bytes()))
    with pytest.raises(UncurseError, match="scale' has a value that is not above 0"):
        transformer_weights(read_model(path), path, EOS)


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([*TOKENS[:-1], TOKENS[4]], "a token occurs twice"),
        (TOKENS[:-1], "39 tokens and the model 40 embeddings"),
        ([*TOKENS, "猫"], "41 tokens and the model 40 embeddings"),
        ([*TOKENS[:-1], 7], "is not a list of tokens"),
        ({"a": 1}, "is not a list of tokens"),
        (["<unk>", *TOKENS[2:], "x"], "the vocabulary has no </s>"),
    ],
)
def test_a_vocabulary_with_twins_or_holes_is_refused(tmp_path: Path, tokens: object, complaint: str) -> None:
    write_ctranslate2(tmp_path, tiny_weights())
    (tmp_path / "source.spm").write_bytes(tokenizer_model())
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(tokens), encoding="utf-8")
    for script in (None, "cjk"):
        with pytest.raises(UncurseError, match=complaint):
            load_model(ModelOptions(str(tmp_path), without_script=script))


def test_a_flipped_byte_in_a_downloaded_model_is_noticed(tmp_path: Path) -> None:
    """The manifest of the download is compared whenever the model is loaded."""
    write_ctranslate2(tmp_path / "model", tiny_weights())
    (tmp_path / "sentencepiece.model").write_bytes(tokenizer_model())
    names = ["model/model.bin", "model/shared_vocabulary.json", "sentencepiece.model"]
    listed = [{"name": name, "sha256": sha256((tmp_path / name).read_bytes()).hexdigest()} for name in names]
    (tmp_path / MANIFEST).write_text(json.dumps({"files": listed}), encoding="utf-8")
    load_model(ModelOptions(str(tmp_path)))
    for name in names:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
        with pytest.raises(UncurseError, match=f"{Path(name).name} is not the expected file: its SHA-256 is"):
            load_model(ModelOptions(str(tmp_path)))
        (tmp_path / name).write_bytes(content)
    (tmp_path / "model" / "shared_vocabulary.json").unlink()
    with pytest.raises(UncurseError, match="is missing: source and target must share a vocabulary"):
        load_model(ModelOptions(str(tmp_path)))


# Marian as Hugging Face keeps it.


def marian(folder: Path) -> Path:
    save_marian(folder, tiny_weights())
    ids = {token: index for index, token in enumerate([*TOKENS, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "source.spm").write_bytes(tokenizer_model())
    return folder


FC1 = "model.encoder.layers.0.fc1.weight"
NORM = "model.decoder.layers.1.final_layer_norm.weight"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda old: {**old, FC1: old[FC1].T.contiguous()}, "has the shape"),
        (lambda old: {**old, FC1: old[FC1].to(torch.int32)}, "is of type torch.int32"),
        (lambda old: {**old, FC1: old[FC1] * torch.nan}, "has a value that is not finite"),
        (lambda old: {**old, NORM: old[NORM][:1]}, r"has the shape \(1,\); expected \(16,\)"),
        (lambda old: {**old, NORM: torch.tensor(1.0)}, r"has the shape \(\); expected \(16,\)"),
        (lambda old: {name: each for name, each in old.items() if name != NORM}, NORM),
        (lambda old: {**old, "final_logits_bias": torch.zeros(1, 3)}, "is outside|has the shape"),
        (lambda old: {**old, "final_logits_bias": torch.tensor(1.0)}, "does not fit"),
        (lambda old: {**old, "model.shared.weight": torch.zeros(41)}, "is outside|two dimensions"),
    ],
)
def test_damaged_marian_weights_are_one_line_when_they_are_read(
    tmp_path: Path, change: Callable[[Tensors], Tensors], complaint: str
) -> None:
    path = marian(tmp_path) / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
    with pytest.raises(UncurseError, match=complaint) as caught:
        read_marian(tmp_path)
    assert "model.safetensors does not fit" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"decoder_layers": 3}, "layers.2"),
        ({"decoder_layers": 0}, "its decoder has no layers"),
        ({"decoder_layers": 1 << 62}, "layers.2"),
        ({"decoder_layers": True}, "decoder_layers is True, not an integer"),
        ({"decoder_layers": "2"}, "decoder_layers is '2', not an integer"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "cannot have 3 attention heads"),
        ({"encoder_attention_heads": 0, "decoder_attention_heads": 0}, "cannot have 0 attention heads"),
        ({"decoder_attention_heads": None}, "field 'decoder_attention_heads'"),
        ({"eos_token_id": 99}, "</s> is token 99, outside the vocabulary of 41"),
        ({"eos_token_id": -1}, "</s> is token -1, outside the vocabulary of 41"),
        ({"pad_token_id": 99}, "is outside"),
        ({"decoder_start_token_id": -7}, "is outside"),
        ({"activation_function": ["relu"]}, "field 'activation_function'"),
        ({"scale_embedding": float("nan")}, "NaN is not a number"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(tmp_path: Path, change: Config, complaint: str) -> None:
    path = marian(tmp_path) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    with pytest.raises(UncurseError, match=complaint):
        load_model(ModelOptions(str(tmp_path)))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"<pad>": 39}, "the ids must be 0, 1, 2"),
        ({"<pad>": 41}, "the ids must be 0, 1, 2"),
        ({"<pad>": 40.0}, "it must map every token to an id"),
        ({"<unk>": True}, "it must map every token to an id"),
        ({"one more": 41}, "42 tokens and the model 41 embeddings"),
    ],
)
def test_ids_with_twins_or_holes_are_refused(tmp_path: Path, change: Config, complaint: str) -> None:
    path = marian(tmp_path) / "vocab.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    with pytest.raises(UncurseError, match=complaint):
        load_model(ModelOptions(str(tmp_path)))


# Models that transformers runs.


def for_transformers(folder: Path) -> Path:
    for name, content in readers()["folder for transformers"].files.items():
        (folder / name).write_bytes(content)
    return folder


def test_weights_that_are_missing_are_not_drawn_by_chance(tmp_path: Path) -> None:
    path = for_transformers(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.decoder.layers.0.fc1.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(UncurseError, match=r"its weights lack 'model.decoder.layers.0.fc1.weight'"):
        load_model(ModelOptions(str(tmp_path)))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = for_transformers(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["model.decoder.layers.0.fc1.weight"][3, 3] = torch.inf
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(UncurseError, match="has a number that is not finite"):
        load_model(ModelOptions(str(tmp_path)))


def test_weights_in_a_pickle_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = for_transformers(tmp_path) / "model.safetensors"
    torch.save(load_file(path), tmp_path / "pytorch_model.bin")
    path.unlink()
    monkeypatch.setattr(torch, "load", _never)
    with pytest.raises(UncurseError, match="a pickle, which could run any code and is not opened"):
        load_model(ModelOptions(str(tmp_path)))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"encoder_layers": 1 << 40}, "its config asks for 1099511627776 encoder_layers"),
        ({"d_model": 1 << 20}, r"its config asks for \d+ \w+, and its weights have \d+ bytes"),
        ({"vocab_size": 1 << 30}, r"its config asks for \d+ numbers, and its weights have \d+ bytes"),
        ({"vocab_size": 22}, "cannot be loaded|is none of the"),
        ({"dropout": None}, "cannot be run: "),
        ({"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}, "cannot be loaded"),
        ({"model_type": ["marian"]}, "config.json does not describe a model"),
    ],
)
def test_settings_for_transformers_are_kept_in_proportion(tmp_path: Path, change: Config, complaint: str) -> None:
    path = for_transformers(tmp_path) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    with pytest.raises(UncurseError, match=complaint):
        load_model(ModelOptions(str(tmp_path)))
    assert not (tmp_path / "ran").exists()


# No pickle.

FORBIDDEN = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "imp"}
SOURCES = sorted(Path(uncurse.__file__).parent.rglob("*.py"))


def _never(*arguments: object, **options: object) -> object:
    raise AssertionError("a pickle was opened")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_here_can_open_a_pickle_or_run_what_it_reads(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not FORBIDDEN & {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in FORBIDDEN
            assert not (node.module == "torch" and "load" in {alias.name for alias in node.names})
        if not isinstance(node, ast.Call):
            continue
        called, options = ast.unparse(node.func), {each.arg: ast.unparse(each.value) for each in node.keywords}
        assert called not in (
            "eval",
            "exec",
            "np.load",
            "numpy.load",
            "torch.jit.load",
            "__import__",
        )
        if called == "torch.load":  # after its opcodes were checked; see test_pytorch_file.py
            assert (path.stem, options.get("weights_only")) == ("pytorch_file", "True")
        if called.endswith(".from_pretrained"):
            assert options.get("trust_remote_code") == "False"
            assert options.get("use_safetensors") == "True" or "Model" not in called


def test_no_reader_opens_a_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, _never)
    monkeypatch.setattr(torch, "load", _never)
    monkeypatch.setattr(np, "load", _never)
    for reader in readers().values():
        reader.__dict__.pop("expected", None)
        assert reader.expected
