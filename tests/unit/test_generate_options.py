"""Options of `generate`: what acts, what gives way, what is refused, and which maximum length holds."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from support.families import SOURCES, AddToScore, generated, inputs, network, outputs
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TextIteratorStreamer,
)

from uncurse import SCORES, FixedRatio, UncurseError
from uncurse.huggingface import beam_search
from uncurse.lengths.predictors import LinearLength
from uncurse.models.huggingface.generate_call import GenerateFrame, frame_of_generate

NOTHING_ENDS = LogitsProcessorList([AddToScore(1, -torch.inf)])  # so that every search comes to its maximum length
TO_THE_END: dict[str, object] = {
    "max_new_tokens": None,
    "logits_processor": NOTHING_ENDS,
    "return_dict_in_generate": True,
}


def predictor(quantile_bias: float, size: int = 16) -> LinearLength:
    """Expects a ratio of 2 target tokens per source token, whatever the source."""
    return LinearLength(
        (0.8,),
        mean=np.zeros(size + 1),
        scale=np.ones(size + 1),
        weight=np.zeros((2, size + 1)),
        bias=np.array([np.log(np.expm1(2.0)), quantile_bias]),
    )


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_nothing_but_the_function_has_to_be_given() -> None:
    model: Any = network("marian", 1, ending=1.0)
    plain = model.generate(**inputs("marian"), custom_generate=beam_search)
    given = model.generate(
        **inputs("marian"),
        custom_generate=beam_search,
        beam_size=10,
        score="length-norm",
        stop="optimal",
        slots="occupy",
        num_return_sequences=1,
    )
    assert plain.tolist() == given.tolist()


@pytest.mark.parametrize("known", [{"length_ratio": 2.0}, {"length_predictor": FixedRatio(2.0)}], ids=str)
def test_with_an_expected_length_the_default_score_is_f1_norm(known: dict[str, object]) -> None:
    model: Any = network("t5", 1, ending=1.0)
    options = {"custom_generate": beam_search, "return_dict_in_generate": True, "max_new_tokens": 20, **known}
    default = model.generate(**inputs("t5"), **options)
    named = model.generate(**inputs("t5"), **options, score="f1-norm")
    other = model.generate(**inputs("t5"), **options, score="bp-norm")
    assert default.sequences_scores.tolist() == named.sequences_scores.tolist()
    assert default.sequences_scores.tolist() != other.sequences_scores.tolist()


def test_an_expected_length_can_be_given_for_each_sentence() -> None:
    model, lengths = network("t5", 1, ending=1.0), [1.5 * len(source) for source in SOURCES]
    options = {"score": None, "max_new_tokens": 20, "return_dict_in_generate": True}
    given = generated(model, inputs("t5"), expected_length=lengths, **options)
    by_ratio = generated(model, inputs("t5"), length_ratio=1.5, **options)
    by_function = generated(model, inputs("t5"), expected_length=lambda source: 1.5 * len(source), **options)
    assert given.sequences_scores.tolist() == by_ratio.sequences_scores.tolist()
    assert given.sequences_scores.tolist() == by_function.sequences_scores.tolist()


def test_scores_and_rules_can_be_values() -> None:
    model = network("t5", 2, ending=1.0)
    value = generated(model, inputs("t5"), score=SCORES.parse("gnmt:alpha=0.4"))
    assert value.tolist() == generated(model, inputs("t5"), score="gnmt:alpha=0.4").tolist()


def test_help_explains_every_option() -> None:
    text = inspect.getdoc(beam_search) or ""
    for name in inspect.signature(beam_search).parameters:
        assert f"{name}: " in text


# ---------------------------------------------------------------- what comes with the model gives way

PUBLISHED = {  # as the generation configs of OPUS-MT, BART and Qwen have them
    "num_beams": 6,
    "length_penalty": 2.0,
    "early_stopping": True,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "do_sample": True,
    "temperature": 0.2,
    "top_p": 0.3,
    "top_k": 2,
    "use_cache": False,
    "output_attentions": True,
}


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_options_that_come_with_the_model_give_way(family: str) -> None:
    plain: Any = network(family, 3, ending=1.0)
    expected = generated(plain, inputs(family), beam_size=4, num_return_sequences=2, return_dict_in_generate=True)
    for name, value in PUBLISHED.items():
        setattr(plain.generation_config, name, value)
    found = generated(plain, inputs(family), beam_size=4, num_return_sequences=2, return_dict_in_generate=True)
    assert found.sequences.tolist() == expected.sequences.tolist()
    assert found.sequences_scores.tolist() == expected.sequences_scores.tolist()


def test_beam_size_and_length_penalty_of_the_model_are_defaults() -> None:
    plain: Any = network("t5", 3, ending=1.0)
    wanted = {"num_return_sequences": 2, "return_dict_in_generate": True}
    expected = generated(plain, inputs("t5"), beam_size=3, score="length-norm:alpha=0.5", **wanted)
    by_length = generated(plain, inputs("t5"), beam_size=3, score=None, length_ratio=1.0, **wanted)
    plain.generation_config.num_beams, plain.generation_config.length_penalty = 3, 0.5
    found = generated(plain, inputs("t5"), score=None, **wanted)
    assert found.sequences_scores.tolist() == expected.sequences_scores.tolist()
    found = generated(plain, inputs("t5"), score=None, length_ratio=1.0, **wanted)
    assert found.sequences_scores.tolist() == by_length.sequences_scores.tolist()
    plain.generation_config.length_penalty = -1.0  # no score has it
    assert generated(plain, inputs("t5"), score=None).shape[0] == len(SOURCES)


def test_a_logits_processor_of_the_caller_acts_whatever_the_model_samples() -> None:
    model: Any = network("t5", 3, ending=1.0)
    model.generation_config.do_sample = True
    own = LogitsProcessorList([TemperatureLogitsWarper(0.25)])
    found = generated(model, inputs("t5"), logits_processor=own, renormalize_logits=True)
    assert found.tolist() != generated(model, inputs("t5"), renormalize_logits=True).tolist()


def test_options_that_come_with_the_model_are_refused_if_the_call_repeats_them() -> None:
    model: Any = network("t5")
    model.generation_config.num_beams = 6
    with pytest.raises(UncurseError, match="num_beams = 6: give beam_size instead"):
        generated(model, inputs("t5"), num_beams=6)
    config = GenerationConfig(num_beams=4, max_new_tokens=9)  # type: ignore[no-untyped-call]
    with pytest.raises(UncurseError, match="num_beams = 4: give beam_size instead"):
        model.generate(**inputs("t5"), custom_generate=beam_search, generation_config=config)
    assert generated(model, inputs("t5"), num_beams=1).shape[0] == len(SOURCES)


def test_num_return_sequences_may_come_with_the_model() -> None:
    model: Any = network("t5", 3, ending=1.0)
    expected = generated(model, inputs("t5"), num_return_sequences=3, beam_size=4)
    model.generation_config.num_beams, model.generation_config.num_return_sequences = 4, 3
    assert generated(model, inputs("t5")).tolist() == expected.tolist()
    assert generated(model, inputs("t5"), num_return_sequences=1).shape[0] == len(SOURCES)


# ---------------------------------------------------------------- what cannot act is refused

STRANGE = LinearLength((), np.zeros(4), np.ones(4), np.zeros((1, 4)), np.zeros(1))
REFUSED: list[tuple[dict[str, object], str]] = [
    ({"num_beams": 4}, "num_beams = 4: give beam_size instead"),
    ({"do_sample": True}, "do_sample = True"),
    ({"early_stopping": True}, "early_stopping = True"),
    ({"length_penalty": 2.0}, "length_penalty = 2.0"),
    ({"use_cache": False}, "use_cache = False"),
    ({"output_scores": True, "return_dict_in_generate": True}, "output_scores = True"),
    ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens = 3"),
    ({"num_return_sequences": 5}, "num_return_sequences = 5: that is more than the beam_size of 4"),
    ({"num_return_sequences": 0}, "num_return_sequences = 0 is not allowed"),
    ({"stopping_criteria": StoppingCriteriaList([MaxTimeCriteria(9.0)])}, "MaxTimeCriteria in stopping_criteria"),
    ({"max_time": 9.0}, "MaxTimeCriteria"),
    ({"sequence_bias": {(7,): 1.0}}, "sequence_bias above 0"),
    ({"decoder_attention_mask": torch.ones(6, 1)}, "decoder_attention_mask: it would not reach the model"),
    ({"score": "bp-norm"}, "needs an expected length: give length_ratio=1.1.* or expected_length=20"),
    ({"stop": "predicted-horizon"}, "needs an expected length"),
    ({"length_ratio": 1.1, "score": "length-norm"}, "neither the score nor the stopping rule reads it"),
    ({"length_predictor": predictor(2.0), "score": "length-norm"}, "neither the score nor the stopping rule"),
    ({"length_ratio": 1.1, "length_predictor": FixedRatio(1.1)}, "give one of them"),
    ({"length_ratio": "1.1"}, "ratio = '1.1' is not allowed"),
    ({"length_ratio": [1.1]}, r"ratio = \[1.1\] is not allowed"),
    ({"length_ratio": 10**400}, "ratio = 10+ is not allowed"),
    ({"length_ratio": -1}, "ratio = -1 is not allowed"),
    ({"forced_bos_token_id": [7]}, r"forced_bos_token_id = \[7\]: give one token"),
    ({"score": "bpnorm"}, "did you mean 'bp-norm'"),
    ({"score": 7}, "score = 7 is not allowed"),
    ({"stop": "optima"}, "did you mean 'optimal'"),
    ({"slots": "fill"}, "slots = 'fill'"),
    ({"beam_size": 0}, "beam_size = 0"),
    ({"score": "gnmt:beta=0.3"}, "attn_implementation='eager'"),
    ({"max_new_tokens": 1, "forced_bos_token_id": 7}, "max_length = 2 leaves no room"),
    ({"max_new_tokens": 5, "min_new_tokens": 9}, "max_length = 6 leaves no room: .* min_length = 10"),
    ({"force_words_ids": [[25]]}, "force_words_ids = .*: only a prefix can be forced"),
    ({"constraints": [7]}, "constraints = "),
    ({"num_beam_groups": 2, "diversity_penalty": 1.0}, "num_beam_groups = 2: .*; diversity_penalty = 1.0"),
    ({"length_predictor": torch.tensor(1.1)}, "length_predictor = tensor.* is not allowed"),
    ({"length_predictor": FixedRatio}, "length_predictor = <class .* is not allowed"),
    ({"length_predictor": STRANGE}, "is for states of 3 numbers, and this model's have 16"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value)[:40])
@pytest.mark.filterwarnings("ignore")  # generate has warnings of its own for some
def test_what_cannot_act_is_refused_by_name(options: dict[str, object], message: str) -> None:
    given = inputs("t5")
    del given["decoder_input_ids"]
    with pytest.raises(UncurseError, match=message):
        generated(network("t5", implementation="sdpa"), given, **{"beam_size": 4, "score": None, **options})


def test_everything_that_cannot_act_is_named_at_once() -> None:
    with pytest.raises(UncurseError, match=r"num_beams = 4: .*; length_penalty = 2.0"):
        generated(network("t5"), inputs("t5"), num_beams=4, length_penalty=2.0)


def test_a_streamer_and_an_assistant_are_refused() -> None:
    """`generate` drops them without a word, and the reader of a streamer would wait for ever."""
    streamer: Any = TextIteratorStreamer(None)  # type: ignore[arg-type]
    streamer.put = lambda _: None  # generate shows it the prompt first
    with pytest.raises(UncurseError, match="streamer: this search does not use it"):
        generated(network("t5"), inputs("t5", SOURCES[:1]), streamer=streamer)
    with pytest.raises(UncurseError, match="assistant_model: this search does not use it"):
        generated(network("t5"), inputs("t5", SOURCES[:1]), assistant_model=network("t5"))


def test_sources_without_ids_are_refused() -> None:
    model = network("t5")
    encoded = model.get_encoder()(input_ids=inputs("t5")["input_ids"])
    with pytest.raises(UncurseError, match="must be given as input_ids"):
        generated(model, {}, encoder_outputs=encoded)


def test_embedded_sources_give_what_their_tokens_give() -> None:
    model: Any = network("t5", 3, ending=1.0)
    given = inputs("t5")
    expected = generated(model, given, beam_size=4, num_return_sequences=2)
    embedded = {**given, "inputs_embeds": model.get_input_embeddings()(given.pop("input_ids"))}
    del embedded["input_ids"]
    assert generated(model, embedded, beam_size=4, num_return_sequences=2).tolist() == expected.tolist()
    with pytest.raises(UncurseError, match="length_ratio: there is no source to count"):
        generated(model, embedded, score=None, length_ratio=1.1)
    with pytest.raises(UncurseError, match="expected_length as a function: there are no tokens for it"):
        generated(model, embedded, score=None, expected_length=len)


# ---------------------------------------------------------------- maximum lengths


def test_a_maximum_length_of_the_model_is_tightened_and_one_of_the_call_is_not() -> None:
    model: Any = network("t5")
    model.generation_config.max_length = 41
    steps = generated(model, inputs("t5"), **TO_THE_END).steps
    assert steps.tolist() == [2 * len(source) + 10 for source in SOURCES]
    for max_length in ({"max_new_tokens": 30}, {"max_length": 31}):
        assert set(generated(model, inputs("t5"), **{**TO_THE_END, **max_length}).steps.tolist()) == {30}
    assert set(generated(model, inputs("t5"), **{**TO_THE_END, "max_length": 41}).steps.tolist()) == {40}
    longer = inputs("t5", SOURCES[:1])
    assert generated(model, longer, **TO_THE_END, min_length=25).steps.tolist() == [
        35
    ]  # 24 tokens, </s>, and room
    longer["decoder_input_ids"] = torch.tensor([[0, 8, 9, 10]])
    assert generated(model, longer, **TO_THE_END).steps.tolist() == [2 * 4 + 10 - 3]
    model.generation_config.max_length = 15
    assert max(generated(model, inputs("t5"), **TO_THE_END).steps.tolist()) == 14


def test_a_number_of_new_tokens_that_comes_with_the_model_is_not_one_of_the_call() -> None:
    model: Any = network("t5")
    model.generation_config.max_new_tokens = 20
    given = {**inputs("t5"), **TO_THE_END, "custom_generate": beam_search}
    del given["max_new_tokens"]
    expected = [min(2 * len(source) + 10, 20) for source in SOURCES]
    assert model.generate(**given).steps.tolist() == expected
    assert set(model.generate(**given, max_new_tokens=20).steps.tolist()) == {20}


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_where_nobody_sets_a_maximum_length_it_is_not_the_20_tokens_of_generate() -> None:
    model: Any = network("t5")
    model.generation_config.max_length = None
    sources = [(5, 6, 7, 8) * 3, (9,)]
    assert generated(model, inputs("t5", sources), **TO_THE_END).steps.tolist() == [34, 12]
    criteria = StoppingCriteriaList([MaxLengthCriteria(max_length=8)])
    found = generated(model, inputs("t5", sources), **TO_THE_END, stopping_criteria=criteria)
    assert found.steps.tolist() == [7, 7]


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_no_end_is_forced_at_a_maximum_length_that_nobody_set() -> None:
    model: Any = network("t5")
    model.generation_config.max_length, model.generation_config.forced_eos_token_id = None, 1
    given = {"return_dict_in_generate": True, "max_new_tokens": None}
    sources: list[tuple[int, ...]] = [(5, 6, 7, 8) * 3]
    forced = generated(model, inputs("t5", sources), **given)
    model.generation_config.forced_eos_token_id = None
    free = generated(model, inputs("t5", sources), **given)
    assert forced.sequences.tolist() == free.sequences.tolist()
    model.generation_config.forced_eos_token_id = 1
    assert generated(model, inputs("t5", sources), **TO_THE_END).steps.tolist() == [34]
    cut = generated(model, inputs("t5", sources), **{**given, "max_new_tokens": 5})
    assert 1 in cut.sequences[0, 1:]  # a maximum length of the call is one to force the end at


def test_a_maximum_length_never_exceeds_the_positions() -> None:
    options = {
        "max_new_tokens": 200,
        "beam_size": 1,
        "logits_processor": LogitsProcessorList([AddToScore(0, -torch.inf)]),
        "return_dict_in_generate": True,
    }
    assert generated(network("marian"), inputs("marian", SOURCES[:1]), **options).steps.tolist() == [64]


def test_where_nothing_ends_within_the_quantile_the_sentence_is_searched_again() -> None:
    """With the default `2x+10`, and only those sentences; a maximum length of the call is final."""
    model: Any = network("t5", 2, ending=1.0)
    model.generation_config.max_length = 100
    options = {
        "score": None,
        "length_predictor": predictor(-0.4328),  # the quantile is 0.5 tokens per source token: never enough
        "return_dict_in_generate": True,
        "max_new_tokens": None,
        "beam_size": 2,
    }
    short = [(2 * len(source)) // 4 or 1 for source in SOURCES]
    once = [
        generated(model, inputs("t5", [source]), **{**options, "max_new_tokens": most})
        for source, most in zip(SOURCES, short, strict=True)
    ]
    found = generated(model, inputs("t5"), **options)
    again = [
        generated(model, inputs("t5", [source]), **{**options, "max_new_tokens": 2 * len(source) + 10})
        for source in SOURCES
    ]
    repeated = [
        outputs("t5", each.sequences)[0] in ((1,),) or each.certificates == ("TRUNCATED",) for each in once
    ]
    assert any(repeated)
    for place, (first, second) in enumerate(zip(once, again, strict=True)):
        expected = outputs("t5", (second if repeated[place] else first).sequences)[0]
        assert outputs("t5", found.sequences)[place] == expected


def test_a_search_that_is_done_again_is_done_for_its_own_sentences() -> None:
    model: Any = network("t5")
    model.generation_config.max_length = 60
    options = {**TO_THE_END, "length_predictor": predictor(-0.4328), "score": "length-norm"}
    assert generated(model, inputs("t5"), **options).steps.tolist() == [2 * len(source) + 10 for source in SOURCES]


# ---------------------------------------------------------------- the stack frame of generate


def test_generate_has_the_variables_that_are_read_from_its_frame() -> None:
    """If this fails, transformers has renamed what `frame_of_generate` reads."""
    seen: list[GenerateFrame] = []

    def spy(model: Any, input_ids: torch.Tensor, **_: object) -> torch.Tensor:
        seen.append(frame_of_generate())
        return input_ids

    criteria, own = StoppingCriteriaList([MaxLengthCriteria(8)]), LogitsProcessorList([AddToScore(1, 0.0)])
    model: Any = network("t5")
    options = {"stopping_criteria": criteria, "logits_processor": own, "length_penalty": 2.0}
    with pytest.warns(UserWarning, match="model-agnostic default"):
        model.generate(**inputs("t5"), custom_generate=spy, **options)
    (frame,) = seen
    assert frame.kwargs["length_penalty"] == 2.0
    assert frame.stopping_criteria is criteria
    assert frame.logits_processor is own
    assert frame.has_default_max_length
    code = inspect.unwrap(type(model).generate).__code__
    assert set(GenerateFrame.__dataclass_fields__) <= {*code.co_varnames, *code.co_cellvars}


def test_outside_generate_nothing_counts_as_given() -> None:
    assert frame_of_generate().kwargs == {}
