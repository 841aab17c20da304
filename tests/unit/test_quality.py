"""Measures of translations."""

from __future__ import annotations

import pytest
import sacrebleu

from uncurse.errors import UncurseError
from uncurse.evaluation.bleu import corpus_quality, repeats

OUTPUTS = ["the cat sat on the mat", "", "a a a a a a a"]
REFERENCES = [["The cat sat on the mat", "dogs", "a b c d"], ["A cat sat on a mat", "some dogs", "e f g h"]]


def test_bleu_is_that_of_sacrebleu() -> None:
    found = corpus_quality(OUTPUTS, REFERENCES, lowercase=True)
    expected = sacrebleu.corpus_bleu(OUTPUTS, REFERENCES, lowercase=True)
    assert found.bleu == expected.score
    assert found.brevity_penalty == expected.bp
    assert found.ratio == expected.sys_len / expected.ref_len
    assert "nrefs:2|case:lc" in found.signature
    assert corpus_quality(OUTPUTS, REFERENCES, lowercase=False).bleu < found.bleu


def test_empty_and_repeating_outputs_are_counted() -> None:
    found = corpus_quality(OUTPUTS, REFERENCES, lowercase=True)
    assert found.empty == pytest.approx(1 / 3)
    assert found.repeating == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [("", False), ("a b c d " * 2, False), ("a b c d " * 3, True), ("a " * 6, True), ("a " * 5, False)],
)
def test_a_four_gram_three_times_is_a_repetition(text: str, found: bool) -> None:
    assert repeats(text) is found


def test_references_must_go_with_the_outputs() -> None:
    with pytest.raises(UncurseError, match="reference 0 has 1 lines and there are 3 outputs"):
        corpus_quality(OUTPUTS, [["one"]], lowercase=True)
    with pytest.raises(UncurseError, match="no outputs"):
        corpus_quality([], [], lowercase=True)
