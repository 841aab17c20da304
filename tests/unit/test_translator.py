"""Lines in, lines out, with a model of random numbers in between."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from support.letter_model import LetterEncoder

from uncurse import Certificate, Decoding, parse_max_length
from uncurse.arrays import Floats, Ints
from uncurse.lengths.policy import hit_max_length
from uncurse.lengths.predictors import FixedRatio
from uncurse.search.record import record
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import json_line
from uncurse.translation.shards import Shard
from uncurse.translation.translator import MAX_SOURCE_LENGTH, Translation, Translator


class Letters:
    """A subword model whose pieces are letters; `</s>` is 6."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) - ord("a") for letter in line] for line in lines]

    def decode(self, pieces: Sequence[int]) -> str:
        return "".join(chr(ord("a") + piece) for piece in pieces if piece != 6)


MODEL = LetterEncoder(seed=1, vocab_size=7, ending=1.0)
TRANSLATOR = Translator(MODEL, Letters(), Letters(), FixedRatio(1.5))
LINES = ["abc", "", "f", "abcdefabc", "ab", "", "edcba", "a"]


def texts(translations: list[Translation]) -> list[tuple[str, ...]]:
    return [each.texts for each in translations]


def test_the_order_of_the_lines_is_kept_and_empty_lines_stay_empty() -> None:
    together = TRANSLATOR.translate(LINES)
    assert [each.source for each in together] == LINES
    assert texts(together) == [TRANSLATOR.translate([line])[0].texts for line in LINES]
    assert together[1] == Translation("", ("",), None, None)


@pytest.mark.parametrize("batch_tokens", [1, 5, 100])
def test_the_batch_changes_nothing(batch_tokens: int) -> None:
    assert list(TRANSLATOR.stream(LINES, TranslationOptions(batch_tokens=batch_tokens))) == TRANSLATOR.translate(
        LINES
    )


def test_lines_are_taken_as_they_come() -> None:
    """Of an endless input only what is asked for is translated."""

    stream = TRANSLATOR.stream(itertools.repeat("ab"), TranslationOptions())
    assert next(stream) == next(stream)


def test_n_best_are_in_order() -> None:
    for each in TRANSLATOR.translate(["abc", "de"], n_best=3):
        assert each.result is not None
        scores = [hypothesis.score for hypothesis in each.result.hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len(each.texts) == len(set(each.texts)) == 3


def test_a_target_prefix_begins_every_translation_and_counts_in_the_limit() -> None:
    task = TranslationOptions(Decoding(5, "log-prob"), max_length=parse_max_length("6"), target_prefix="bad")
    for each in TRANSLATOR.stream(["abc", "de"], task):
        assert each.texts[0].startswith("bad")
        assert each.result is not None
        assert each.result.hypotheses[0].length <= 3


def test_a_minimum_length_is_kept() -> None:
    task = TranslationOptions(Decoding(5, "log-prob"), max_length=parse_max_length("9"), min_length=5)
    for each in TRANSLATOR.stream(["abc", "de"], task):
        assert each.result is not None
        assert each.result.hypotheses[0].length >= 5


def test_a_minimum_length_above_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="min_length = 10 is not allowed: max_length is 9"):
        TranslationOptions(max_length=parse_max_length("9"), min_length=10)


def test_a_minimum_length_leaves_room_to_end_under_the_usual_limit() -> None:
    (usual,) = TRANSLATOR.sentences([(0, 1, 2)], TranslationOptions())
    (longer,) = TRANSLATOR.sentences([(0, 1, 2)], TranslationOptions(min_length=usual.max_length + 5))
    assert (longer.min_length, longer.max_length) == (usual.max_length + 5, usual.max_length + 15)


