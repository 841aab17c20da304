"""Vocabulary selection: the tokens that the output layer computes for a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_marian import EOS, TOKENS, VOCAB_SIZE, tiny_weights, tokenizer_model, write_ctranslate2

import uncurse
from uncurse import Decoding, Sentence, UncurseError, beam_search, record
from uncurse.arrays import Ints
from uncurse.cli import main
from uncurse.cli.fit_vocabulary import _continuations
from uncurse.models.load import load_model
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.transformer.layers import TransformerNetwork
from uncurse.models.transformer.linear import ComputeType
from uncurse.models.transformer.native.library import VARIABLE, WITHOUT, available_instruction_sets, load_library
from uncurse.models.transformer.native.network import NativeNetwork
from uncurse.models.transformer.native.step_model import NativeStepModel
from uncurse.models.transformer.quantization import Weight
from uncurse.models.transformer.step_model import TransformerStepModel
from uncurse.models.transformer.weights import EMBEDDINGS, OUTPUT_BIAS
from uncurse.models.vocabulary_selector import (
    NO_VOTE,
    SHIPPED,
    HasVotes,
    VocabularySelector,
    find_selector,
    load_selector,
    save_selector,
    selector_path,
)
from uncurse.storage.array_file import load_array_file, save_array_file
from uncurse.testing import check_step_model
from uncurse.training.fit_vocabulary import fit_vocabulary, report
from uncurse.training.selection_sample import SelectionSample, translations

AVAILABLE = available_instruction_sets()
SOURCES = [(5, 6, 7, 8), (9,), (4, 4, 4), (11, 3, 8, 7, 2), ()]
SENTENCES = [Sentence(source, 12) for source in SOURCES]
TYPES = [ComputeType.FLOAT32, ComputeType.INT8]
backends = pytest.mark.parametrize("backend", [*AVAILABLE, "torch"])


def a_selector(seed: int = 1, bias: float = 3.0) -> VocabularySelector:
    """Some of the likely ones of most tokens; `</s>` and one more are always selected."""
    random = np.random.default_rng(seed)
    tokens = np.array([token for token in range(VOCAB_SIZE) if token % 7 != 3])
    return VocabularySelector(
        tokens=tokens,
        bias=np.where(np.isin(tokens, (EOS, 1)), np.inf, random.normal(bias, 0.5, len(tokens))).astype(np.float32),
    )


def build(
    backend: str, compute_type: ComputeType, selector: VocabularySelector | None, allowed: list[int] | None = None
) -> Any:
    weights = tiny_weights()
    if backend == "torch":
        network = TransformerNetwork(weights, compute_type, torch.device("cpu"), allowed)
        return TransformerStepModel(network, "tiny", None, selector)
    native = NativeNetwork(weights, compute_type, load_library(backend), allowed)
    return NativeStepModel(native, "tiny", None, selector)


def expected_tokens(model: HasVotes, selector: VocabularySelector) -> list[Ints]:
    return [selector.selected(votes) for votes in model.votes(SOURCES, selector.tokens)]


@backends
def test_a_position_votes_for_what_it_alone_would_become(backend: str) -> None:
    model, tokens = build(backend, ComputeType.FLOAT32, None), np.arange(0, VOCAB_SIZE, 2)
    votes = model.votes(SOURCES, tokens)
    for source, together in zip(SOURCES, votes, strict=True):
        (alone,) = model.votes([source], tokens)
        assert np.allclose(alone, together, atol=1e-5)
        assert (np.flatnonzero(together > NO_VOTE) == tokens).all()
    # Of a source without tokens only </s> is left to attend to: then the decoder sees what a search sees.
    found, _ = model.step(model.start([()]), np.array([model.bos]), VOCAB_SIZE, attention=False)
    log_probs = np.full(VOCAB_SIZE, -np.inf)
    log_probs[found.tokens[0]] = found.log_probs[0]
    log_probs = log_probs[tokens] - np.logaddexp.reduce(log_probs[tokens])
    assert np.allclose(votes[-1][tokens], log_probs, atol=1e-4)


@backends
@pytest.mark.parametrize("compute_type", TYPES)
def test_the_tokens_of_a_sentence_share_all_of_its_probability(backend: str, compute_type: ComputeType) -> None:
    selector = a_selector()
    model = build(backend, compute_type, selector)
    selected = expected_tokens(model, selector)
    assert len({len(tokens) for tokens in selected}) > 2  # sentences differ
    assert all(2 < len(tokens) < len(selector.tokens) for tokens in selected)
    every = build(backend, compute_type, None)
    fed = np.full(len(SOURCES), model.bos)
    found, _ = model.step(model.start(SOURCES), fed, VOCAB_SIZE, attention=False)
    plain, _ = every.step(every.start(SOURCES), fed, VOCAB_SIZE, attention=False)
    for row, tokens in enumerate(selected):
        log_probs, before = np.empty(VOCAB_SIZE), np.empty(VOCAB_SIZE)
        log_probs[found.tokens[row]], before[plain.tokens[row]] = found.log_probs[row], plain.log_probs[row]
        assert (np.flatnonzero(log_probs > -np.inf) == tokens).all()
        renormalised = before[tokens] - np.logaddexp.reduce(before[tokens])
        assert np.allclose(log_probs[tokens], renormalised, atol=1e-5)


@backends
@pytest.mark.parametrize("compute_type", TYPES)
def test_a_selecting_model_keeps_the_contract_of_a_step_model(backend: str, compute_type: ComputeType) -> None:
    model = build(backend, compute_type, a_selector())
    tolerance = 1e-5 if backend == "torch" else 0.0
    check_step_model(model, SOURCES, steps=9, tolerance=tolerance)


@pytest.mark.parametrize("backend", AVAILABLE)
@pytest.mark.parametrize("compute_type", TYPES)
def test_neighbours_change_nothing_not_even_a_bit(backend: str, compute_type: ComputeType) -> None:
    model = build(backend, compute_type, a_selector())
    together = record(model, SENTENCES, 4, batch_size=5)
    for batch_size in (1, 2):
        for one, two in zip(together, record(model, SENTENCES, 4, batch_size=batch_size), strict=True):
            assert one.steps == two.steps
            for field in ("tokens", "parents", "log_probs"):
                for mine, theirs in zip(getattr(one, field), getattr(two, field), strict=True):
                    assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_tokens_of_every_sentence_and_of_one_are_one_output_layer(backend: str) -> None:
    """With many chunks of both kinds, and with sentences that have few tokens of their own, or none."""
    random, vocab_size = np.random.default_rng(4), 5000
    embeddings = Weight(torch.from_numpy(random.normal(0, 0.7, (vocab_size, 16))).float())
    output_bias = torch.from_numpy(random.normal(0, 1, vocab_size)).float()
    tiny = tiny_weights()
    matrices, vectors = {**tiny.matrices, EMBEDDINGS: embeddings}, {**tiny.vectors, OUTPUT_BIAS: output_bias}
    weights = replace(tiny, matrices=matrices, vectors=vectors)
    always = np.sort(random.choice(np.arange(1, vocab_size), 2500, replace=False))
    bias = np.where(np.isin(np.arange(vocab_size), [EOS, *always]), np.inf, random.normal(7.5, 2.0, vocab_size))
    selector = VocabularySelector(np.arange(vocab_size), bias.astype(np.float32))
    native = NativeNetwork(weights, ComputeType.FLOAT32, load_library(backend))
    kernels = NativeStepModel(native, "tiny", None, selector)
    reference = TransformerStepModel(
        TransformerNetwork(weights, ComputeType.FLOAT32, torch.device("cpu")), "tiny", None, selector
    )
    fed = np.full(len(SOURCES), kernels.bos)
    for k in (9, vocab_size):
        ours, _ = kernels.step(kernels.start(SOURCES), fed, k, attention=False)
        theirs, _ = reference.step(reference.start(SOURCES), fed, k, attention=False)
        assert np.allclose(-np.sort(-ours.log_probs), -np.sort(-theirs.log_probs), atol=1e-4)
        for row, source in enumerate(SOURCES):
            alone, _ = kernels.step(kernels.start([source]), fed[:1], k, attention=False)
            assert (alone.tokens[0] == ours.tokens[row]).all()
            assert (alone.log_probs[0] == ours.log_probs[row]).all()
            given = np.isfinite(ours.log_probs[row])
            same = dict(zip(theirs.tokens[row].tolist(), theirs.log_probs[row].tolist(), strict=True))
            expected = [same[token] for token in ours.tokens[row][given].tolist()]
            assert np.allclose(ours.log_probs[row][given], expected, atol=1e-4)


@pytest.mark.parametrize("backend", AVAILABLE)
def test_the_kernels_find_what_pytorch_finds(backend: str) -> None:
    decoding = Decoding(beam_size=4, score="length-norm", n_best=3)
    for seed in range(4):
        ours, theirs = (
            beam_search(build(each, ComputeType.FLOAT32, a_selector(seed)), SENTENCES, decoding)
            for each in (backend, "torch")
        )
        for one, two in zip(ours, theirs, strict=True):
            assert [each.tokens for each in one.hypotheses] == [each.tokens for each in two.hypotheses]
            assert np.allclose(
                [each.log_prob for each in one.hypotheses], [each.log_prob for each in two.hypotheses], atol=1e-4
            )


@backends
def test_tokens_that_are_not_allowed_are_not_selected(backend: str) -> None:
    selector, allowed = a_selector(bias=0.5), list(range(0, VOCAB_SIZE, 2))
    model = build(backend, ComputeType.FLOAT32, selector, allowed)
    fed = np.full(len(SOURCES), model.bos)
    found, _ = model.step(model.start(SOURCES), fed, VOCAB_SIZE, attention=False)
    for row, tokens in enumerate(expected_tokens(model, selector)):
        given = found.tokens[row][found.log_probs[row] > -np.inf]
        assert sorted(given.tolist()) == [token for token in tokens.tolist() if token % 2 == 0]


def test_a_selector_survives_its_file(tmp_path: Path) -> None:
    selector, path = a_selector(), tmp_path / "selector.safetensors"
    save_selector(path, selector, "abc")
    read = load_selector(path, "abc")
    assert (read.tokens == selector.tokens).all()
    assert (read.bias == selector.bias).all()
    save_selector(path, read, "abc")
    assert load_selector(path, "abc").fingerprint == read.fingerprint
    with pytest.raises(UncurseError, match="it was fitted to model abc, and this is def"):
        load_selector(path, "def")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UncurseError, match="is not a vocabulary selector"):
        load_selector(path, "abc")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tokens", np.arange(34) + 0.5),
        ("tokens", np.arange(34, dtype=np.uint64)),
        ("bias", np.where(np.arange(34) < 2, 1e300, 0.0)),
    ],
)
def test_a_selector_with_numbers_of_another_type_is_refused(tmp_path: Path, name: str, values: Any) -> None:
    path = tmp_path / "selector.safetensors"
    save_selector(path, a_selector(), "abc")
    arrays, metadata = load_array_file(path, "vocabulary selector")
    save_array_file(path, {**arrays, name: values}, metadata)
    with pytest.raises(UncurseError, match=f"{name} is of type {values.dtype}, and should be"):
        load_selector(path, "abc")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": np.arange(3)}, "one row for each candidate"),
        ({"tokens": np.zeros(34, dtype=np.int64)}, "must rise"),
        ({"bias": np.full(34, np.nan, np.float32)}, "must be a number everywhere"),
        ({"bias": np.zeros(34, np.float32)}, "always computed"),
    ],
)
def test_a_selector_of_nonsense_is_refused(change: dict[str, object], message: str) -> None:
    assert len(a_selector().tokens) == 34
    with pytest.raises(UncurseError, match=message):
        replace(a_selector(), **change)  # type: ignore[arg-type]


def folder_with_model(folder: Path) -> LoadedModel:
    write_ctranslate2(folder, tiny_weights())
    (folder / "source.spm").write_bytes(tokenizer_model())
    return load_model(ModelOptions(str(folder)))


@pytest.mark.parametrize("kernels", ["", WITHOUT])
def test_the_signature_says_that_tokens_are_selected(
    tmp_path: Path, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, kernels)
    plain, selector = folder_with_model(tmp_path), a_selector()
    with pytest.raises(UncurseError, match="there is no vocabulary selector for this model"):
        uncurse.load(tmp_path, vocabulary_selection=True)
    save_selector(selector_path(tmp_path, plain.fingerprint), selector, plain.fingerprint)
    selecting = uncurse.load(tmp_path, vocabulary_selection=True).model
    saved = load_selector(selector_path(tmp_path, plain.fingerprint), plain.fingerprint)
    assert selecting.signature == f"{plain.model.signature}-selected-{saved.fingerprint}"
    assert uncurse.load(tmp_path).model.signature == plain.model.signature  # off unless it is asked for
    other = tmp_path / "other.safetensors"
    save_selector(other, a_selector(2), plain.fingerprint)
    named = uncurse.load(tmp_path, vocabulary_selection=True, vocabulary_selector=other).model
    assert named.signature.startswith(f"{plain.model.signature}-selected-")
    assert named.signature != selecting.signature


@pytest.mark.parametrize("command", ["translate", "explain", "score", "serve"])
def test_commands_select_tokens_if_they_are_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    folder_with_model(tmp_path)
    text = tmp_path / "text"
    text.write_text("a b c\n", encoding="utf-8")
    given = {"translate": [str(text)], "explain": ["a b"], "score": [str(text), str(text)], "serve": []}[command]
    with pytest.raises(SystemExit, match="2"):
        main([command, *given, "--model", str(tmp_path), "--vocabulary-selection"])
    assert "there is no vocabulary selector for this model" in capsys.readouterr().err


def test_a_selector_that_cannot_act_is_an_error(tmp_path: Path) -> None:
    loaded = folder_with_model(tmp_path)
    path = selector_path(tmp_path, loaded.fingerprint)
    with pytest.raises(UncurseError, match="nothing reads without vocabulary_selection"):
        uncurse.load(tmp_path, vocabulary_selector=path)
    with pytest.raises(UncurseError, match="vocabulary_selection = True is not allowed: an LSTM model"):
        uncurse.load(vocabulary_selection=True)
    selector = a_selector()
    for wrong, message in (
        (replace(selector, tokens=selector.tokens + 30), "tokens; the model has 40"),
        (replace(selector, bias=np.where(selector.tokens == 1, np.inf, 0.0).astype(np.float32)), "always select"),
    ):
        save_selector(path, wrong, loaded.fingerprint)
        with pytest.raises(UncurseError, match=message):
            uncurse.load(tmp_path, vocabulary_selection=True)


EVERY = np.arange(800)
NONE = np.arange(0)


def made_up(sentences: int, words: Ints, seed: int) -> SelectionSample:
    """Targets have likely votes, other tokens unlikely ones; nothing votes for token 0, the end of outputs."""
    random = np.random.default_rng(seed)
    votes, targets = [], []
    for _ in range(sentences):
        tokens = random.choice(words, random.integers(2, 6), replace=False)
        log_probs = np.full(len(EVERY), NO_VOTE)
        others = random.choice(EVERY[1:], 300, replace=False)
        log_probs[others] = random.normal(-9.0, 1.0, len(others))
        log_probs[tokens] = random.normal(-4.0, 1.0, len(tokens))
        votes.append(log_probs)
        targets.append(np.array([*tokens, 0]))
    return SelectionSample(votes, targets)


def test_a_fitted_selector_finds_what_translations_need() -> None:
    seen = np.arange(1, 600)
    selector = fit_vocabulary(made_up(1000, seen, 2), EVERY, [0], NONE, 0.99)
    fresh = report(selector, made_up(500, seen, 3))
    assert 0.98 < fresh.recall < 1.0
    assert fresh.complete > 0.9
    assert 80 < fresh.tokens < 160  # of 800; the 80 most frequent ones always
    assert 0 in selector.tokens[selector.bias == np.inf]


def test_a_lower_recall_selects_fewer_tokens() -> None:
    sample = made_up(600, np.arange(1, 800), 2)
    most, some = (report(fit_vocabulary(sample, EVERY, [0], NONE, recall), sample) for recall in (0.999, 0.9))
    assert 0.9 <= some.recall < 0.91
    assert most.recall >= 0.999
    assert some.tokens < most.tokens


@pytest.mark.parametrize(
    ("sentences", "recall", "message"),
    [(99, 0.99, "99 sentences are too few"), (100, 0.0, "recall = 0.0"), (100, 1.1, "recall = 1.1")],
)
def test_a_fit_that_cannot_succeed_is_refused(sentences: int, recall: float, message: str) -> None:
    with pytest.raises(UncurseError, match=message):
        fit_vocabulary(made_up(sentences, np.arange(1, 800), 1), EVERY, [0], NONE, recall)


def test_only_candidates_are_ever_selected() -> None:
    candidates, sample = np.arange(0, 800, 2), made_up(300, np.arange(1, 600), 2)
    selector = fit_vocabulary(sample, candidates, [0], NONE, 0.3)
    assert np.isin(selector.tokens, candidates).all()
    assert 0.3 <= report(selector, sample).recall < 0.8  # the other half of the tokens are missed
    with pytest.raises(UncurseError, match=r"recall = 0\.99 cannot be reached, only 0\.6\d*: nothing"):
        fit_vocabulary(sample, candidates, [0], NONE, 0.99)


def test_tokens_that_go_on_with_a_word_are_always_selected() -> None:
    sample, continuations = made_up(300, np.arange(1, 600), 2), np.arange(500, 700)
    selector = fit_vocabulary(sample, EVERY[:690], [0], continuations, 0.9)
    always = selector.always()
    found = np.intersect1d(always, continuations)
    assert 100 <= len(found) < 120  # an eighth of the vocabulary, and a few that are frequent
    assert (found < 600).all()  # translations have the others never, so these come first
    assert len(always) < 190  # these, and the most frequent ones
    few = fit_vocabulary(sample, EVERY, [0], np.array([700, 702]), 0.9)
    assert np.isin([700, 702], few.always()).all()


def test_tokens_that_go_on_with_a_word_are_those_without_a_space(tmp_path: Path) -> None:
    found = _continuations(folder_with_model(tmp_path))
    assert [TOKENS[token] for token in found] == [token for token in TOKENS if not token.startswith("▁")]


def test_translations_for_a_fit_are_greedy_with_their_likely_alternatives(tmp_path: Path) -> None:
    loaded = folder_with_model(tmp_path)
    lines = ["a b c", "", "b", "d e f g h"]
    given = translations(loaded, lines, 4, lambda done, total: None)
    assert len(given.sources) == len(given.targets) == 3  # nothing is translated for an empty line
    for source, target in zip(given.sources, given.targets, strict=True):
        (greedy,) = beam_search(loaded.model, [Sentence(source, 150)], Decoding(1, "log-prob"))
        assert set(greedy.hypotheses[0].tokens) <= set(target.tolist())


def test_the_shipped_selector_is_for_opus_mt() -> None:
    (path,) = SHIPPED.glob("*.safetensors")
    selector = find_selector(Path("nowhere"), path.stem)
    selector.check_fits(65_000, 0)
    assert path.stat().st_size < 3_000_000
    assert 9000 <= len(selector.always()) < 9300  # most of them go on with a word
    assert len(selector.tokens) > 30_000


@pytest.mark.slow
def test_the_command_fits_a_selector_that_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = folder_with_model(tmp_path)
    random, text = np.random.default_rng(1), tmp_path / "text"
    lines = ["".join(random.choice(list("abcdefghijklmnopqrs"), random.integers(1, 9))) for _ in range(150)]
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["fit-vocabulary", "--model", str(tmp_path), "--source", str(text)]
    main([*command, "--test-source", str(text), "--recall", "0.9"])
    said = capsys.readouterr().out
    assert "fitted to" in said
    assert f"wrote {selector_path(tmp_path, loaded.fingerprint)}" in said
    assert uncurse.load(tmp_path, vocabulary_selection=True).translate(["a b c"])[0].text
    out = tmp_path / "other.safetensors"
    main([*command, "--out", str(out)])
    assert f"--vocabulary-selection --vocabulary-selector {out}" in capsys.readouterr().out
    before = out.read_bytes()
    for wrong, message in (
        (["--recall", "2"], "recall = 2.0 is not allowed"),
        (["--sentences", "50"], "are too few for a vocabulary selector"),
        (["--model", "zh-en-small"], "vocabulary selection is for Marian models"),
        (["--source", str(tmp_path / "missing")], "missing"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main([*command, "--out", str(out), *wrong])
        assert message in capsys.readouterr().err
        assert out.read_bytes() == before
