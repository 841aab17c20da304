"""The Transformer runtime: its numbers, its tree of prefixes and the folders it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import END, PIECES, VOCABULARY, subword_model, tiny_weights, write_ctranslate2

import uncurse
from uncurse import Decoding, Sentence, beam_search
from uncurse.cli import main
from uncurse.corpus import Opening
from uncurse.forced import force_decode
from uncurse.loading import load, open_model
from uncurse.models.ctranslate2 import marian_weights, read_model
from uncurse.models.marian import read_marian, save_marian
from uncurse.models.products import Numbers
from uncurse.models.transformer import Transformer
from uncurse.models.transformer_steps import TransformerStepModel
from uncurse.models.transformer_weights import TransformerWeights
from uncurse.testing import check_step_model
from uncurse.text.vocabulary import RankedPieces, Vocabulary

CPU = torch.device("cpu")
SOURCES = [(5, 6, 7, 8), (9,), (4, 4, 4), (11, 3, 8, 7, 2), ()]


def model(numbers: Numbers = Numbers.FLOAT32, seed: int = 1) -> TransformerStepModel:
    return TransformerStepModel(Transformer(tiny_weights(seed), numbers, CPU), "tiny")


@pytest.mark.parametrize("numbers", [Numbers.FLOAT32, Numbers.INT8])
def test_the_transformer_keeps_the_contract_of_a_step_model(numbers: Numbers) -> None:
    check_step_model(model(numbers), SOURCES, steps=9, tolerance=1e-5)


def test_attention_is_over_the_pieces_of_the_source_and_its_end() -> None:
    steps = model()
    given, _ = steps.step(steps.start(SOURCES), np.full(5, steps.begin), 2, attention=True)
    assert given.attention is not None
    for row, source in enumerate(SOURCES):
        assert given.attention[row].sum() == pytest.approx(1.0, abs=1e-6)
        assert (given.attention[row, len(source) + 1 :] == 0).all()


def test_a_language_is_asked_for_before_the_pieces_and_counts_as_none() -> None:
    tag = 5
    tagged = TransformerStepModel(Transformer(tiny_weights(), Numbers.FLOAT32, torch.device("cpu")), "tagged", tag)
    plain = model()
    check_step_model(tagged, SOURCES, steps=5, tolerance=1e-5)
    by_hand = [(tag, *source) for source in SOURCES]
    assert np.allclose(tagged.features(SOURCES), plain.features(by_hand), atol=1e-6)
    begin = np.full(len(SOURCES), plain.begin)
    found, _ = tagged.step(tagged.start(SOURCES), begin, 3, attention=True)
    expected, _ = plain.step(plain.start(by_hand), begin, 3, attention=True)
    assert (found.tokens == expected.tokens).all()
    assert found.attention is not None
    assert expected.attention is not None
    assert np.allclose(found.attention, expected.attention[:, 1:], atol=1e-6)
    assert tagged.longest_source == plain.longest_source - 1


def test_prefixes_share_the_nodes_of_their_tree() -> None:
    steps = model()
    state = steps.start(SOURCES[:2])
    for _ in range(30):  # every prefix of a sentence has the same parent
        _, state = steps.step(state, np.full(len(state.paths), 7), 1, attention=False)
        rows = state.sentence.numpy()
        state = state.select(np.repeat([int(np.argmax(rows == 0)), int(np.argmax(rows == 1))], 10))
    assert state.paths.shape == (20, 30)
    assert state.tree.room <= 30 + 5 * 10  # and not 30 nodes for each of 10 prefixes


def test_sentences_that_have_left_leave_nothing_behind() -> None:
    steps = model()
    state = steps.start(SOURCES[:1])
    for _ in range(40):  # another joins, three steps are made, the first leaves
        state = state.append(steps.start(SOURCES[:1]))
        for _ in range(3):
            _, state = steps.step(state, np.full(len(state.paths), 7), 1, attention=False)
        state = state.select(np.arange(1, len(state.paths)))
    assert state.paths.shape == (1, 3)
    assert state.tree.room <= 10


def test_a_long_source_that_has_left_leaves_no_padding() -> None:
    steps = model()
    state = steps.start([SOURCES[1], (5,) * 40])
    _, state = steps.step(state, np.full(2, 7), 1, attention=False)
    state = state.select(np.array([0]))
    assert state.memory.inside.shape == (1, 2)  # its piece and </s>
    assert all(part.shape[2] == 2 for part in (*state.memory.keys, *state.memory.values))
    alone = steps.start(SOURCES[1:2])
    _, alone = steps.step(alone, np.array([7]), 1, attention=False)
    found, expected = (steps.step(each, np.array([8]), 3, attention=True)[0] for each in (state, alone))
    assert np.allclose(found.log_probs, expected.log_probs, atol=1e-5)


def test_a_sentence_that_has_left_counts_no_more() -> None:
    steps = model()
    state, alone = steps.start(SOURCES[:1]), steps.start(SOURCES)
    for _ in range(steps.longest_output - 1):
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


def test_pieces_of_a_script_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_ctranslate2(tmp_path, tiny_weights(ending=1.0))
    pieces = [*PIECES[:-4], "猫", "▁狗7", "я", "▁о"]
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(pieces), encoding="utf-8")
    (tmp_path / "source.spm").write_bytes(subword_model())
    every, fewer = (open_model(tmp_path, without_script=script).model for script in (None, "CJK"))
    assert fewer.signature == f"{every.signature}-without-cjk"
    check_step_model(fewer, SOURCES)
    given, _ = fewer.step(fewer.start([(5, 6)]), np.array([fewer.begin]), len(pieces), attention=False)
    said = dict(zip(given.tokens[0].tolist(), given.log_probs[0].tolist(), strict=True))
    assert {token for token, value in said.items() if value == -np.inf} == {len(pieces) - 4, len(pieces) - 3}
    assert np.exp(list(said.values())).sum() == pytest.approx(1.0, abs=1e-5)
    assert Opening(str(tmp_path), without_script=" CJK")().model.signature == fewer.signature
    assert uncurse.load(tmp_path, without_script="cjk").model.signature == fewer.signature
    for command in (["translate", "--model"], ["serve", "--port", "0", "--model"]):
        with pytest.raises(SystemExit, match="2"):
            main([*command, str(tmp_path), "--without-script", "cyrilic"])
        assert "script 'cyrilic'; did you mean 'cyrillic'?" in capsys.readouterr().err
    for folder, script, message in (
        (tmp_path, "hangul", "no piece has letters of the script 'hangul'"),
        (tmp_path, "digit", "no piece has letters of the script 'digit'"),
        ("zh-en-small", "cjk", "an LSTM cannot leave out a script"),
    ):
        with pytest.raises(ValueError, match=message):
            open_model(folder, without_script=script)


@pytest.mark.parametrize("whole", [False, True])
def test_a_ctranslate2_folder_gives_the_weights_that_were_written(tmp_path: Path, whole: bool) -> None:
    weights = tiny_weights(whole=whole)
    write_ctranslate2(tmp_path, weights)
    found = marian_weights(read_model(tmp_path / "model.bin"), tmp_path, END)
    assert found.matrices.keys() == weights.matrices.keys()
    assert found.vectors.keys() == weights.vectors.keys()
    assert all(torch.equal(found.matrices[name].floats, each.floats) for name, each in weights.matrices.items())
    assert (found.heads, found.activation, found.end) == (weights.heads, weights.activation, weights.end)


def test_ctranslate2_finds_the_same_translations(tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    write_ctranslate2(tmp_path, tiny_weights(seed=2, ending=4.0))
    peer = ctranslate2.Translator(str(tmp_path), device="cpu", compute_type="float32", intra_threads=1)
    sources = [source for source in SOURCES if source]
    theirs = peer.translate_batch(
        [[PIECES[piece] for piece in source] for source in sources],
        beam_size=5, length_penalty=1, patience=1, min_decoding_length=0, max_decoding_length=40,
        return_scores=True,
    )  # fmt: skip
    steps = TransformerStepModel(Transformer(tiny_weights(seed=2, ending=4.0), Numbers.FLOAT32, CPU), "tiny")
    decoding = Decoding.of(5, "length-norm", "beam-full", slots="refill")
    ours = beam_search(steps, [Sentence(source, limit=41) for source in sources], decoding)
    for peer_result, result in zip(theirs, ours, strict=True):
        best = result.hypotheses[0]
        assert [PIECES[token] for token in best.tokens[:-1]] == peer_result.hypotheses[0]
        assert best.score == pytest.approx(peer_result.scores[0], abs=1e-3)


def write_marian(folder: Path, weights: TransformerWeights) -> None:
    """A folder as Hugging Face has it."""
    save_marian(folder, weights)
    ids = {piece: index for index, piece in enumerate([*PIECES, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(subword_model())


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("kind", [None, "int8", "int8_bfloat16", "int16", "float16", "bfloat16"])
def test_what_ctranslate2_converts_is_read(tmp_path: Path, kind: str | None) -> None:
    """Its own converter names more settings, scales embeddings in words and stores equal arrays once."""
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    weights, folder = tiny_weights(seed=2, ending=4.0), tmp_path / "converted"
    for layer in range(2):
        weights.vectors[f"encoder/layer_{layer}/ffn/linear_1/bias"].zero_()
    write_marian(tmp_path / "marian", weights)
    converter = ctranslate2.converters.TransformersConverter(
        str(tmp_path / "marian"), copy_files=["source.spm", "target.spm"]
    )
    converter.convert(str(folder), quantization=kind)
    steps = open_model(folder).model
    peer = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    sources = [source for source in SOURCES if source]
    theirs = peer.translate_batch(
        [[PIECES[piece] for piece in (*source, END)] for source in sources],  # which it leaves to the tokenizer
        beam_size=4, length_penalty=1, min_decoding_length=0, max_decoding_length=40, return_scores=True,
    )  # fmt: skip
    decoding = Decoding.of(4, "length-norm", "beam-full", slots="refill")
    ours = beam_search(steps, [Sentence(source, limit=41) for source in sources], decoding)
    for peer_result, result in zip(theirs, ours, strict=True):
        best = result.hypotheses[0]
        assert [PIECES[token] for token in best.tokens[:-1]] == peer_result.hypotheses[0]
        assert best.score == pytest.approx(peer_result.scores[0], abs=1e-3)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_a_bias_of_zeros_which_ctranslate2_does_not_store_is_zero(tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    weights, folder = tiny_weights(seed=2), tmp_path / "converted"
    weights.vectors["decoder/projection/bias"].zero_()
    write_marian(tmp_path / "marian", weights)
    ctranslate2.converters.TransformersConverter(
        str(tmp_path / "marian"), copy_files=["source.spm", "target.spm"]
    ).convert(str(folder))
    assert "decoder/projection/bias" not in read_model(folder / "model.bin")
    source, target = (5, 6, 7), (9, 8, 30, 4)
    (ours,) = force_decode(open_model(folder).model, [source], [target])
    peer = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    given = [[PIECES[piece] for piece in pieces] for pieces in ((*source, END), target)]
    (theirs,) = peer.score_batch([given[0]], [given[1]])
    assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-3)


def test_hugging_face_says_the_same_of_the_same_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    weights = tiny_weights(seed=4)
    save_marian(tmp_path, weights)
    network = transformers.MarianMTModel.from_pretrained(tmp_path).eval()
    steps = TransformerStepModel(Transformer(read_marian(tmp_path), Numbers.FLOAT32, CPU), "tiny")
    source, tokens = (5, 9, 3), [7, 30, 2, 11]
    with torch.inference_mode():
        logits = network(
            input_ids=torch.tensor([[*source, END]]), decoder_input_ids=torch.tensor([[VOCABULARY, *tokens]])
        ).logits[0]
        logits[:, VOCABULARY] = -torch.inf  # padding
    expected = logits.log_softmax(dim=1).numpy()
    state = steps.start([source])
    for place, fed in enumerate([steps.begin, *tokens]):
        given, state = steps.step(state, np.array([fed]), VOCABULARY, attention=False)
        assert np.abs(given.log_probs[0] - expected[place, given.tokens[0]]).max() < 1e-4


def broken(folder: Path, change: Callable[[bytes], bytes]) -> None:
    path = folder / "model.bin"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[: len(content) // 2], "ends before what it announces"),
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
            "encoder/scale_embeddings is 0 and not 1",
        ),
        (
            lambda content: content.replace(b"encoder/embeddings_0/weight", b"encoder/embeddings_1/weight"),
            "another family: it has encoder/embeddings_1/weight",
        ),
        (lambda content: content[:40] + b"\xff" * 8 + content[48:], "damaged|ends before|not a CTranslate2"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    write_ctranslate2(tmp_path, tiny_weights())
    broken(tmp_path, change)
    with pytest.raises(ValueError, match=message):
        marian_weights(read_model(tmp_path / "model.bin"), tmp_path, END)


def test_folders_are_known_by_what_they_hold(tmp_path: Path) -> None:
    argos, marian = tmp_path / "argos", tmp_path / "marian"
    write_ctranslate2(argos / "model", tiny_weights())
    (argos / "sentencepiece.model").write_bytes(subword_model())
    write_marian(marian, tiny_weights())
    lines = ["a b c", "", "s r q p"]
    found = [
        [each.texts[0] for each in load(folder).translate(lines, beam=3, ratio=1.5)] for folder in (argos, marian)
    ]
    assert found[0] == found[1]
    assert found[0][1] == ""
    assert load(argos, dtype="int8").model.signature.endswith(("-int8x8", "-int8x7"))
    with pytest.raises(ValueError, match="dtype 'int4' is not known"):
        open_model(argos, dtype="int4")
    with pytest.raises(ValueError, match="needs no --source-lang"):
        open_model(argos, source_lang="zh")
    with pytest.raises(ValueError, match="one language and needs no --target-lang"):
        open_model(argos, target_lang="fra")
    tags = [*PIECES[:-2], ">>deu<<", ">>fra<<"]
    (argos / "model" / "shared_vocabulary.json").write_text(json.dumps(tags), encoding="utf-8")
    for wrong in (None, "zho"):
        with pytest.raises(ValueError, match="use --target-lang, one of deu, fra"):
            open_model(argos, target_lang=wrong)
    german, french = (open_model(argos, target_lang=language) for language in ("deu", "fra"))
    assert german.fingerprint != french.fingerprint
    assert not np.allclose(german.model.features([(7, 8)]), french.model.features([(7, 8)]), atol=1e-3)
    (argos / "model" / "shared_vocabulary.json").write_text(
        json.dumps([*PIECES[:-1], PIECES[3]]), encoding="utf-8"
    )
    with pytest.raises(ValueError, match="has a piece twice"):
        open_model(argos)
    (argos / "model" / "shared_vocabulary.json").write_text(json.dumps(PIECES), encoding="utf-8")
    broken(
        argos / "model",
        lambda content: content.replace(
            b"encoder/layer_0/ffn/linear_1/bias", b"encoder/layer_9/ffn/linear_1/bias"
        ),
    )
    with pytest.raises(ValueError, match="it lacks 'encoder/layer_0/ffn/linear_1/bias'"):
        open_model(argos)
    with pytest.raises(ValueError, match="did you mean 'opus-mt-zh-en'"):
        open_model("opus-mt-zh")


def test_ranked_pieces_prefer_few_and_frequent_ones() -> None:
    pieces = RankedPieces(Vocabulary(["</s>", "<unk>", "▁a", "b", "▁ab", "c", "▁"]))
    assert pieces.encode(["ab c abb", "", "x"]) == [[4, 6, 5, 4, 3], [], [6, 1]]
    assert pieces.decode([4, 6, 5, 4, 3, 0]) == "ab c abb"
