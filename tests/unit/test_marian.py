"""The Marian runtime: the step model, its prefix tree, and the folders it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_marian import (
    EOS,
    TOKENS,
    VOCAB_SIZE,
    tiny_weights,
    tokenizer_model,
    write_ctranslate2,
    write_huggingface,
)

import uncurse
from uncurse import Decoding, Sentence, UncurseError, beam_search
from uncurse.cli import main
from uncurse.models.load import load_model
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.special_tokens import marian_tokens
from uncurse.models.transformer.ctranslate2_file import read_model, transformer_weights
from uncurse.models.transformer.huggingface_file import read_marian, save_marian
from uncurse.models.transformer.layers import TransformerNetwork
from uncurse.models.transformer.linear import ComputeType
from uncurse.models.transformer.step_model import TransformerStepModel
from uncurse.search.forced_decoding import force_decode
from uncurse.testing import check_step_model
from uncurse.text.marian_tokenizer import RankedTokenizer, Vocabulary

CPU = torch.device("cpu")
SOURCES = [(5, 6, 7, 8), (9,), (4, 4, 4), (11, 3, 8, 7, 2), ()]


def model(compute_type: ComputeType = ComputeType.FLOAT32, seed: int = 1) -> TransformerStepModel:
    return TransformerStepModel(TransformerNetwork(tiny_weights(seed), compute_type, CPU), "tiny")


def loaded(folder: Path, **options: Any) -> LoadedModel:
    return load_model(ModelOptions(str(folder), **options))


@pytest.mark.parametrize("compute_type", [ComputeType.FLOAT32, ComputeType.INT8])
def test_the_transformer_keeps_the_contract_of_a_step_model(compute_type: ComputeType) -> None:
    check_step_model(model(compute_type), SOURCES, steps=9, tolerance=1e-5)


def test_attention_is_over_the_tokens_of_the_source_and_its_eos() -> None:
    steps = model()
    given, _ = steps.step(steps.start(SOURCES), np.full(5, steps.bos), 2, attention=True)
    assert given.attention is not None
    for row, source in enumerate(SOURCES):
        assert given.attention[row].sum() == pytest.approx(1.0, abs=1e-6)
        assert (given.attention[row, len(source) + 1 :] == 0).all()


def test_a_language_token_comes_before_the_source_and_is_not_counted() -> None:
    language = 5
    network = TransformerNetwork(tiny_weights(), ComputeType.FLOAT32, CPU)
    tagged = TransformerStepModel(network, "tagged", marian_tokens(EOS, VOCAB_SIZE, language))
    plain = model()
    check_step_model(tagged, SOURCES, steps=5, tolerance=1e-5)
    by_hand = [(language, *source) for source in SOURCES]
    assert np.allclose(tagged.features(SOURCES), plain.features(by_hand), atol=1e-6)
    begin = np.full(len(SOURCES), plain.bos)
    found, _ = tagged.step(tagged.start(SOURCES), begin, 3, attention=True)
    expected, _ = plain.step(plain.start(by_hand), begin, 3, attention=True)
    assert (found.tokens == expected.tokens).all()
    assert found.attention is not None
    assert expected.attention is not None
    assert np.allclose(found.attention, expected.attention[:, 1:], atol=1e-6)
    assert tagged.max_source_length == plain.max_source_length - 1


def test_prefixes_share_the_nodes_of_their_tree() -> None:
    steps = model()
    state = steps.start(SOURCES[:2])
    for _ in range(30):  # every prefix of a sentence has the same parent
        _, state = steps.step(state, np.full(len(state.paths), 7), 1, attention=False)
        rows = state.sentence.numpy()
        state = state.select(np.repeat([int(np.argmax(rows == 0)), int(np.argmax(rows == 1))], 10))
    assert state.paths.shape == (20, 30)
    assert state.tree.capacity <= 30 + 5 * 10  # and not 30 nodes for each of 10 prefixes


def test_finished_sentences_leave_nothing_in_the_cache() -> None:
    steps = model()
    state = steps.start(SOURCES[:1])
    for _ in range(40):  # another joins, three steps are made, the first leaves
        state = state.append(steps.start(SOURCES[:1]))
        for _ in range(3):
            _, state = steps.step(state, np.full(len(state.paths), 7), 1, attention=False)
        state = state.select(np.arange(1, len(state.paths)))
    assert state.paths.shape == (1, 3)
    assert state.tree.capacity <= 10


def test_a_long_source_leaves_no_padding_behind() -> None:
    steps = model()
    state = steps.start([SOURCES[1], (5,) * 40])
    _, state = steps.step(state, np.full(2, 7), 1, attention=False)
    state = state.select(np.array([0]))
    assert state.source.is_token.shape == (1, 2)  # its token and </s>
    assert all(part.shape[2] == 2 for part in (*state.source.keys, *state.source.values))
    alone = steps.start(SOURCES[1:2])
    _, alone = steps.step(alone, np.array([7]), 1, attention=False)
    found, expected = (steps.step(each, np.array([8]), 3, attention=True)[0] for each in (state, alone))
    assert np.allclose(found.log_probs, expected.log_probs, atol=1e-5)


@pytest.mark.slow
def test_a_finished_sentence_has_no_effect_on_the_others() -> None:
    steps = model()
    state, alone = steps.start(SOURCES[:1]), steps.start(SOURCES)
    for _ in range(steps.max_target_length - 1):
        _, state = steps.step(state, np.array([7]), 1, attention=False)
    state = state.append(steps.start(SOURCES)).select(np.arange(1, 1 + len(SOURCES)))
    assert len(state.depth) == 1 + len(SOURCES)  # it is still there, one step before its end
    for _ in range(3):
        found, state = steps.step(state, np.full(len(SOURCES), 7), 3, attention=True)
        expected, alone = steps.step(alone, np.full(len(SOURCES), 7), 3, attention=True)
        assert np.allclose(found.log_probs, expected.log_probs, atol=1e-5)
        assert found.attention is not None
        assert expected.attention is not None
        assert np.allclose(found.attention, expected.attention, atol=1e-6)


def test_tokens_of_a_script_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ctranslate2(tmp_path, tiny_weights(eos_bias=1.0))
    tokens = [*TOKENS[:-4], "猫", "▁狗7", "я", "▁о"]
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(tokens), encoding="utf-8")
    (tmp_path / "source.spm").write_bytes(tokenizer_model())
    every, fewer = loaded(tmp_path).model, loaded(tmp_path, without_script="CJK").model
    assert fewer.signature == f"{every.signature}-without-cjk"
    check_step_model(fewer, SOURCES)
    given, _ = fewer.step(fewer.start([(5, 6)]), np.array([fewer.bos]), len(tokens), attention=False)
    said = dict(zip(given.tokens[0].tolist(), given.log_probs[0].tolist(), strict=True))
    assert {token for token, value in said.items() if value == -np.inf} == {len(tokens) - 4, len(tokens) - 3}
    assert np.exp(list(said.values())).sum() == pytest.approx(1.0, abs=1e-5)
    assert loaded(tmp_path, without_script=" CJK").model.signature == fewer.signature
    assert uncurse.load(tmp_path, without_script="cjk").model.signature == fewer.signature
    for command in (["translate", "--model"], ["serve", "--port", "0", "--model"]):
        with pytest.raises(SystemExit, match="2"):
            main([*command, str(tmp_path), "--without-script", "cyrilic"])
        assert "script 'cyrilic'; did you mean 'cyrillic'?" in capsys.readouterr().err
    for folder, script, message in (
        (tmp_path, "hangul", "no token has letters of the script 'hangul'"),
        (tmp_path, "digit", "no token has letters of the script 'digit'"),
        (Path("zh-en-small"), "cjk", "without_script = 'cjk' is not allowed: an LSTM model does not take it"),
    ):
        with pytest.raises(UncurseError, match=message):
            loaded(folder, without_script=script)


@pytest.mark.parametrize("int8", [False, True])
def test_a_ctranslate2_folder_gives_the_weights_that_were_written(tmp_path: Path, int8: bool) -> None:
    weights = tiny_weights(int8=int8)
    write_ctranslate2(tmp_path, weights)
    found = transformer_weights(read_model(tmp_path / "model.bin"), tmp_path, EOS)
    assert found.matrices.keys() == weights.matrices.keys()
    assert found.vectors.keys() == weights.vectors.keys()
    assert all(
        torch.equal(found.matrices[name].dequantize(), each.dequantize())
        for name, each in weights.matrices.items()
    )
    assert (found.heads, found.activation, found.eos) == (weights.heads, weights.activation, weights.eos)


def test_ctranslate2_finds_the_same_translations(tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    write_ctranslate2(tmp_path, tiny_weights(seed=2, eos_bias=4.0))
    peer = ctranslate2.Translator(str(tmp_path), device="cpu", compute_type="float32", intra_threads=1)
    sources = [source for source in SOURCES if source]
    theirs = peer.translate_batch(
        [[TOKENS[token] for token in source] for source in sources],
        beam_size=5, length_penalty=1, patience=1, min_decoding_length=0, max_decoding_length=40,
        return_scores=True,
    )  # fmt: skip
    steps = TransformerStepModel(
        TransformerNetwork(tiny_weights(seed=2, eos_bias=4.0), ComputeType.FLOAT32, CPU), "tiny"
    )
    decoding = Decoding(5, "length-norm", "beam-full", slots="refill")
    ours = beam_search(steps, [Sentence(source, max_length=41) for source in sources], decoding)
    for peer_result, result in zip(theirs, ours, strict=True):
        best = result.hypotheses[0]
        assert [TOKENS[token] for token in best.tokens[:-1]] == peer_result.hypotheses[0]
        assert best.score == pytest.approx(peer_result.scores[0], abs=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("kind", [None, "int8", "int8_bfloat16", "int16", "float16", "bfloat16"])
def test_models_that_ctranslate2_converted_are_read(tmp_path: Path, kind: str | None) -> None:
    """Its own converter has more settings, stores the scale of embeddings as a float, and equal arrays once."""
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    weights, folder = tiny_weights(seed=2, eos_bias=4.0), tmp_path / "converted"
    for layer in range(2):
        weights.vectors[f"encoder/layer_{layer}/ffn/linear_1/bias"].zero_()
    write_huggingface(tmp_path / "marian", weights)
    converter = ctranslate2.converters.TransformersConverter(
        str(tmp_path / "marian"), copy_files=["source.spm", "target.spm"]
    )
    converter.convert(str(folder), quantization=kind)
    steps = loaded(folder).model
    peer = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    sources = [source for source in SOURCES if source]
    theirs = peer.translate_batch(
        [[TOKENS[token] for token in (*source, EOS)] for source in sources],  # it leaves </s> to the tokenizer
        beam_size=4, length_penalty=1, min_decoding_length=0, max_decoding_length=40, return_scores=True,
    )  # fmt: skip
    decoding = Decoding(4, "length-norm", "beam-full", slots="refill")
    ours = beam_search(steps, [Sentence(source, max_length=41) for source in sources], decoding)
    for peer_result, result in zip(theirs, ours, strict=True):
        best = result.hypotheses[0]
        assert [TOKENS[token] for token in best.tokens[:-1]] == peer_result.hypotheses[0]
        assert best.score == pytest.approx(peer_result.scores[0], abs=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_an_output_bias_that_ctranslate2_does_not_store_is_zero(tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    weights, folder = tiny_weights(seed=2), tmp_path / "converted"
    weights.vectors["decoder/projection/bias"].zero_()
    write_huggingface(tmp_path / "marian", weights)
    ctranslate2.converters.TransformersConverter(
        str(tmp_path / "marian"), copy_files=["source.spm", "target.spm"]
    ).convert(str(folder))
    assert "decoder/projection/bias" not in read_model(folder / "model.bin")
    source, target = (5, 6, 7), (9, 8, 30, 4)
    (ours,) = force_decode(loaded(folder).model, [source], [target])
    peer = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    given = [[TOKENS[token] for token in tokens] for tokens in ((*source, EOS), target)]
    (theirs,) = peer.score_batch([given[0]], [given[1]])
    assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-3)


def test_hugging_face_gives_the_same_log_probabilities(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    weights = tiny_weights(seed=4)
    save_marian(tmp_path, weights)
    network = transformers.MarianMTModel.from_pretrained(tmp_path).eval()
    steps = TransformerStepModel(TransformerNetwork(read_marian(tmp_path), ComputeType.FLOAT32, CPU), "tiny")
    source, tokens = (5, 9, 3), [7, 30, 2, 11]
    with torch.inference_mode():
        logits = network(
            input_ids=torch.tensor([[*source, EOS]]), decoder_input_ids=torch.tensor([[VOCAB_SIZE, *tokens]])
        ).logits[0]
        logits[:, VOCAB_SIZE] = -torch.inf  # padding
    expected = logits.log_softmax(dim=1).numpy()
    state = steps.start([source])
    for position, fed in enumerate([steps.bos, *tokens]):
        given, state = steps.step(state, np.array([fed]), VOCAB_SIZE, attention=False)
        assert np.abs(given.log_probs[0] - expected[position, given.tokens[0]]).max() < 1e-4


def broken(folder: Path, change: Callable[[bytes], bytes]) -> None:
    path = folder / "model.bin"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[: len(content) // 2], "is cut off"),
        (lambda content: b"\x05" + content[1:], "not a CTranslate2 model of binary version 6"),
        (lambda content: content.replace(b"TransformerSpec", b"WhisperrrrrSpec"), "is a WhisperrrrrSpec"),
        (
            lambda content: content.replace(b"decoder/alignment_heads", b"decoder/relative_xxxxxx"),
            "it has decoder/rel",
        ),
        (
            lambda content: content.replace(b"encoder/scale_embeddings", b"encoder/scale_embexxxxxx"),
            "it has encoder/scale_embexxxxxx",
        ),
        (
            lambda content: content.replace(
                b"scale_embeddings\0\0\1\1\0\0\0\1", b"scale_embeddings\0\0\1\1\0\0\0\0"
            ),
            "Marian models scale their embeddings",
        ),
        (
            lambda content: content.replace(b"encoder/embeddings_0/weight", b"encoder/embeddings_1/weight"),
            "is not supported: it has encoder/embeddings_1/weight",
        ),
        (lambda content: content[:40] + b"\xff" * 8 + content[48:], "damaged|is cut off|not a CTranslate2"),
    ],
)
def test_an_error_names_what_is_wrong_with_a_model(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    write_ctranslate2(tmp_path, tiny_weights())
    broken(tmp_path, change)
    with pytest.raises(UncurseError, match=message):
        transformer_weights(read_model(tmp_path / "model.bin"), tmp_path, EOS)


def test_the_files_of_a_folder_decide_how_it_is_loaded(tmp_path: Path) -> None:
    argos, marian = tmp_path / "argos", tmp_path / "marian"
    write_ctranslate2(argos / "model", tiny_weights())
    (argos / "sentencepiece.model").write_bytes(tokenizer_model())
    write_huggingface(marian, tiny_weights())
    lines = ["a b c", "", "s r q p"]
    found = [
        [each.text for each in uncurse.load(folder).translate(lines, beam_size=3, length_ratio=1.5)]
        for folder in (argos, marian)
    ]
    assert found[0] == found[1]
    assert found[0][1] == ""
    assert loaded(argos, dtype="int8").model.signature.split("-")[2] in ("int8x8", "int8x7")
    with pytest.raises(UncurseError, match="dtype = 'int4' is not allowed; did you mean 'int8'"):
        loaded(argos, dtype="int4")
    with pytest.raises(UncurseError, match="source_lang = 'zh' is not allowed: a Marian model does not take it"):
        loaded(argos, source_lang="zh")
    with pytest.raises(UncurseError, match="one language and takes no target_lang"):
        loaded(argos, target_lang="fra")
    languages = [*TOKENS[:-2], ">>deu<<", ">>fra<<"]
    (argos / "model" / "shared_vocabulary.json").write_text(json.dumps(languages), encoding="utf-8")
    for wrong in ({}, {"target_lang": "zho"}):
        with pytest.raises(UncurseError, match="give target_lang, one of deu, fra"):
            loaded(argos, **wrong)
    german, french = (loaded(argos, target_lang=language) for language in ("deu", "fra"))
    assert german.fingerprint != french.fingerprint
    assert not np.allclose(german.model.features([(7, 8)]), french.model.features([(7, 8)]), atol=1e-3)
    (argos / "model" / "shared_vocabulary.json").write_text(
        json.dumps([*TOKENS[:-1], TOKENS[3]]), encoding="utf-8"
    )
    with pytest.raises(UncurseError, match="a token occurs twice"):
        loaded(argos)
    (argos / "model" / "shared_vocabulary.json").write_text(json.dumps(TOKENS), encoding="utf-8")
    broken(
        argos / "model",
        lambda content: content.replace(
            b"encoder/layer_0/ffn/linear_1/bias", b"encoder/layer_9/ffn/linear_1/bias"
        ),
    )
    with pytest.raises(UncurseError, match="it has 'encoder/layer_9/ffn/linear_1/bias'"):
        loaded(argos)
    with pytest.raises(UncurseError, match="did you mean 'opus-mt-zh-en'"):
        loaded(Path("opus-mt-zh"))


def test_a_ranked_tokenizer_prefers_few_and_frequent_tokens() -> None:
    tokenizer = RankedTokenizer(Vocabulary(["</s>", "<unk>", "▁a", "b", "▁ab", "c", "▁"]))
    assert tokenizer.encode(["ab c abb", "", "x"]) == [[4, 6, 5, 4, 3], [], [6, 1]]
    assert tokenizer.decode([4, 6, 5, 4, 3, 0]) == "ab c abb"
