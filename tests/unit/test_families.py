"""M2M100, NLLB, BART, mBART and mBART-50 in the runtime here, against transformers and against CTranslate2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.saved_families import LANGUAGES, saved

from uncurse import Decoding, Sentence, UncurseError, beam_search
from uncurse.models.huggingface.loading import load_huggingface
from uncurse.models.load import load_model
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.transformer.native.library import VARIABLE, WITHOUT, available_instruction_sets
from uncurse.testing import check_step_model

KINDS = ("m2m100", "nllb", "bart", "mbart", "mbart50")
SOURCES = [(5, 6, 7, 8), (9,), (4, 4, 4), (11, 3, 8, 7, 2), (30, 12)]
ENDING = {"m2m100": 8.5, "nllb": 8.0, "bart": 5.0, "mbart": 7.0, "mbart50": 12.0}  # added to the logit of </s>
WEIGHTS = "model.safetensors"
PREFIXED = ("m2m100", "nllb", "mbart50")  # CTranslate2 takes their language as a target prefix
NBest = list[list[tuple[tuple[int, ...], float]]]  # tokens and log-probability
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
EVERY_KERNEL = pytest.mark.parametrize("kernels", [*available_instruction_sets()[:1], WITHOUT])


def folder_of(kind: str, folder: Path) -> Path:
    """A random model whose outputs end, and whose layer norms and biases are not what they are initialised to."""
    folder.mkdir(exist_ok=True)
    saved(kind, folder)
    (folder / "generation_config.json").unlink()  # it forbids words; the config says all that is needed
    random = torch.Generator().manual_seed(5)
    tensors = load_file(folder / WEIGHTS)
    for name, tensor in tensors.items():
        if tensor.ndim == 1 or name == "final_logits_bias":
            tensor += 0.1 * torch.randn(tensor.shape, generator=random)
    last = "layers.1.final_layer_norm" if kind == "bart" else "layer_norm"
    embeddings = tensors["model.shared.weight"]
    embeddings *= 0.4  # else every token is followed by itself
    for name in tensors:
        if name.endswith(("fc2.weight", "out_proj.weight")):
            tensors[name] *= 3.0  # so that more than the last token decides
    tensors[f"model.decoder.{last}.weight"] *= 6.0  # and some tokens are much more likely than others
    tensors[f"model.decoder.{last}.bias"] += (
        ENDING[kind] * embeddings[2] / embeddings[2].norm() ** 2
    )  # the logit of </s>
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def loaded(folder: Path, kind: str, dtype: str = "float32") -> LoadedModel:
    source, target = LANGUAGES[kind]
    return load_model(ModelOptions(str(folder), dtype=dtype, source_lang=source, target_lang=target))


def converted_folder(kind: str, quantization: str | None, folder: Path) -> tuple[Path, Path]:
    """A folder of Hugging Face, and one that CTranslate2's own converter made of it."""
    converters = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed").converters
    original, converted = folder_of(kind, folder / "original"), folder / "converted"
    config = json.loads((original / "config.json").read_text())
    config["normalize_before"] = kind.startswith("mbart")  # as on the hub; the converter reads it
    config["tokenizer_class"] = {"mbart": "MBartTokenizer", "mbart50": "MBart50Tokenizer"}.get(kind)
    (original / "config.json").write_text(json.dumps(config))
    files = [path.name for path in original.iterdir() if path.name not in ("config.json", WEIGHTS)]
    with pytest.MonkeyPatch.context() as patched:
        for loader in (converters.transformers.BartLoader, converters.transformers.M2M100Loader):
            patched.setattr(loader, "get_vocabulary", _names)
        converters.TransformersConverter(str(original), copy_files=files).convert(
            str(converted), quantization=quantization
        )
    settings = json.loads((converted / "config.json").read_text())
    (converted / "config.json").write_text(json.dumps({**settings, "bos_token": "<s>"}))  # mBART-50's has none
    return original, converted


def _names(_: object, model: Any, tokenizer: Any) -> list[str]:
    """A name for every embedding; the converter does not know the languages that M2M100's tokenizer has apart."""
    known = {index: name for name, index in tokenizer.get_vocab().items()}
    languages = {index: f"__{name}__" for name, index in getattr(tokenizer, "lang_code_to_id", {}).items()}
    return [
        known.get(index) or languages.get(index, f"madeupword{index}") for index in range(model.config.vocab_size)
    ]