def test_a_long_line_is_an_error_or_cut() -> None:
    lines = ["a", "b" * (MAX_SOURCE_LENGTH + 1)]
    with pytest.raises(
        ValueError, match=f"line 2 has {MAX_SOURCE_LENGTH + 1} tokens; the maximum is {MAX_SOURCE_LENGTH}"
    ):
        list(TRANSLATOR.stream(lines, TranslationOptions()))
    task = TranslationOptions(Decoding(1, "log-prob"), max_length=parse_max_length("3"), truncate=True)
    assert len(list(TRANSLATOR.stream(lines, task))) == 2


def test_one_string_is_no_list_of_lines() -> None:
    with pytest.raises(ValueError, match="not one string"):
        TRANSLATOR.translate("ab")


def test_an_expected_length_is_needed_by_scores_that_read_it() -> None:
    translator = Translator(MODEL, Letters(), Letters(), None)
    with pytest.raises(ValueError, match=r"give a length_ratio \(such as 1\.1 .* or fit a predictor"):
        translator.translate(["ab"], score="f1-norm")
    assert translator.translate(["ab"], length_ratio=1.5) == TRANSLATOR.translate(["ab"])
    assert translator.translate(["ab"], score="log-prob")[0].expected_length is None


@pytest.mark.parametrize(("stop", "max_length"), [("optimal", None), ("optimal", "3x"), ("beam-full", "q0.8")])
def test_a_ratio_that_nothing_reads_is_refused(stop: str, max_length: str | None) -> None:
    decoding = Decoding(3, "length-norm", stop)
    with pytest.raises(ValueError, match=r"length_ratio = 1\.5 is not allowed"):
        TranslationOptions(
            decoding, None if max_length is None else parse_max_length(max_length), length_ratio=1.5
        )
    assert TranslationOptions(decoding, parse_max_length("predicted"), length_ratio=1.5).length_ratio == 1.5
    assert (
        TranslationOptions(Decoding(3, "length-norm", "predicted-horizon"), length_ratio=1.5).length_ratio == 1.5
    )


def test_a_record_says_everything_in_one_line() -> None:
    finished, empty = TRANSLATOR.translate(["abc", ""], n_best=2)
    shard = Shard(0, 7, ("abc", ""), ids=("first", None))
    record = json.loads(json_line(finished, shard, 0))
    assert "\n" not in json_line(finished, shard, 0)
    assert (record["line"], record["id"], record["source"]) == (7, "first", "abc")
    assert [record["text"], *(other["text"] for other in record["others"])] == list(finished.texts)
    assert record["certificate"] in ("GLOBAL", "BEAM")
    assert record["gap"] == 0.0
    assert record["expected_length"] == 4.5
    hypothesis = {"text", "tokens", "log_prob", "token_log_probs", "score", "length"}
    assert record.keys() >= record["others"][0].keys() == hypothesis
    assert math.isclose(sum(record["token_log_probs"]), record["log_prob"])
    assert len(record["token_log_probs"]) == record["length"]
    assert record["score"] > record["others"][0]["score"]
    assert record.keys() >= {"steps", "model_rows", "signature"}
    nothing = json.loads(json_line(empty, shard, 1))
    assert nothing.keys() == record.keys()
    assert (nothing["text"], nothing["tokens"], nothing["certificate"], nothing["others"]) == ("", [], None, [])


def test_an_infinite_gap_is_null() -> None:
    never = LetterEncoder(seed=1, vocab_size=7, ending=-math.inf)
    (truncated,) = Translator(never, Letters(), Letters(), FixedRatio(1.0)).translate(["ab"])
    assert json.loads(json_line(truncated, Shard(0, 1, ("ab",)), 0))["gap"] is None


def test_nothing_is_longer_than_the_model_can_tell_places_apart() -> None:
    class Bounded(LetterEncoder):  # type: ignore[misc]
        max_source_length = 5
        max_target_length = 6

    never = Bounded(seed=1, vocab_size=7, ending=-math.inf)
    translator = Translator(never, Letters(), Letters(), FixedRatio(1.5))
    (found,) = translator.translate(["abcde"], beam_size=2)
    assert found.result is not None
    assert found.result.hypotheses[0].length == 6
    with pytest.raises(ValueError, match="line 1 has 6 tokens; the maximum is 5"):
        translator.translate(["abcdef"])


