"""What a file claims is checked before it is believed, and what is wrong with it is told when it is read."""

from __future__ import annotations

import ast
import json
import pickle
import shutil
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from fuzz.readers import readers
from safetensors.torch import load_file, save_file
from tiny import END, PIECES, subword_model, tiny_weights, write_ctranslate2

import uncurse
from uncurse.catalogue import NOTE
from uncurse.cli import LONGEST_MESSAGE, _fail, main
from uncurse.files import read_at_most
from uncurse.jsonfile import SEAL, parse_json, read_json, sealed_json, unsealed
from uncurse.length import MLPLength
from uncurse.loading import load, open_model
from uncurse.models.ctranslate2 import marian_weights, read_model
from uncurse.models.directory import DESCRIPTION, load_folder
from uncurse.models.marian import read_marian, save_marian
from uncurse.models.predictors import LENGTH, load_predictor, save_predictor
from uncurse.parts import Parts
from uncurse.records import n_best_lines, text_line
from uncurse.shards import Shard
from uncurse.study.store import Recording, Store
from uncurse.testing import RandomModel
from uncurse.text.corpora import LONGEST_LINE, sentences_of
from uncurse.text.subwords import Subwords
from uncurse.text.vocabulary import Vocabulary
from uncurse.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from uncurse.training.log import read_log
from uncurse.training.recipe import read_recipe
from uncurse.translator import Translation

Config = dict[str, Any]
Tensors = dict[str, torch.Tensor]


# JSON and TOML.


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("1e999", "1e999 is too large"),
        ("9" * 5000, "99999999999999999999 is too large"),
        ("9223372036854775808", "9223372036854775808 is too large"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "a key is there twice"),
        ("{", "Expecting"),
    ],
)
def test_json_out_of_all_proportion_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_json(text)


def test_json_says_what_it_says() -> None:
    text = '{"a": [1, -9223372036854775808, 9223372036854775807, 0.1, 1e300, null, true], "b": {"c": "雨"}}'
    assert parse_json(text) == json.loads(text)


