"""The public face, as it is shown to people, runs as it is written."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest

import uncurse
from uncurse.arrays import Floats
from uncurse.models.download import downloaded_folder
from uncurse.testing import RandomModel


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zh-en-small", "opus-mt-zh-en"])
def test_an_engineer_translates(name: str) -> None:
    if name == "opus-mt-zh-en" and downloaded_folder(name) is None:
        pytest.skip("opus-mt-zh-en is not downloaded: uncurse models get opus-mt-zh-en")
    translator = uncurse.load(name, dtype="int8" if name == "opus-mt-zh-en" else "float32")
    for t in translator.translate(["外面下雨了。"], beam_size=20, max_length="2x+10"):
        assert "rain" in t.text
        assert t.score is not None
        assert t.certificate is not None
        assert t.certificate.proved
        assert t.result is not None
        assert "score:f1-norm|stop:optimal|" in t.result.signature


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_transformers_generates_with_nothing_else_to_set() -> None:
    pytest.importorskip("transformers")
    from support import families

    from uncurse.huggingface import beam_search

    model, inputs = families.network("marian"), families.inputs("marian")
    plain = model.generate(**inputs, custom_generate=beam_search)  # type: ignore[operator]
    wide = model.generate(**inputs, custom_generate=beam_search, beam_size=20)  # type: ignore[operator]
    assert len(plain) == len(wide) == len(inputs["input_ids"])


def test_a_researcher_searches_records_and_judges() -> None:
    step_model = RandomModel(seed=1, vocab_size=50, ending=2.0)
    sentences = [uncurse.Sentence(source=(7, 8, 9), max_length=30, expected_length=6.0)]
    decoding = uncurse.Decoding(beam_size=20, score="f1-norm", n_best=5)
    results = uncurse.beam_search(step_model, sentences, decoding)
    (trace,) = uncurse.record(step_model, sentences[:1], beam_size=20)
    judged = uncurse.judge(trace, [decoding.replace(stop=rule) for rule in uncurse.RULES], expected_length=6.0)
    assert [uncurse.RULES.name(result.decoding.stop) for result in judged] == list(uncurse.RULES)
    assert judged[list(uncurse.RULES).index("optimal")] == results[0]


@pytest.mark.parametrize(
    "function",
    [
        uncurse.beam_search,
        uncurse.exact_search,
        uncurse.judge,
        uncurse.load,
        uncurse.parameter,
        uncurse.record,
        uncurse.Decoding.__init__,
    ],
)
def test_help_explains_every_parameter(function: Any) -> None:
    explained = inspect.getdoc(function) or ""
    for name in inspect.signature(function).parameters.keys() - {"self"}:
        assert f"`{name}`" in explained or f"    {name}: " in explained, name


def test_a_score_of_ones_own_is_one_class() -> None:
    @uncurse.SCORES.register("gaussian", formula="S − (n−L)²/2σ²", source="me")
    @dataclass(frozen=True)
    class Gaussian(uncurse.Rescorer):
        sigma: float = uncurse.parameter("σ", default=2.0, low=0.0, low_open=True)

        def score(self, source: uncurse.Source, paths: uncurse.Paths) -> Floats:
            return paths.log_prob - ((paths.length - source.expected_length) / self.sigma) ** 2 / 2

    try:
        sentences = [uncurse.Sentence(source=(7, 8, 9), max_length=30, expected_length=6.0)]
        decoding = uncurse.Decoding(beam_size=10, score="gaussian:sigma=1.5")
        (result,) = uncurse.beam_search(RandomModel(seed=1, vocab_size=50, ending=2.0), sentences, decoding)
        assert result.certificate.proved
        assert result.steps < 30
    finally:
        uncurse.SCORES.unregister("gaussian")


def _defaults_of(function: Any) -> dict[str, Any]:
    import inspect

    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def test_every_door_has_the_same_defaults() -> None:
    pytest.importorskip("torch")
    from uncurse.cli.translate import translate
    from uncurse.huggingface import beam_search
    from uncurse.translation.translator import Translator

    expected = {
        name: value
        for name, value in _defaults_of(uncurse.Decoding).items()
        if name in ("beam_size", "score", "stop", "slots")
    }
    for door in (Translator.translate, translate):
        assert {name: _defaults_of(door)[name] for name in expected} == expected
    in_generate = {name: _defaults_of(beam_search)[name] for name in expected}
    assert in_generate == {**expected, "beam_size": None}, "there, num_beams may come with the model"
    options = set(_defaults_of(Translator.translate)) - {"self", "lines", "truncate"}
    assert options <= set(_defaults_of(translate)), "the command takes what the method takes"