class TooShort:
    """A predictor that expects three tokens of everything."""

    levels = (0.8,)

    def predict(self, source_lengths: Ints, features: Floats) -> Floats:
        return np.full(len(source_lengths), 3.0)

    def quantile(self, level: float, source_lengths: Ints, features: Floats) -> Floats:
        return self.predict(source_lengths, features)


@pytest.mark.parametrize("prefix", ["", "b"])
def test_where_nothing_ends_within_the_default_limit_the_search_is_made_again_with_a_wider_one(
    prefix: str,
) -> None:
    translator = Translator(LetterEncoder(seed=3, vocab_size=7, ending=-2.0), Letters(), Letters(), TooShort())
    lines = ["".join(letters) for letters in itertools.product("abcdef", repeat=2)]

    def found(max_length: str | None) -> list[Translation]:
        task = TranslationOptions(
            Decoding(3), parse_max_length(max_length) if max_length else None, target_prefix=prefix
        )
        return list(translator.stream(lines, task))

    kinds = set()
    for default, short, wide in zip(found(None), found("q0.8"), found("2x+10"), strict=True):
        assert default.result is not None
        assert short.result is not None
        ended = short.result.certificate is not Certificate.TRUNCATED
        empty = short.result.finished == 1 and short.result.hypotheses[0].length == 1
        assert default == (wide if empty or not ended else short)
        kinds.add((ended, empty))
    assert kinds == {(False, False), (True, False), (True, True)}


def test_an_empty_translation_that_is_the_best_of_several_stands() -> None:
    """The raw score likes it: a wider limit would only cost time."""
    model = LetterEncoder(seed=3, vocab_size=7, ending=2.0)
    translator = Translator(model, Letters(), Letters(), TooShort())
    task = TranslationOptions(Decoding(3, "log-prob", "exhaustive"))
    results = [each.result for each in translator.stream(["ab", "cd", "ef"], task)]
    assert [result.hypotheses[0].length for result in results if result is not None] == [1, 1, 1]
    assert all(result is not None and result.finished > 1 and result.steps == 3 for result in results)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("ending", [-4.0, 0.0, 3.0])
def test_a_recorded_search_was_cut_off_when_a_live_one_was(ending: float, beam_size: int) -> None:
    model = LetterEncoder(seed=3, vocab_size=7, ending=ending)
    translator = Translator(model, Letters(), Letters(), TooShort())
    task = TranslationOptions(Decoding(beam_size, "length-norm", "exhaustive"), parse_max_length("q0.8"))
    lines = ["".join(letters) for letters in itertools.product("abcdef", repeat=2)]
    sentences = translator.sentences([translator.encode(line) for line in lines], task)
    judged = [
        hit_max_length(each.result, sentence.max_length)
        for sentence, each in zip(sentences, translator.stream(lines, task), strict=True)
        if each.result is not None
    ]
    assert judged == [hit_max_length(trace, trace.max_length) for trace in record(model, sentences, beam_size)]
    assert any(judged) != (ending == 3.0 and beam_size == 3)


def test_outputs_that_the_model_has_no_places_for_are_refused_before_the_search() -> None:
    model = LetterEncoder(seed=1, vocab_size=7, ending=1.0)
    model.max_target_length = 5
    translator = Translator(model, Letters(), Letters(), FixedRatio(1.5))
    assert len(list(translator.stream(["abc"], TranslationOptions(min_length=3, target_prefix="ab")))) == 1
    with pytest.raises(ValueError, match=r"would have 6 tokens or more, .*; this model can output 5"):
        list(translator.stream(["abc"], TranslationOptions(min_length=4, target_prefix="ab")))