def test_a_file_that_is_not_text_or_has_no_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes('"é"'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin is not JSON that can be used: .*utf-8"):
        read_json(tmp_path / "latin")
    with pytest.raises(ValueError, match="/dev/zero has more than 1000 bytes"):
        read_at_most(Path("/dev/zero"), 1000)


def test_a_seal_tells_every_change() -> None:
    content = {"seconds": 1.25, "names": ["a", "雨"], "none": None}
    written = sealed_json(content)
    assert unsealed(parse_json(written)) == content
    for position in range(len(written)):
        changed = written[:position] + bytes([written[position] ^ 1]) + written[position + 1 :]
        try:
            found = unsealed(parse_json(changed))
        except ValueError:
            continue
        # white space, or the name of the seal or of a key: who reads it knows its keys
        assert found == content or found.keys() != content.keys()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("epochs = 2", f"epochs = {'9' * 5000}"), "Exceeds the limit|too large"),
        (("learning_rate = 0.004", f"learning_rate = {'9' * 400}"), "learning_rate must be a finite number"),
        (("learning_rate = 0.004", "learning_rate = nan"), "learning_rate must be a finite number"),
        (("learning_rate = 0.004", "learning_rate = -1"), "learning_rate = -1.0 is not allowed"),
        (("seed = 3", "seed = 18446744073709551616"), "seed = 18446744073709551616 is not allowed"),
        (("hidden = 64", "hidden = 1099511627776"), "hidden = 1099511627776 is not allowed"),
        (("source = 300", "source = -300"), "source = -300 is not allowed"),
        (("epochs = 2", "epochs = " + "[" * 5000 + "]" * 5000), "nested too deeply"),
        (("epochs = 2", "epochs = 1979-05-27"), "must be of type int"),
    ],
)
def test_a_recipe_out_of_all_proportion_is_refused(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    content = readers()["recipe"].files["recipe"].decode()
    assert change[0] in content
    (tmp_path / "recipe").write_text(content.replace(*change), encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        read_recipe(tmp_path / "recipe")


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
        (after(EMBEDDINGS, 9, b"\x03"), "embeddings/weight has numbers of type int32"),
        (after(EMBEDDINGS, 1, struct.pack("<II", 16, 40)), "cannot be run"),
        (renamed(b"layer_1/ffn/linear_0/w", b"layer_7/ffn/linear_0/w"), "for which there is no place"),
        (renamed(b"encoder/layer_1/ffn/layer_norm/beta", b"encoder/layer_1/ffn/layer_norm/beta"[:-4] + b"gamm"),
         "another family|lacks"),
        (lambda content: content + b"more", "goes on after its end"),
        (lambda content: after(b"encoder/num_heads", 2, struct.pack("<IH", 2, 3))(
            after(b"decoder/num_heads", 2, struct.pack("<IH", 2, 3))(content)
         ), "16 numbers cannot be shared by 3 heads"),
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
    with pytest.raises(ValueError, match=complaint):
        marian_weights(read_model(path), path, END)


def test_a_scale_that_is_nothing_is_refused(tmp_path: Path) -> None:
    write_ctranslate2(tmp_path, tiny_weights(whole=True))
    path = tmp_path / "model.bin"
    scale = b"decoder/layer_0/ffn/linear_0/weight_scale"
    path.write_bytes(after(scale, 10, struct.pack("<f", 0.0))(path.read_bytes()))
    with pytest.raises(ValueError, match="has a scale that is not above 0"):
        marian_weights(read_model(path), path, END)


@pytest.mark.parametrize(
    ("pieces", "complaint"),
    [
        ([*PIECES[:-1], PIECES[4]], "has a piece twice"),
        (PIECES[:-1], "39 pieces and 40 embeddings do not fit"),
        ([*PIECES, "猫"], "41 pieces and 40 embeddings do not fit"),
        ([*PIECES[:-1], 7], "is not a list of pieces"),
        ({"a": 1}, "is not a list of pieces"),
        (["<unk>", *PIECES[2:], "x"], "the vocabulary has no </s>"),
    ],
)
def test_a_vocabulary_with_twins_or_holes_is_refused(tmp_path: Path, pieces: object, complaint: str) -> None:
    write_ctranslate2(tmp_path, tiny_weights())
    (tmp_path / "source.spm").write_bytes(subword_model())
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(pieces), encoding="utf-8")
    for script in (None, "cjk"):
        with pytest.raises(ValueError, match=complaint):
            open_model(tmp_path, without_script=script)


def test_a_flipped_byte_in_a_fetched_model_is_noticed(tmp_path: Path) -> None:
    """The note that was made when it was fetched tells, whenever the model is loaded."""
    write_ctranslate2(tmp_path / "model", tiny_weights())
    (tmp_path / "sentencepiece.model").write_bytes(subword_model())
    names = ["model/model.bin", "model/shared_vocabulary.json", "sentencepiece.model"]
    noted = [{"name": name, "sha256": sha256((tmp_path / name).read_bytes()).hexdigest()} for name in names]
    (tmp_path / NOTE).write_text(json.dumps({"files": noted}), encoding="utf-8")
    open_model(tmp_path)
    for name in names:
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
        with pytest.raises(ValueError, match=f"{Path(name).name} is not the file it should be: its SHA-256 is"):
            open_model(tmp_path)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "model" / "shared_vocabulary.json").unlink()
    with pytest.raises(ValueError, match="is missing: both sides must share a vocabulary"):
        open_model(tmp_path)


# Marian as Hugging Face keeps it.


