"""Beam search as a decoding method of `generate` in transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.families import (
    EAGER_ONLY,
    EVERY_FAMILY,
    EVERY_IMPLEMENTATION,
    FAMILIES,
    SOURCES,
    AddToScore,
    generated,
    inputs,
    network,
    outputs,
)
from transformers import (
    LogitsProcessorList,
)

import uncurse
from uncurse import Decoding, Sentence, UncurseError
from uncurse.lengths.predictors import LinearLength
from uncurse.models.huggingface.step_model import HuggingFaceStepModel


@EVERY_FAMILY
@pytest.mark.parametrize("beam_size", [2, 5])
def test_n_best_lists_are_those_of_generate(family: str, beam_size: int) -> None:
    """`early_stopping="never"` proves the worst of b hypotheses, as `optimal` does for an n-best list of b."""
    wanted = {"num_return_sequences": beam_size, "return_dict_in_generate": True, "max_new_tokens": 24}
    theirs_only = {"num_beams": beam_size, "early_stopping": "never", "length_penalty": 1.0, "output_scores": True}
    lengths: set[int] = set()
    for seed in range(3):
        model: Any = network(family, seed, ending=1.0, implementation="eager" if family in EAGER_ONLY else "sdpa")
        theirs = model.generate(**inputs(family), **wanted, **theirs_only)
        ours = generated(model, inputs(family), **wanted, beam_size=beam_size, slots="refill")
        expected = outputs(family, theirs.sequences)
        # At the maximum length generate counts what it cuts off as finished; this search never does.
        assert all(tokens[-1] == FAMILIES[family][1].eos for tokens in expected)
        assert outputs(family, ours.sequences) == expected
        assert (ours.sequences_scores - theirs.sequences_scores).abs().max() < 1e-4
        assert set(ours.certificates) <= {"BEAM", "GLOBAL"}
        assert (ours.gaps == 0.0).all()
        lengths |= {len(tokens) for tokens in expected}
    assert len(lengths) >= 3


@EVERY_IMPLEMENTATION
def test_a_sentence_alone_gives_what_it_gives_in_a_batch(family: str, implementation: str) -> None:
    model = network(family, 3, ending=1.0, implementation=implementation)
    options = {"beam_size": 4, "score": "bp-norm", "length_ratio": 1.5, "return_dict_in_generate": True}
    together = generated(model, inputs(family), **options)
    for place, source in enumerate(SOURCES):
        alone = generated(model, inputs(family, [source]), **options)
        assert outputs(family, alone.sequences) == outputs(family, together.sequences)[place : place + 1]
        assert abs(alone.sequences_scores[0] - together.sequences_scores[place]) < 1e-4
        assert alone.certificates[0] == together.certificates[place]


@EVERY_FAMILY
def test_the_beam_of_a_single_sentence_stores_the_keys_of_its_source_once(family: str) -> None:
    if family in EAGER_ONLY:
        pytest.skip("eager attention would copy them at every step")
    model = network(family, 3, implementation="sdpa")
    copies: list[int] = []

    def note(_: object, __: object, options: dict[str, Any]) -> None:
        layers = options["past_key_values"].cross_attention_cache.layers
        copies.extend(layer.keys.untyped_storage().nbytes() // layer.keys[0].nbytes for layer in layers)

    model.register_forward_pre_hook(note, with_kwargs=True)
    generated(model, inputs(family, SOURCES[:1]), beam_size=5)
    assert set(copies) == {1}


@EVERY_FAMILY
def test_generate_and_the_step_model_count_alike(family: str) -> None:
    """The same source tokens, lengths, attention and maximum lengths."""
    model, tokens = network(family, 4, ending=1.0), FAMILIES[family][1]
    beam_size, score = 3, "gnmt:alpha=0.5,beta=0.4"
    expected_length = [1.7 * len(source) for source in SOURCES]
    steps = HuggingFaceStepModel(model, tokens)
    for name, options in (
        (score, {}),
        ("bp-norm", {"length_ratio": 1.7}),
        ("bounded-word-reward:reward=2,ratio=1.7", {}),
    ):
        ours = generated(
            model, inputs(family), beam_size=beam_size, score=name, return_dict_in_generate=True, **options
        )
        sentences = [Sentence(source, 12, (), each) for source, each in zip(SOURCES, expected_length, strict=True)]
        results = uncurse.beam_search(steps, sentences, Decoding(beam_size, name))
        assert outputs(family, ours.sequences) == [result.hypotheses[0].tokens for result in results]
        scores = [result.hypotheses[0].score for result in results]
        assert ours.sequences_scores.tolist() == pytest.approx(scores, abs=1e-4)


def test_sequences_have_the_layout_of_generate() -> None:
    model = network("t5", 5, ending=1.0)
    given = inputs("t5")
    del given["decoder_input_ids"]
    both = generated(model, given, beam_size=4, num_return_sequences=3, return_dict_in_generate=True)
    assert both.sequences.shape[0] == 3 * len(SOURCES) == len(both.sequences_scores)
    assert (both.sequences[:, 0] == 0).all()
    scores = both.sequences_scores.reshape(len(SOURCES), 3)
    assert (scores[:, :-1] >= scores[:, 1:]).all()
    best = generated(model, given, beam_size=4)
    assert best.dtype == torch.long
    assert outputs("t5", best) == outputs("t5", both.sequences)[::3]
    lengths = [len(tokens) for tokens in outputs("t5", best)]
    assert best.shape[1] == 1 + max(lengths)
    for row, length in zip(best, lengths, strict=True):
        assert (row[1 + length :] == 0).all()  # padding


def test_where_fewer_finish_than_are_wanted_prompts_stand_alone() -> None:
    options = {"max_new_tokens": 1, "beam_size": 3, "num_return_sequences": 3, "return_dict_in_generate": True}
    few = generated(network("t5", ending=-3.0), inputs("t5", [(5, 6)]), **options)
    assert few.sequences.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert few.num_hypotheses.tolist() == [1]
    assert few.sequences_scores[0] > -1.0
    assert (few.sequences_scores[1:] == -torch.inf).all()


def test_what_is_cut_off_is_called_so() -> None:
    none = generated(network("t5", ending=30.0), inputs("t5"), max_new_tokens=2, return_dict_in_generate=True)
    assert set(none.certificates) == {"TRUNCATED"}
    assert not (none.sequences == 1).any()
    assert none.steps.tolist() == [2] * len(SOURCES)


def test_a_forced_first_token_is_a_prompt_that_is_not_scored() -> None:
    model, given = network("m2m100", 6, ending=1.0), inputs("m2m100")
    prompted = generated(model, given, beam_size=3, max_new_tokens=11, return_dict_in_generate=True)
    del given["decoder_input_ids"]
    forced = generated(model, given, beam_size=3, forced_bos_token_id=37, return_dict_in_generate=True)
    assert (forced.sequences[:, :2] == torch.tensor([2, 37])).all()
    assert forced.sequences.tolist() == prompted.sequences.tolist()
    assert forced.sequences_scores.tolist() == prompted.sequences_scores.tolist()
    both = generated(model, inputs("m2m100"), beam_size=3, max_new_tokens=11, forced_bos_token_id=36)
    assert both.tolist() == prompted.sequences.tolist()  # after a longer prompt nothing is forced


def test_several_end_tokens_count_as_one_with_the_sum_of_their_probabilities() -> None:
    model: Any = network("t5", 6, ending=1.0)
    options = {"eos_token_id": [1, 9], "score": "log-prob", "return_dict_in_generate": True}
    found = generated(model, inputs("t5"), beam_size=4, **options)
    assert not (found.sequences == 9).any()
    for place, tokens in enumerate(outputs("t5", found.sequences)):
        given = {name: tensor[place : place + 1] for name, tensor in inputs("t5").items()}
        given["decoder_input_ids"] = torch.tensor([[0, *tokens[:-1]]])
        with torch.inference_mode():
            log_probs = model(**given).logits[0].log_softmax(dim=1)
        said = sum(float(log_probs[step, token]) for step, token in enumerate(tokens[:-1]))
        expected = said + float(log_probs[-1, [1, 9]].logsumexp(dim=0))
        assert float(found.sequences_scores[place]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", ["m2m100", "nllb-moe"])
def test_words_of_a_prompt_shorten_the_expected_length_and_tags_do_not(family: str) -> None:
    """D1: L becomes L − p for p words, and a language is no word."""
    model, tokens = network(family, 7, ending=1.0), FAMILIES[family][1]
    given = inputs(family)
    given["decoder_input_ids"] = torch.tensor([[*tokens.decoder_prompt, 9, 10]] * len(SOURCES))
    ours = generated(model, given, beam_size=3, score="bp-norm", length_ratio=2.0)
    sentences = [Sentence(source, 12, (9, 10), 2.0 * len(source)) for source in SOURCES]
    results = uncurse.beam_search(HuggingFaceStepModel(model, tokens), sentences, Decoding(3, "bp-norm"))
    expected = [(9, 10, *result.hypotheses[0].tokens) for result in results]
    assert outputs(family, ours) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"suppress_tokens": list(range(20, 40))},
        {"bad_words_ids": [[7], [9, 10], [4, 4]]},
        {"min_new_tokens": 11},
        {"no_repeat_ngram_size": 1},
        {"repetition_penalty": 3.0},
        {"renormalize_logits": True, "suppress_tokens": list(range(20, 40))},
        {"begin_suppress_tokens": list(range(5, 40))},
        {"forced_eos_token_id": 1, "max_new_tokens": 6},
        {"logits_processor": LogitsProcessorList([AddToScore(7, -5.0)])},
        {"encoder_no_repeat_ngram_size": 1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_logits_processors_act_as_in_generate(options: dict[str, object]) -> None:
    model: Any = network("t5", 8, ending=1.0)
    wanted = {"max_new_tokens": 24, "num_return_sequences": 4, **options}
    theirs = model.generate(**inputs("t5"), num_beams=4, early_stopping="never", **wanted)
    ours = generated(model, inputs("t5"), beam_size=4, slots="refill", **wanted)
    assert outputs("t5", ours) == outputs("t5", theirs)
    without = generated(
        model, inputs("t5"), beam_size=4, slots="refill", max_new_tokens=24, num_return_sequences=4
    )
    assert outputs("t5", ours) != outputs("t5", without)


@pytest.mark.parametrize("size", [1, 2])
def test_ngrams_of_the_source_stay_forbidden_if_the_model_says_so(size: int) -> None:
    """Blenderbot comes with 3. Sentences keep their n-grams when rows come and go."""
    for seed in range(3):
        model: Any = network("bart", seed, ending=1.0)
        model.generation_config.encoder_no_repeat_ngram_size = size
        wanted = {"max_new_tokens": 24, "num_return_sequences": 4}
        theirs = model.generate(**inputs("bart"), num_beams=4, early_stopping="never", **wanted)
        ours = generated(model, inputs("bart"), beam_size=4, slots="refill", **wanted)
        assert outputs("bart", ours) == outputs("bart", theirs)


def test_a_processor_that_makes_a_score_positive_is_refused_where_it_does() -> None:
    processors = LogitsProcessorList([AddToScore(7, 50.0)])
    with pytest.raises(UncurseError, match=r"sentence 0, step 1: .* above 0; .* at work: AddToScore"):
        generated(network("t5"), inputs("t5"), logits_processor=processors)


def test_a_predictor_sees_source_tokens_and_features_as_it_was_fitted() -> None:
    model, tokens = network("mbart50", 9, ending=1.0), FAMILIES["mbart50"][1]
    random = np.random.default_rng(1)
    predictor = LinearLength(
        (0.8,),
        mean=random.normal(size=17),
        scale=np.ones(17),
        weight=random.normal(size=(2, 17)),
        bias=np.array([2.0, 14.0]),
    )
    steps: Any = HuggingFaceStepModel(model, tokens)
    lengths, features = np.array([len(source) for source in SOURCES]), steps.features(SOURCES)
    expected_length = predictor.predict(lengths, features)
    max_lengths = np.ceil(predictor.quantile(0.8, lengths, features)).astype(int)
    model.generation_config.max_length = 60
    given = {"max_new_tokens": None, "beam_size": 3, "score": "bp-norm", "length_predictor": predictor}
    ours = generated(model, inputs("mbart50"), **given)
    sentences = [
        Sentence(*each)
        for each in zip(SOURCES, max_lengths.tolist(), [()] * 6, expected_length.tolist(), strict=True)
    ]
    results = uncurse.beam_search(steps, sentences, Decoding(3, "bp-norm"))
    assert outputs("mbart50", ours) == [result.hypotheses[0].tokens for result in results]
    assert len({len(result.hypotheses[0].tokens) for result in results}) > 1
    whole = generated(model, inputs("mbart50"), **given, stop="exhaustive", return_dict_in_generate=True)
    assert whole.steps.tolist() == np.minimum(max_lengths, 58).tolist()
