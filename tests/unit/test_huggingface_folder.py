"""Folders that transformers has saved, with their tokenizers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.families import generated
from support.saved_families import LANGUAGES, saved, tokenizer
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
)

from uncurse import UncurseError, load
from uncurse.cli import main
from uncurse.lengths.predictor_file import predictor_path
from uncurse.models.huggingface.loading import load_huggingface
from uncurse.models.huggingface.special_tokens import special_tokens_of
from uncurse.models.load import load_model
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.translation.translator import Translator

WITHOUT_SACREMOSES = pytest.mark.filterwarnings("ignore:Recommended")
LINES = ["the old cat sleeps", "a dog", "all day on the sofa"]


@WITHOUT_SACREMOSES
@pytest.mark.parametrize("kind", LANGUAGES)
def test_a_folder_translates_as_generate_does(kind: str, tmp_path: Path) -> None:
    source_lang, target_lang = LANGUAGES[kind]
    loaded = load_huggingface(saved(kind, tmp_path), "cpu", source_lang, target_lang)
    assert [loaded.source.decode(each) for each in loaded.source.encode(LINES)] == LINES
    assert [loaded.target.decode(each) for each in loaded.target.encode(LINES)] == LINES
    translator = Translator(loaded.model, loaded.source, loaded.target, None)
    ours = translator.translate(LINES, beam_size=3, score="bp-norm", length_ratio=1.5)

    own: Any = AutoTokenizer.from_pretrained(tmp_path)
    first = None
    if source_lang is not None:
        own.src_lang = source_lang
        first = own.convert_tokens_to_ids(f"__{target_lang}__" if kind == "m2m100" else target_lang)
    forced = {} if first is None or kind == "mbart" else {"forced_bos_token_id": first}
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    given = own(LINES, padding=True, return_tensors="pt")
    options = {"max_new_tokens": None, "beam_size": 3, "score": "bp-norm", "length_ratio": 1.5, **forced}
    sequences = generated(model, {key: given[key] for key in ("input_ids", "attention_mask")}, **options)
    found = [each.result.hypotheses[0].tokens for each in ours if each.result is not None]
    prompt = sequences.shape[1] - max(map(len, found))
    padding = own.pad_token_id
    expected = [tuple(token for token in row[prompt:] if token != padding) for row in sequences.tolist()]
    assert found == expected
    assert len(set(found)) == len(LINES)
    assert [each.texts[0] for each in ours] == own.batch_decode(expected, skip_special_tokens=True)


def test_a_target_without_a_start_token_starts_with_its_language(tmp_path: Path) -> None:
    own = tokenizer("mbart", tmp_path)
    config = GenerationConfig(bos_token_id=0, pad_token_id=1, eos_token_id=2)  # type: ignore[no-untyped-call]
    assert special_tokens_of(own, config, "en_XX", "fr_XX").decoder_prompt == (own.lang_code_to_id["fr_XX"],)


@WITHOUT_SACREMOSES
def test_a_target_language_that_the_source_names_is_a_tag_of_the_source(tmp_path: Path) -> None:
    own = AutoTokenizer.from_pretrained(saved("marian", tmp_path))
    plain, tagged = (load_huggingface(tmp_path, target_lang=language) for language in (None, "fra"))
    (framed,) = own([">>fra<< a dog"])["input_ids"]
    expected, _ = plain.model.step(plain.model.start([framed[:-1]]), np.array([plain.model.bos]), 9, False)
    found, _ = tagged.model.step(
        tagged.model.start(tagged.source.encode(["a dog"])), np.array([plain.model.bos]), 9, False
    )
    assert np.abs(found.log_probs - expected.log_probs).max() < 1e-6
    assert plain.model.signature != tagged.model.signature


@WITHOUT_SACREMOSES
@pytest.mark.parametrize(
    ("kind", "languages", "message"),
    [
        ("m2m100", {}, "source_lang is needed: this model knows 100 languages"),
        ("m2m100", {"source_lang": "en"}, "target_lang is needed"),
        ("nllb", {"source_lang": "eng_Latn", "target_lang": "fra_Latin"}, "did you mean 'fra_Latn'"),
        (
            "mbart50",
            {"source_lang": "en_XY", "target_lang": "fr_XX"},
            "source_lang = 'en_XY' is not known .*'en_XX'",
        ),
        ("marian", {"source_lang": "fra"}, "source_lang = 'fra' is not known to this model; it takes none"),
        ("marian", {"target_lang": "fr"}, "target_lang = 'fr' is not known to this model; did you mean 'fra'"),
        ("t5", {"target_lang": "fr"}, "it takes none"),
    ],
)
def test_a_language_that_cannot_act_is_refused(
    kind: str, languages: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UncurseError, match=message):
        load_huggingface(saved(kind, tmp_path), **languages)


@WITHOUT_SACREMOSES
@pytest.mark.parametrize(
    "other", [{"scale_embedding": False}, {"encoder_attention_heads": 4}, {"activation_function": "gelu_new"}, {}]
)
def test_a_marian_model_that_the_marian_runtime_cannot_run_is_run_by_transformers(
    tmp_path: Path, other: dict[str, object]
) -> None:
    folder = saved("marian", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **other}))
    if not other:  # weights in several files
        network = AutoModelForSeq2SeqLM.from_pretrained(folder)
        (folder / "model.safetensors").unlink()
        network.save_pretrained(folder, max_shard_size="10KB")
        assert len(list(folder.glob("*.safetensors"))) > 1
    translator = load(folder, target_lang="fra")
    assert translator.model.signature.startswith("marian-")
    assert len(list(translator.translate(["the cat"], beam_size=2, score="length-norm"))) == 1


@WITHOUT_SACREMOSES
def test_each_pair_of_languages_has_its_own_predictor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = saved("m2m100", tmp_path), tmp_path / "text"
    text.write_text("\n".join(LINES * 5), encoding="utf-8")
    pairs = [f"--{name}={text}" for name in ("source", "target", "test-source", "test-target")]
    fit = ["fit-length", "--model", str(folder), *pairs, "--source-lang=en", "--target-lang"]

    def loaded(target: str) -> LoadedModel:
        return load_model(ModelOptions(str(folder), source_lang="en", target_lang=target))

    main([*fit, "fr"])
    french, german = (loaded(target) for target in ("fr", "de"))
    assert french.predictor is not None
    assert german.predictor is None  # and nothing is in its way
    main([*fit, "de"])
    place = predictor_path(folder, german.fingerprint)
    sound = place.read_bytes()
    place.write_bytes(sound[:-9])
    with pytest.raises(UncurseError, match=r"is not a length predictor: .*; delete it, or fit another"):
        loaded("de").predictor  # noqa: B018
    main([*fit, "de"])
    assert place.read_bytes() == sound
    assert "predictor" in capsys.readouterr().out


@WITHOUT_SACREMOSES
@pytest.mark.parametrize("kind", ["t5", "m2m100", "nllb", "mbart50"])
def test_a_model_without_a_tokenizer_is_refused(kind: str, tmp_path: Path) -> None:
    folder = saved(kind, tmp_path)
    for path in folder.iterdir():
        if path.name not in ("config.json", "generation_config.json", "model.safetensors"):
            path.unlink()
    with pytest.raises(UncurseError, match="it has no tokenizer"):
        load_huggingface(folder, "cpu", *LANGUAGES[kind])


def test_pickled_weights_are_refused_with_the_way_to_convert_them(tmp_path: Path) -> None:
    folder = saved("t5", tmp_path)
    network = AutoModelForSeq2SeqLM.from_pretrained(folder)
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        UncurseError, match=r"pytorch_model.bin, a pickle, .* convert it .*save_pretrained\(folder\)"
    ):
        load_huggingface(folder)
    AutoModelForSeq2SeqLM.from_pretrained(folder).save_pretrained(folder)
    assert load_huggingface(folder).model.vocab_size == network.config.vocab_size


@WITHOUT_SACREMOSES
@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        *itertools.product(
            ["m2m100", "marian"], ["max_position_embeddings", "vocab_size", "d_model", "encoder_layers"]
        ),
        *itertools.product(["t5"], ["vocab_size", "d_model", "num_layers"]),
    ],
)
def test_a_config_that_asks_for_more_than_its_weights_hold_is_refused_before_it_is_built(
    kind: str, setting: str, tmp_path: Path
) -> None:
    folder = saved(kind, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert setting in config
    (folder / "config.json").write_text(json.dumps({**config, setting: 40_000_000}))
    with pytest.raises(UncurseError, match=r"its config asks for \d+"):
        load_huggingface(folder, "cpu", *LANGUAGES[kind])


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"])
def test_a_device_or_a_pipe_is_not_opened(name: str, tmp_path: Path) -> None:
    folder = saved("t5", tmp_path)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/null")  # as /dev/zero, but a reader would come to its end
    with pytest.raises(UncurseError, match=f"{name} is not a regular file"):
        load_huggingface(folder)


def test_a_huge_tokenizer_file_is_refused_by_its_size(tmp_path: Path) -> None:
    folder = saved("t5", tmp_path)
    with (folder / "tokenizer.json").open("ab") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(UncurseError, match=r"tokenizer\.json has 1099511627776 bytes, and the most is"):
        load_huggingface(folder)


def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    GPT2Config().save_pretrained(tmp_path / "decoder")
    (tmp_path / "empty").mkdir()
    for name, message in (
        (tmp_path / "decoder", "it has no weights: model.safetensors is missing"),
        (tmp_path / "empty", "cannot be loaded as a sequence-to-sequence model"),
        ("nobody/nothing", "it is not a folder here, and the hub does not provide it"),
    ):
        with pytest.raises(UncurseError, match=message) as caught:
            load_huggingface(name)
        assert str(name) in str(caught.value)
        assert "\n" not in str(caught.value)
