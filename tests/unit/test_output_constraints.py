"""Which translations a user allows: lists of outputs, banned texts, repeated n-grams, distinct texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
from support.letter_model import LetterEncoder

from uncurse import BannedPhrases, Certificate, UncurseError
from uncurse.arrays import Ints
from uncurse.constraints.banned_texts import BannedTexts
from uncurse.lengths.predictors import FixedRatio
from uncurse.translation.options import TranslationOptions
from uncurse.translation.output_constraints import OutputConstraints
from uncurse.translation.output_settings import output_settings
from uncurse.translation.translator import Translator

PIECES = ("a", "b", " a", " b", "ab", " ", "")
EOS = 6


class Spelling:
    """A tokenizer with several ways to spell a text; it takes the one with the longest pieces."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[PIECES.index(piece) for piece in re.findall("ab| a| b|a|b| ", line)] for line in lines]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(PIECES[token] for token in tokens)


TRANSLATOR = Translator(LetterEncoder(seed=3, vocab_size=7, ending=1.0), Spelling(), Spelling(), FixedRatio(1.5))
LINES = ["ab a", "b", "a b ab"]


def tuple_array(tokens: tuple[int, ...]) -> Ints:
    return np.array([tokens], dtype=np.int64)


def contains_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![ab]){word}(?![ab])", text) is not None


@pytest.mark.parametrize("banned", [["ab"], ["a"], ["a b", "ba"], ["b", "a"]])
def test_a_ban_excludes_exactly_the_outputs_that_contain_a_text(banned: list[str]) -> None:
    constraint = BannedTexts(banned, PIECES, EOS)
    for length in range(1, 6):
        for tokens in itertools.product(range(6), repeat=length):
            text = "".join(PIECES[token] for token in tokens)
            allowed = True
            for step, token in enumerate((*tokens, EOS)):
                found = constraint.after(tuple_array(tokens[:step]))
                allowed &= token not in found.token.tolist()
            assert allowed == (not any(contains_word(text, word) for word in banned)), (text, banned)


def test_a_banned_text_is_in_no_translation_however_it_is_spelled() -> None:
    free = TRANSLATOR.translate(LINES, n_best=20, max_length=5)
    banned = TRANSLATOR.translate(LINES, n_best=20, max_length=5, ban=["ab", "b"])
    assert any(contains_word(text, "b") for each in free for text in each.texts)
    assert not any(contains_word(text, word) for each in banned for text in each.texts for word in ("ab", "b"))
    by_tokens = BannedPhrases([Spelling().encode(["ab"])[0]])
    assert EOS not in by_tokens.after(tuple_array((0, 1))).token  # a ban by tokens does not see another spelling


def test_a_script_without_spaces_is_banned_anywhere() -> None:
    pieces = ("下", "雨", "了", "")
    constraint = BannedTexts(["雨"], pieces, 3)
    assert constraint.after(tuple_array((0,))).token.tolist() == [1]


def test_only_listed_translations_are_given_and_the_best_is_proved() -> None:
    outputs = ["ab", "a b", "ab a b b a b"]
    for found in TRANSLATOR.translate(LINES, n_best=3, beam_size=10, only=outputs):
        assert sorted(found.texts) == sorted(outputs)
        assert found.certificate is Certificate.GLOBAL
        assert found.result is not None
        assert "|constraint:trie-" in found.result.signature


def test_no_ngram_is_repeated() -> None:
    for found in TRANSLATOR.translate(LINES, n_best=10, no_repeat_ngram=1, min_length=4):
        assert found.result is not None
        assert found.result.hypotheses
        for each in found.result.hypotheses:
            assert len(set(each.tokens)) == len(each.tokens)


def test_an_impossible_constraint_is_an_error_that_names_the_line() -> None:
    with pytest.raises(
        UncurseError, match=r"line 1: the constraint .* lets nothing follow .*: no output was found"
    ):
        TRANSLATOR.translate(["ab"], beam_size=10, min_length=8, max_length=9, no_repeat_ngram=1)
    with pytest.raises(UncurseError, match=r"line 1: max_length is 2, and the constraint .* of 4 tokens and more"):
        TRANSLATOR.translate(["ab"], max_length=2, only=["a b a"])
    with pytest.raises(UncurseError, match="can only spell"):
        TRANSLATOR.translate(["ab"], only=["xyz"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ()}, "only = .* at least one output"),
        ({"only": ("a", " ")}, "only must be a list of texts, none of them empty"),
        ({"ban": "a"}, "ban must be a list of texts"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram = -1 is not allowed"),
    ],
)
def test_constraints_that_make_no_sense_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UncurseError, match=message):
        OutputConstraints(**options)  # type: ignore[arg-type]


def test_distinct_texts_are_the_best_of_each_text() -> None:
    for line in LINES:
        (everything,) = TRANSLATOR.translate([line], n_best=200, max_length=4)
        (distinct,) = TRANSLATOR.translate([line], n_best=16, max_length=4, distinct=True)
        assert len(set(everything.texts[:16])) < 16
        assert distinct.texts == tuple(dict.fromkeys(everything.texts))[:16]
        assert distinct.certificate is not None
        assert distinct.certificate.proved
    with pytest.raises(UncurseError, match="it needs an n_best above 1"):
        TRANSLATOR.translate(LINES, distinct=True)


def test_a_run_is_resumed_only_with_the_same_constraints() -> None:
    def settings(constraints: OutputConstraints) -> dict[str, str]:
        return output_settings("model", TranslationOptions(constraints=constraints), "TEXT", "cpu", 1)

    same = [OutputConstraints(only=("a", "b")), OutputConstraints(only=("b", "a"))]
    others = [OutputConstraints(), OutputConstraints(only=("a",)), OutputConstraints(ban=("a", "b"))]
    assert settings(same[0]) == settings(same[1])
    assert all(settings(other) != settings(same[0]) for other in others)
