"""N-best lists without equal texts, over HTTP and under deadlines: as the translator makes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from fastapi.testclient import TestClient
from support.batcher import SOON, Clock, alone, running_batcher, submit
from support.service import CharacterTokenizer, HeldModel

from uncurse import Decoding, parse_max_length
from uncurse.lengths.predictors import FixedRatio
from uncurse.serving.app import Service
from uncurse.translation.options import TranslationOptions
from uncurse.translation.translator import Translator

LINES = ["".join(pair) for pair in product("abcdef", repeat=2)]
OPTIONS = TranslationOptions(Decoding(12, n_best=5), parse_max_length(6), distinct=True)


class BlurredTokenizer(CharacterTokenizer):
    """Has one letter for all tokens, so that many hypotheses have the same text."""

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join("a" for token in tokens if token != 6)


def blurred_translator() -> tuple[HeldModel, Translator]:
    model = HeldModel(seed=1)
    return model, Translator(model, CharacterTokenizer(), BlurredTokenizer(), FixedRatio(1.5))


def test_distinct_lists_are_those_of_the_translator_also_where_it_searches_again() -> None:
    model, translator = blurred_translator()
    model.allow_all()
    expected = [alone(translator, OPTIONS, line) for line in LINES]
    with running_batcher(translator) as batcher:
        assert submit(batcher, OPTIONS, *LINES).result(SOON) == expected
    for each in expected:
        texts = [each["text"], *(other["text"] for other in each["others"])]
        assert len(texts) == len(set(texts))
        assert "distinct:5" in each["signature"]
    searched = {part for each in expected for part in each["signature"].split("|") if part.startswith("n_best")}
    assert len(searched) > 1


def test_a_request_for_distinct_texts_gets_them() -> None:
    model, translator = blurred_translator()
    model.allow_all()
    fields = {"beam_size": 12, "n_best": 5, "max_length": 6, "distinct": True}
    with TestClient(Service(translator, "letters").app()) as client:
        answer = client.post("/translate", json={"sentences": LINES, **fields})
        assert answer.json()["translations"] == [alone(translator, OPTIONS, line) for line in LINES]
        schema = client.get("/openapi.json").json()["components"]["schemas"]["TranslationRequest"]
        assert schema["properties"]["distinct"]["type"] == "boolean"


@pytest.mark.parametrize("steps", [2, 8, 11])
def test_a_deadline_gives_the_distinct_texts_found_so_far(steps: int) -> None:
    clock = Clock()
    model, translator = blurred_translator()
    with running_batcher(translator, clock=clock) as batcher:
        model.during[steps] = clock.advance
        model.allow_all()
        (found,) = submit(batcher, OPTIONS, "ab", deadline=10.0).result(SOON)
    texts = [found["text"], *(other["text"] for other in found["others"])]
    assert not found["in_time"]
    assert found["steps"] == min(steps, 6)  # a second search that came less far gives way to the first
    assert len(texts) == len(set(texts)) <= 5


def test_a_text_that_cannot_be_decoded_fails_its_own_request_alone() -> None:
    class FailingTokenizer(CharacterTokenizer):
        """Decodes nothing that begins with its first token."""

        def decode(self, tokens: Sequence[int]) -> str:
            if tokens[0] == 0:
                raise LookupError("no such token")
            return BlurredTokenizer().decode(tokens)

    model = HeldModel(seed=1)
    model.allow_all()
    translator = Translator(model, CharacterTokenizer(), FailingTokenizer(), FixedRatio(1.5))
    with running_batcher(translator) as batcher:
        found = [submit(batcher, OPTIONS, line) for line in LINES]
        failed = [each.exception(SOON) is not None for each in found]
    assert any(failed)
    assert not all(failed)
