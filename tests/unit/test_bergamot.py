"""Bergamot models: the file format, the arithmetic against a plain one, the contract of step models, folders."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.tiny_bergamot import (
    CONFIG,
    D_MODEL,
    FLOAT32,
    HEADS,
    VOCAB_SIZE,
    VOCABULARY,
    WEIGHTS,
    Item,
    marian_file,
    tiny_arrays,
    tiny_items,
    write_bergamot,
)

import uncurse
from uncurse import UncurseError
from uncurse.arrays import Floats
from uncurse.models.load import load_model
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.testing import check_step_model

EOS = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_bergamot(tmp_path)
    return tmp_path


def loaded(folder: Path, dtype: str = "float32") -> LoadedModel:
    return load_model(ModelOptions(str(folder), dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_it_keeps_the_contract_of_step_models(folder: Path, dtype: str) -> None:
    check_step_model(loaded(folder, dtype).model, [(3, 4, 5), (), (6,), (7, 8, 9, 10, 11, 3)])


# A plain implementation: one sentence, all positions at once, in double precision, by Marian's names.


def norm(arrays: dict[str, Floats], name: str, states: Floats) -> Floats:
    centred = states - states.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    normed: Floats = centred / deviation * arrays[f"{name}_ln_scale"] + arrays[f"{name}_ln_bias"]
    return normed


def attention(arrays: dict[str, Floats], name: str, queries: Floats, source: Floats) -> Floats:
    projected = {
        part: rows @ arrays[f"{name}_W{part}"] + arrays[f"{name}_b{part}"]
        for part, rows in (("q", queries), ("k", source), ("v", source))
    }
    heads = []
    for columns in np.split(np.arange(D_MODEL), HEADS):
        scores = projected["q"][:, columns] @ projected["k"][:, columns].T / np.sqrt(D_MODEL // HEADS)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ projected["v"][:, columns])
    attended = np.concatenate(heads, axis=1) @ arrays[f"{name}_Wo"] + arrays[f"{name}_bo"]
    return norm(arrays, f"{name}_Wo", queries + attended)


def feed_forward(arrays: dict[str, Floats], name: str, states: Floats) -> Floats:
    inner = np.maximum(states @ arrays[f"{name}_W1"] + arrays[f"{name}_b1"], 0.0)
    return norm(arrays, f"{name}_ffn", states + inner @ arrays[f"{name}_W2"] + arrays[f"{name}_b2"])


def embedded(arrays: dict[str, Floats], tokens: list[int]) -> Floats:
    """Embeddings of tokens, with zeros for the token -1, plus positions."""
    rows = np.array([arrays["Wemb"][token] * (token >= 0) for token in tokens]) * np.sqrt(D_MODEL)
    half = D_MODEL // 2
    angles = np.arange(len(tokens))[:, None] * np.exp(-np.log(10000.0) * np.arange(half) / (half - 1))
    placed: Floats = rows + np.concatenate((np.sin(angles), np.cos(angles)), axis=1)
    return placed


def plain_log_probs(source: list[int], target: list[int]) -> Floats:
    """The log-probabilities after each prefix of the target, [positions, vocab_size]."""
    arrays = tiny_arrays()
    states = embedded(arrays, [*source, EOS])
    for layer in (1, 2):
        states = attention(arrays, f"encoder_l{layer}_self", states, states)
        states = feed_forward(arrays, f"encoder_l{layer}_ffn", states)
    source_states, states = states, embedded(arrays, [-1, *target])
    for layer in (1, 2):
        name = f"decoder_l{layer}_rnn"
        cell, outputs = np.zeros(D_MODEL), []
        for row in states:
            gate = 1.0 / (1.0 + np.exp(-(row @ arrays[f"{name}_Wf"] + arrays[f"{name}_bf"][0])))
            cell = gate * cell + (1.0 - gate) * (row @ arrays[f"{name}_W"])
            outputs.append(np.maximum(cell, 0.0))
        states = norm(arrays, f"{name}_ffn", states + np.array(outputs))
        states = attention(arrays, f"decoder_l{layer}_context", states, source_states)
        states = feed_forward(arrays, f"decoder_l{layer}_ffn", states)
    logits = states @ arrays["Wemb"].T + arrays["decoder_ff_logit_out_b"]
    highest = logits.max(axis=1, keepdims=True)
    log_probs: Floats = logits - highest - np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
    return log_probs


def test_the_steps_give_what_a_plain_implementation_gives(folder: Path) -> None:
    model = loaded(folder).model
    source, target = [3, 9, 4, 4, 17], [5, 11, 2, 20]
    state = model.start([source, [8]])  # the second only to pad the batch
    expected = plain_log_probs(source, target)
    for token, wanted in zip([model.bos, *target], expected, strict=True):
        found, state = model.step(state, np.array([token, token]), VOCAB_SIZE, attention=True)
        order = np.argsort(found.tokens[0])
        np.testing.assert_allclose(found.log_probs[0][order], wanted, atol=2e-4)
        assert found.attention is not None
        np.testing.assert_allclose(found.attention[0].sum(), 1.0, atol=1e-5)


def test_a_folder_translates(folder: Path) -> None:
    translator = uncurse.load(folder)
    (found,) = translator.translate(["a b c"], beam_size=4, score="gnmt:beta=0.2", n_best=3)
    assert len(set(found.texts)) == 3
    assert "bergamot-" in translator.signature


def changed(**items: Item | None) -> bytes:
    """A file with other items; None leaves one out."""
    both = {**tiny_items(), **items}
    return marian_file({name: item for name, item in both.items() if item is not None})


def with_setting(line: str, instead: str) -> bytes:
    assert line in CONFIG
    return marian_file(tiny_items(config=CONFIG.replace(line, instead)))


BIAS: Item = FLOAT32, (1, D_MODEL), struct.pack(f"<{D_MODEL}f", *[0.5] * D_MODEL)
WHOLE = changed()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is cut off"),
        (b"\2" + WHOLE[1:], "it is not a Marian model of binary version 1"),
        (WHOLE[:-1], "it is cut off"),
        (WHOLE[:100], "it announces more arrays than it has"),
        (WHOLE + b"\0", "it has bytes after its end"),
        (WHOLE[:8] + struct.pack("<Q", 1 << 60) + WHOLE[16:], "it announces more arrays than it has"),
        (changed(encoder_l1_ffn_b2=None), "'encoder_l1_ffn_b2' is missing"),
        (changed(encoder_l1_ffn_W1=None), "'encoder_l1_ffn_W1' is missing"),
        (changed(decoder_l1_rnn_Wo=BIAS), "it has 'decoder_l1_rnn_Wo', which a Bergamot model does not have"),
        (changed(encoder_l1_self_bq=(FLOAT32, (1, 3), bytes(12))), "_self_bq' has 3 values; expected 16"),
        (changed(encoder_l1_self_bq=(FLOAT32, (1, 16), bytes(12))), r"_self_bq' \(1, 16\) has 12 bytes"),
        (changed(encoder_l1_self_bq=(FLOAT32, (-1, -16), bytes(64))), r"has the shape \(-1, -16\)"),
        (changed(encoder_l1_self_bq=(FLOAT32, (1,) * 9, bytes(64))), "has 9 dimensions"),
        (changed(encoder_l1_self_bq=(0x402, (1, 16), bytes(64))), "has the type 0x402; float32 and intgemm8"),
        (
            changed(encoder_l1_self_bq=(FLOAT32, (1, 16), struct.pack("<16f", *[np.nan] * 16))),
            "'encoder_l1_self_bq' has a value that is not finite",
        ),
        (changed(encoder_l1_self_Wq=(0x4101, (16, 16), bytes(512))), "has a scale that is not a number above 0"),
        (changed(encoder_l1_self_Wq=(0x4101, (16, 17), bytes(512))), r"has \(17, 16\) outputs and inputs"),
        (with_setting("dec-cell: ssru", "dec-cell: gru"), "not a Bergamot model: dec-cell is 'gru', not 'ssru'"),
        (with_setting("type: transformer\n", ""), "it is not a Bergamot model: type is None"),
        (with_setting("enc-depth: 2", "enc-depth: 99999"), "enc-depth is '99999'; expected a number"),
        (with_setting("enc-depth: 2", "enc-depth: 3"), "'encoder_l3_ffn_W1' is missing"),
        (with_setting("heads: 2", "heads: 3"), "a model of size 16 cannot have 3 attention heads"),
        (with_setting("activation: relu", "activation: maxout"), "its activation function is 'maxout'"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_bergamot_model_is_refused_in_a_line(
    folder: Path, content: bytes, message: str
) -> None:
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(UncurseError, match=message) as caught:
        loaded(folder)
    assert str(folder / WEIGHTS) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_needs_one_vocabulary_of_the_right_size(folder: Path) -> None:
    items = tiny_items()
    items["Wemb"] = (items["Wemb"][0], (22, D_MODEL), items["Wemb"][2][D_MODEL:])
    items["decoder_ff_logit_out_b"] = FLOAT32, (1, 22), bytes(4 * 22)
    (folder / WEIGHTS).write_bytes(marian_file(items))
    with pytest.raises(UncurseError, match="the vocabulary has 23 tokens and the model 22 embeddings"):
        loaded(folder)
    (folder / "vocab.other.spm").write_bytes((folder / VOCABULARY).read_bytes())
    with pytest.raises(UncurseError, match=r"has 2 files vocab\.\*\.spm; a Bergamot model here has one"):
        loaded(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ModelOptions(target_lang="por"), "target_lang = 'por' is not allowed: a Bergamot model does not take it"),
        (ModelOptions(vocabulary_selection=True), "vocabulary_selection = True is not allowed"),
        (ModelOptions(dtype="int4"), "dtype = 'int4' is not allowed"),
    ],
)
def test_options_that_cannot_act_are_refused(folder: Path, options: ModelOptions, message: str) -> None:
    with pytest.raises(UncurseError, match=message):
        load_model(replace(options, model=str(folder)))