def marian(folder: Path) -> Path:
    save_marian(folder, tiny_weights())
    ids = {piece: index for index, piece in enumerate([*PIECES, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "source.spm").write_bytes(subword_model())
    return folder


FC1 = "model.encoder.layers.0.fc1.weight"
NORM = "model.decoder.layers.1.final_layer_norm.weight"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda old: {**old, FC1: old[FC1].T.contiguous()}, "has the shape"),
        (lambda old: {**old, FC1: old[FC1].to(torch.int32)}, "has numbers of type torch.int32"),
        (lambda old: {**old, FC1: old[FC1] * torch.nan}, "has a number that is not finite"),
        (lambda old: {**old, NORM: old[NORM][:1]}, r"has the shape \(1,\) and not \(16,\)"),
        (lambda old: {**old, NORM: torch.tensor(1.0)}, r"has the shape \(\) and not \(16,\)"),
        (lambda old: {name: each for name, each in old.items() if name != NORM}, NORM),
        (lambda old: {**old, "final_logits_bias": torch.zeros(1, 3)}, "has no embedding|has the shape"),
        (lambda old: {**old, "final_logits_bias": torch.tensor(1.0)}, "does not fit"),
        (lambda old: {**old, "model.shared.weight": torch.zeros(41)}, "has no embedding|two dimensions"),
    ],
)
def test_damaged_marian_weights_are_one_line_when_they_are_read(
    tmp_path: Path, change: Callable[[Tensors], Tensors], complaint: str
) -> None:
    path = marian(tmp_path) / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=complaint) as caught:
        read_marian(tmp_path)
    assert "model.safetensors does not fit" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"decoder_layers": 3}, "layers.2"),
        ({"decoder_layers": 0}, "its decoder has no layers"),
        ({"decoder_layers": 1 << 62}, "layers.2"),
        ({"decoder_layers": True}, "decoder_layers is True and not a whole number"),
        ({"decoder_layers": "2"}, "decoder_layers is '2' and not a whole number"),
        ({"encoder_attention_heads": 3, "decoder_attention_heads": 3}, "cannot be shared by 3 heads"),
        ({"encoder_attention_heads": 0, "decoder_attention_heads": 0}, "cannot be shared by 0 heads"),
        ({"decoder_attention_heads": None}, "field 'decoder_attention_heads'"),
        ({"eos_token_id": 99}, "</s> is token 99 of 41"),
        ({"eos_token_id": -1}, "</s> is token -1 of 41"),
        ({"pad_token_id": 99}, "has no embedding"),
        ({"decoder_start_token_id": -7}, "has no embedding"),
        ({"activation_function": ["relu"]}, "field 'activation_function'"),
        ({"scale_embedding": float("nan")}, "NaN is not a number"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(tmp_path: Path, change: Config, complaint: str) -> None:
    path = marian(tmp_path) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"<pad>": 39}, "the ids are not those from 0 on"),
        ({"<pad>": 41}, "the ids are not those from 0 on"),
        ({"<pad>": 40.0}, "it must give every piece a number"),
        ({"<unk>": True}, "it must give every piece a number"),
        ({"one more": 41}, "42 pieces and 41 embeddings do not fit"),
    ],
)
def test_ids_with_twins_or_holes_are_refused(tmp_path: Path, change: Config, complaint: str) -> None:
    path = marian(tmp_path) / "vocab.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        open_model(tmp_path)


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
    with pytest.raises(ValueError, match=r"its weights lack 'model.decoder.layers.0.fc1.weight'"):
        open_model(tmp_path)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = for_transformers(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    tensors["model.decoder.layers.0.fc1.weight"][3, 3] = torch.inf
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="has a number that is not finite"):
        open_model(tmp_path)


def test_weights_in_a_pickle_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = for_transformers(tmp_path) / "model.safetensors"
    torch.save(load_file(path), tmp_path / "pytorch_model.bin")
    path.unlink()
    monkeypatch.setattr(torch, "load", _never)
    with pytest.raises(ValueError, match="it has no weights in the format of safetensors"):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"encoder_layers": 1 << 40}, "its settings want 1099511627776 encoder_layers"),
        ({"d_model": 1 << 20}, r"its settings want \d+ numbers, and its weights have \d+ bytes"),
        ({"vocab_size": 1 << 30}, r"its settings want \d+ numbers, and its weights have \d+ bytes"),
        ({"vocab_size": 22}, "cannot be loaded|is none of the"),
        ({"dropout": None}, "cannot be run: "),
        ({"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}, "cannot be loaded"),
    ],
)
def test_settings_for_transformers_are_kept_in_proportion(tmp_path: Path, change: Config, complaint: str) -> None:
    path = for_transformers(tmp_path) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        open_model(tmp_path)
    assert not (tmp_path / "ran").exists()


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


