"""OPUS-MT zh-en beside CTranslate2 and Hugging Face, on real sentences.

The model must be in the cache (`uncurse models get opus-mt-zh-en`) and the sentences beside the project; a dozen
of them are tried, or as many as UNCURSE_SENTENCES says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch

from uncurse import SCORES, Decoding, Sentence, Trace, beam_search, judge, record
from uncurse.models.download import downloaded_folder
from uncurse.models.load import load_model
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.transformer.ctranslate2_file import read_model, read_vocabulary, transformer_weights
from uncurse.models.transformer.huggingface_file import save_marian
from uncurse.text.marian_tokenizer import RankedTokenizer, Vocabulary

DATA = Path(__file__).parents[3] / "shared" / "data"
TEXT = DATA / "wmt" / "newstest2020.zh"
FOLDER = downloaded_folder("opus-mt-zh-en")
COUNT = int(os.environ.get("UNCURSE_SENTENCES", "12"))
MAX_LENGTH = 60
LONG_MAX_LENGTH = 120  # for searches that go on until the last of their n-best list is proved

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOLDER is None, reason="not downloaded: uncurse models get opus-mt-zh-en"),
    pytest.mark.skipif(not TEXT.exists(), reason=f"no sentences: {TEXT.name} is not beside the project"),
]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(ModelOptions("opus-mt-zh-en"))


@pytest.fixture(scope="module")
def sources(loaded: LoadedModel) -> list[tuple[int, ...]]:
    return from_text(loaded, TEXT, COUNT)


@pytest.fixture(scope="module")
def tame_sources(loaded: LoadedModel) -> list[tuple[int, ...]]:
    """From texts for which the model hardly ever repeats itself without end, as it does for headlines."""
    half = COUNT // 2
    texts = {DATA / "wmt" / "flores-dev.zh": half, DATA / "tatoeba" / "dev.zh": COUNT - half}
    return [source for text, count in texts.items() for source in from_text(loaded, text, count)]


def from_text(loaded: LoadedModel, text: Path, count: int) -> list[tuple[int, ...]]:
    """The first sentences of 5 to 22 tokens."""
    encoded = loaded.source.encode(text.read_text(encoding="utf-8").splitlines())
    return [tuple(ids) for ids in encoded if 5 <= len(ids) <= 22][:count]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    assert FOLDER is not None
    return read_vocabulary(FOLDER / "model")


def differ_by_more_than_a_tie(ours: tuple[int, ...], score: float, theirs: tuple[int, ...], other: float) -> bool:
    """Different outputs whose scores are not within rounding of one another."""
    return ours != theirs and abs(score - other) > 1e-3


def test_ctranslate2_finds_the_same(
    loaded: LoadedModel, sources: list[tuple[int, ...]], vocabulary: Vocabulary
) -> None:
    peer = ctranslate2.Translator(str(FOLDER / "model"), compute_type="float32", intra_threads=1)  # type: ignore[operator]
    theirs = peer.translate_batch(
        [[vocabulary.tokens[token] for token in source] for source in sources],
        beam_size=5, length_penalty=1, patience=1, min_decoding_length=0, max_decoding_length=MAX_LENGTH - 1,
        return_scores=True,
    )  # fmt: skip
    decoding = Decoding(5, "length-norm", "beam-full", slots="refill")
    ours = beam_search(loaded.model, [Sentence(source, MAX_LENGTH) for source in sources], decoding)
    same = 0
    for result, other in zip(ours, theirs, strict=True):
        best = result.hypotheses[0]
        found = tuple(vocabulary.find(token) or 0 for token in other.hypotheses[0])
        assert not differ_by_more_than_a_tie(best.tokens[:-1], best.score, found, other.scores[0])
        if best.tokens[:-1] == found:
            assert best.log_prob == pytest.approx(other.scores[0] * best.length, abs=1e-3)
            same += 1
        else:
            print(f"near a tie: {best.score:.5f} {best.tokens} and {other.scores[0]:.5f} {found}")  # noqa: T201
    print(f"{same} of {len(ours)} the same")  # noqa: T201
    assert same >= 0.98 * len(ours)


@pytest.fixture(scope="module")
def hugging_face(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    assert FOLDER is not None
    folder = tmp_path_factory.mktemp("opus")
    path = FOLDER / "model" / "model.bin"
    save_marian(folder, transformer_weights(read_model(path), path, vocabulary.eos))
    return transformers.MarianMTModel.from_pretrained(folder).eval()


def test_hugging_face_has_the_same_n_best_lists(
    loaded: LoadedModel, tame_sources: list[tuple[int, ...]], vocabulary: Vocabulary, hugging_face: Any
) -> None:
    beam_size, eos, pad = 4, vocabulary.eos, len(vocabulary)
    decoding = Decoding(beam_size, "length-norm", "optimal", n_best=beam_size, slots="refill")
    ours = beam_search(loaded.model, [Sentence(source, LONG_MAX_LENGTH) for source in tame_sources], decoding)
    capped = 0
    for source, result in zip(tame_sources, ours, strict=True):
        with torch.inference_mode():
            given = hugging_face.generate(
                input_ids=torch.tensor([[*source, eos]]), num_beams=beam_size, num_return_sequences=beam_size,
                max_new_tokens=LONG_MAX_LENGTH, length_penalty=1.0, early_stopping="never", do_sample=False,
                bad_words_ids=[[pad]], forced_eos_token_id=None,
            )  # fmt: skip
        theirs = [tuple(token for token in row[1:] if token != pad) for row in given.tolist()]
        if any(row[-1] != eos for row in theirs):
            capped += 1
            continue
        for mine, other in zip((each.tokens for each in result.hypotheses), theirs, strict=True):
            assert mine == other
    print(f"{capped} of {len(ours)} reached the maximum length, the others have the same lists")  # noqa: T201
    assert capped <= max(1, 0.02 * len(ours))


def test_a_sentence_is_translated_alike_alone_and_in_a_batch(
    loaded: LoadedModel, sources: list[tuple[int, ...]]
) -> None:
    sentences = [Sentence(source, MAX_LENGTH) for source in sources]
    decoding = Decoding(5, "length-norm")
    together = beam_search(loaded.model, sentences, decoding, batch_size=len(sentences))
    for sentence, result in zip(sentences, together, strict=True):
        (alone,) = beam_search(loaded.model, [sentence], decoding)
        one, two = alone.hypotheses[0], result.hypotheses[0]
        if one.tokens == two.tokens:
            assert one.log_probs == pytest.approx(two.log_probs, abs=1e-4)
        else:
            print(f"near a tie: {one.score:.5f} {one.tokens} and {two.score:.5f} {two.tokens}")  # noqa: T201
            assert abs(one.score - two.score) <= 1e-4


@pytest.fixture(scope="module")
def recorded(loaded: LoadedModel, sources: list[tuple[int, ...]]) -> list[tuple[Sentence, Trace]]:
    sentences = [
        Sentence(source, 2 * len(source) + 10, expected_length=1.1 * len(source) + 1)
        for source in sources[: max(3, COUNT // 4) if COUNT < 100 else COUNT]
    ]
    return [(sentence, record(loaded.model, [sentence], 10)[0]) for sentence in sentences]


@pytest.mark.parametrize("score", list(SCORES))
def test_optimal_stopping_loses_nothing(
    loaded: LoadedModel, recorded: list[tuple[Sentence, Trace]], score: str
) -> None:
    decoding = Decoding(10, f"{score}:reward=0.5" if "word-reward" in score else score)
    for sentence, trace in recorded:
        (live,) = beam_search(loaded.model, [sentence], decoding)
        (exhaustive,) = judge(
            trace, [decoding.replace(stop="exhaustive")], expected_length=sentence.expected_length
        )
        assert live.certificate.proved
        assert live.hypotheses[0].tokens == exhaustive.hypotheses[0].tokens
        # a live search drops hopeless prefixes, and matrix products of other shapes differ in the last bits
        assert live.hypotheses[0].score == pytest.approx(exhaustive.hypotheses[0].score, abs=1e-4)
        assert live.steps <= exhaustive.steps


def test_expected_lengths_are_near_those_of_greedy_outputs(loaded: LoadedModel, vocabulary: Vocabulary) -> None:
    """On news of every length."""
    assert loaded.predictor is not None
    lines = TEXT.read_text(encoding="utf-8").splitlines()
    sources = [tuple(tokens) for tokens in loaded.source.encode(lines[:: len(lines) // (4 * COUNT)])]
    lengths = np.array([len(source) for source in sources])
    expected_length = loaded.predictor.predict(lengths, loaded.model.features(sources))
    greedy = beam_search(
        loaded.model, [Sentence(source, 150) for source in sources], Decoding(1, "log-prob", "first-finished")
    )
    found = [result.hypotheses[0] for result in greedy]
    assert 0.9 < expected_length.mean() / np.mean([each.length for each in found]) < 1.15
    texts = [vocabulary.decode(each.tokens) for each in found]
    again = [len(tokens) + 1 for tokens in RankedTokenizer(vocabulary).encode(texts)]
    assert abs(np.mean(again) - np.mean([each.length for each in found])) < 0.4