def n_best(model: Any, sources: list[tuple[int, ...]] = SOURCES, outputs: int = 4) -> NBest:
    stop = f"beam-full:patience={outputs / 4}"
    decoding = Decoding(4, "log-prob", stop, slots="refill", n_best=outputs)
    results = beam_search(model, [Sentence(source, 40) for source in sources], decoding)
    return [[(each.tokens, each.log_prob) for each in result.hypotheses] for result in results]


def ctranslate2_n_best(peer: Any, ours: LoadedModel, kind: str, names: list[str]) -> NBest:
    """What CTranslate2 finds; outputs that it cut off at the maximum length, and returns as well, are left out."""
    model: Any = ours.model
    special, ids = model._special, {name: index for index, name in enumerate(names)}
    prompt = [names[model.bos]]
    results = peer.translate_batch(
        [[names[token] for token in special.framed(source)] for source in SOURCES],
        target_prefix=None if kind == "bart" else [prompt] * len(SOURCES),
        beam_size=4, num_hypotheses=4, patience=1, min_decoding_length=0, max_decoding_length=40,
        length_penalty=1e-6,  # with 0 it may go on after four have ended
        return_scores=True, suppress_sequences=[["<pad>"]],
    )  # fmt: skip
    begin = 1 if kind in PREFIXED else 0
    return [
        [((*(ids[name] for name in output[begin:]), special.eos), score)
         for output, score in zip(each.hypotheses, each.scores, strict=True) if len(output) < 40]
        for each in results
    ]  # fmt: skip


def rows_without_empty_output(model: Any) -> list[int]:
    """Sources whose best first token is not `</s>`.

    After a target prefix, CTranslate2 (4.8.4) loses the output that ends at once unless `</s>` is the best token,
    and goes on until it has found another in its place.
    """
    first = np.full(len(SOURCES), model.bos)
    candidates, _ = model.step(model.start(SOURCES), first, 1, attention=False)
    return np.flatnonzero(candidates.tokens[:, 0] != model.eos).tolist()