# Text.


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"short\n" + b"x" * (LONGEST_LINE - 1) + b"\n" + b"x" * (LONGEST_LINE + 1))
    lines = sentences_of([path])
    assert next(lines) == "short"
    assert len(next(lines)) == LONGEST_LINE - 1
    with pytest.raises(ValueError, match="text, line 3 has more than 1048576 bytes"):
        next(lines)


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ('{"text": "\\ud800"}', "line 1: not valid Unicode"),
        ('{"text": "a\\nb"}', "line 1: the text has more than one line"),
        ('{"text": 7}', "line 1: there is no 'text' with a sentence"),
        ('{"text": "a", "text": "b"}', "line 1: not JSON"),
        ("[" * 100_000, "line 1: not JSON"),
    ],
)
def test_a_record_that_is_no_sentence_is_named(tmp_path: Path, records: str, complaint: str) -> None:
    (tmp_path / "a.jsonl").write_text(records, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"a\.jsonl, {complaint}"):
        list(sentences_of([tmp_path / "a.jsonl"]))


def test_a_table_that_holds_no_sentences_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns: list[tuple[dict[str, Any], str]] = [
        ({"text": [1]}, "row 1: there is no 'text' with a sentence"),
        ({"text": ["a", None]}, "row 2: there is no 'text' with a sentence"),
        ({"text": [["a"]]}, "the column 'text' does not hold sentences"),
        ({"text": ["x" * (LONGEST_LINE + 1)]}, f"row 1 has more than {LONGEST_LINE} characters"),
        ({"line": ["a"]}, "has no column 'text': line"),
    ]
    for column, complaint in columns:
        pyarrow.parquet.write_table(pyarrow.table(column), path)
        with pytest.raises(ValueError, match=complaint):
            list(sentences_of([path]))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is not a whole Parquet file"):
        list(sentences_of([path]))


def test_a_repeated_text_is_held_once(tmp_path: Path) -> None:
    """A file of some kilobytes can repeat a megabyte as often as it likes."""
    path = tmp_path / "a.parquet"
    repeated = pyarrow.DictionaryArray.from_arrays([0] * 1000, ["x" * LONGEST_LINE])
    pyarrow.parquet.write_table(pyarrow.table({"text": repeated}), path, store_schema=False)
    assert path.stat().st_size < 1 << 17
    before = pyarrow.total_allocated_bytes()
    lines = sentences_of([path])
    assert len(next(lines)) == LONGEST_LINE
    assert pyarrow.total_allocated_bytes() - before < 1 << 25  # and not a gigabyte
    lines.close()  # type: ignore[attr-defined]


def test_a_translation_stays_on_its_line() -> None:
    vocabulary = Vocabulary(["</s>", "<unk>", "▁a\nb", "\r\nc"])
    translation = Translation("x", (vocabulary.text([2, 3, 0]),), None, None)
    assert translation.texts == ("a\nb\r\nc",)
    assert text_line(translation) == "a b  c"
    assert n_best_lines(translation, 0).count("\n") == 0


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_is_no_subword_model_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="it is not a subword model"):
        Subwords(content)


@pytest.mark.parametrize("command", [["explain"], ["translate", "--target-prefix"]])
def test_a_text_of_another_encoding_is_one_line(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*command, b"\xff".decode(errors="surrogateescape")])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("it is not in UTF-8\n")
    assert said.err.count("\n") == 1


def test_an_error_is_one_line_whatever_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _fail("a name \x1b[2J\x07 with\na bell \u202e and more" + "x" * 100_000)
    said = capsys.readouterr().err
    assert said.startswith("uncurse: a name \ufffd[2J\ufffd with a bell \ufffd and more")
    assert said.count("\n") == 1
    assert len(said) < LONGEST_MESSAGE + 20


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
            "torch.load",
            "np.load",
            "numpy.load",
            "torch.jit.load",
            "__import__",
        )
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