def assert_same(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    assert [[tokens for tokens, _ in each] for each in found] == [
        [tokens for tokens, _ in each] for each in expected
    ]
    for one, two in zip(found, expected, strict=True):
        assert [value for _, value in one] == pytest.approx([value for _, value in two], abs=tolerance)


@EVERY_KIND
@EVERY_KERNEL
def test_the_n_best_outputs_are_those_of_transformers(
    kind: str, kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, kernels)
    folder = folder_of(kind, tmp_path)
    ours, theirs = loaded(folder, kind), load_huggingface(folder, "cpu", *LANGUAGES[kind])
    assert type(ours.model).__name__ in ("NativeStepModel", "TransformerStepModel")
    expected = n_best(theirs.model)
    outputs = {tokens for each in expected for tokens, _ in each}
    assert len(outputs) > len(SOURCES)
    assert max(map(len, outputs)) > 3
    assert_same(n_best(ours.model), expected)
    assert np.allclose(ours.model.features(SOURCES), theirs.model.features(SOURCES), atol=1e-5)
    limits = [(each.model.max_source_length, each.model.max_target_length) for each in (ours, theirs)]
    assert limits[0] == limits[1]
    assert ours.source.encode(["a dog"]) == theirs.source.encode(["a dog"])
    check_step_model(ours.model, SOURCES, steps=5, tolerance=1e-5)
    first = np.full(len(SOURCES), ours.model.bos)
    (found, _), (wanted, _) = (
        each.model.step(each.model.start(SOURCES), first, 3, attention=True) for each in (ours, theirs)
    )
    assert found.attention is not None
    assert wanted.attention is not None
    for row, source in enumerate(SOURCES):
        assert np.allclose(found.attention[row, : len(source)], wanted.attention[row, : len(source)], atol=1e-5)


@EVERY_KIND
def test_int8_is_near_float32_and_the_kernels_agree_with_pytorch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(kind, tmp_path)
    exact = loaded(folder, kind).model
    models = []
    for kernels in (*available_instruction_sets()[:1], WITHOUT):
        monkeypatch.setenv(VARIABLE, kernels)
        models.append(loaded(folder, kind, "int8").model)
    first = np.full(len(SOURCES), exact.bos)
    expected, *found = (
        each.step(each.start(SOURCES), first, each.vocab_size, attention=False)[0].log_probs
        for each in (exact, *models)
    )
    possible = np.isfinite(expected)
    for each in found:
        assert np.abs(each[possible] - expected[possible]).mean() < 0.1
        assert np.allclose(each, found[0], atol=2e-2)


@pytest.mark.slow
@EVERY_KIND
@pytest.mark.parametrize("quantization", [None, "int8"])
def test_a_folder_of_ctranslate2_gives_what_ctranslate2_gives(
    kind: str, quantization: str | None, tmp_path: Path
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
    folder, converted = converted_folder(kind, quantization, tmp_path)
    ours = loaded(converted, kind)
    peer = ctranslate2.Translator(str(converted), device="cpu", compute_type="float32", intra_threads=1)
    expected = ctranslate2_n_best(peer, ours, kind, json.loads((converted / "shared_vocabulary.json").read_text()))
    found = n_best(ours.model)
    for row in rows_without_empty_output(ours.model) if kind in PREFIXED else []:
        (longer,) = n_best(ours.model, [SOURCES[row]], outputs=5)
        found[row] = [each for each in longer if len(each[0]) > 1]
    assert sum(map(len, expected)) > 3 * len(SOURCES)  # few were cut off
    assert_same(found, expected, 1e-3)
    if kind != "bart" and quantization is None:  # CTranslate2 does not store that BART's outputs begin with <s>
        assert_same(n_best(ours.model), n_best(loaded(folder, kind).model))


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        ("nllb", {"max_position_embeddings": 0}, "max_position_embeddings = 0 is not allowed"),
        ("nllb", {"max_position_embeddings": "x"}, "max_position_embeddings"),
        ("nllb", {"pad_token_id": -7}, "pad_token_id = -7 is not allowed|is none of the"),
        ("nllb", {"encoder_layers": 1 << 40}, "does not fit .*: 'model.encoder.layers.2"),
        ("bart", {"decoder_attention_heads": 3, "encoder_attention_heads": 3}, "cannot have 3 attention heads"),
        ("bart", {"decoder_layers": None}, "decoder_layers is None, not an integer"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_one_line(
    kind: str, change: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    path = folder_of(kind, tmp_path) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UncurseError, match=complaint):
        loaded(tmp_path, kind)


@pytest.mark.parametrize(
    ("kind", "name", "rows"),
    [
        ("nllb", "model.decoder.layer_norm.weight", 0),
        ("bart", "model.encoder.layernorm_embedding.bias", 3),
        ("bart", "model.encoder.embed_positions.weight", 2),
        ("mbart", "final_logits_bias", 0),
    ],
)
def test_weights_that_a_family_needs_are_missed(kind: str, name: str, rows: int, tmp_path: Path) -> None:
    path = folder_of(kind, tmp_path) / WEIGHTS
    tensors = load_file(path)
    tensors[name] = tensors[name][:rows].clone()
    save_file(tensors if rows else {key: each for key, each in tensors.items() if key != name}, path)
    with pytest.raises(UncurseError, match=r"model\.safetensors does not fit .*config\.json"):
        loaded(tmp_path, kind)


def test_options_that_cannot_act_are_refused(tmp_path: Path) -> None:
    for kind in ("bart", "nllb"):
        folder_of(kind, tmp_path / kind)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"model": str(tmp_path / "bart"), "without_script": "latin"}, "the tokens of a BART model are bytes"),
        ({"model": str(tmp_path / "bart"), "source_lang": "en"}, "source_lang = 'en' is not known to this model"),
        ({"model": str(tmp_path / "nllb")}, "source_lang is needed: this model knows"),
        (
            {"model": str(tmp_path / "nllb"), "source_lang": "eng_Latn", "target_lang": "fra_Latm"},
            "did you mean 'fra_Latn'",
        ),
    ]
    for options, complaint in refused:
        with pytest.raises(UncurseError, match=complaint):
            load_model(ModelOptions(**options))
    fewer = load_model(
        ModelOptions(
            str(tmp_path / "nllb"), source_lang="eng_Latn", target_lang="fra_Latn", without_script="latin"
        )
    )
    assert fewer.model.signature.endswith("-without-latin")
