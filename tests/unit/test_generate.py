"""The search inside the `generate` of Hugging Face's models."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from families import EAGER_ONLY, EVERY_FAMILY, FAMILIES, SOURCES, generated, inputs, network, outputs
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MaxLengthCriteria,
    MaxTimeCriteria,
    StoppingCriteriaList,
    TextIteratorStreamer,
)

import uncurse
from uncurse import SCORES, Decoding, Sentence
from uncurse.length import FixedRatio, MLPLength
from uncurse.models.huggingface import HuggingFaceStepModel


@EVERY_FAMILY
@pytest.mark.parametrize("width", [2, 5])
def test_n_best_lists_are_those_of_generate(family: str, width: int) -> None:
    """`early_stopping="never"` proves the worst of b hypotheses, as `optimal` does for an n-best list of b."""
    wanted = {"num_return_sequences": width, "return_dict_in_generate": True, "max_new_tokens": 24}
    theirs_only = {"num_beams": width, "early_stopping": "never", "length_penalty": 1.0, "output_scores": True}
    lengths: set[int] = set()
    for seed in range(3):
        model: Any = network(family, seed, ending=1.0, implementation="eager" if family in EAGER_ONLY else "sdpa")
        theirs = model.generate(**inputs(family), **wanted, **theirs_only)
        ours = generated(model, inputs(family), **wanted, beam_size=width, slots="refill")
        expected = outputs(family, theirs.sequences)
        # Where the limit comes first, generate counts what it cuts off as finished; here it never does.
        assert all(tokens[-1] == FAMILIES[family][1].end for tokens in expected)
        assert outputs(family, ours.sequences) == expected
        assert (ours.sequences_scores - theirs.sequences_scores).abs().max() < 1e-4
        assert set(ours.optimality) <= {"BEAM", "GLOBAL"}
        assert (ours.gaps == 0.0).all()
        lengths |= {len(tokens) for tokens in expected}
    assert len(lengths) >= 3


@EVERY_FAMILY
def test_a_sentence_alone_gives_what_it_gives_in_a_batch(family: str) -> None:
    model = network(family, 3, ending=1.0)
    options = {"beam_size": 4, "score": "bp-norm", "length": 1.5, "return_dict_in_generate": True}
    together = generated(model, inputs(family), **options)
    for place, source in enumerate(SOURCES):
        alone = generated(model, inputs(family, [source]), **options)
        assert outputs(family, alone.sequences) == outputs(family, together.sequences)[place : place + 1]
        assert abs(alone.sequences_scores[0] - together.sequences_scores[place]) < 1e-4
        assert alone.optimality[0] == together.optimality[place]


@EVERY_FAMILY
def test_generate_and_the_step_model_count_alike(family: str) -> None:
    """The same pieces, lengths, attention and limits, whichever way a sentence comes in."""
    model, frame = network(family, 4, ending=1.0), FAMILIES[family][1]
    width, score = 3, "gnmt:alpha=0.5,beta=0.4"
    predicted = [1.7 * len(source) for source in SOURCES]
    steps = HuggingFaceStepModel(model, frame)
    for name, options in (
        (score, {}),
        ("bp-norm", {"length": 1.7}),
        ("bounded-word-reward:reward=2,ratio=1.7", {}),
    ):
        ours = generated(
            model, inputs(family), beam_size=width, score=name, return_dict_in_generate=True, **options
        )
        sentences = [Sentence(source, 12, (), each) for source, each in zip(SOURCES, predicted, strict=True)]
        results = uncurse.beam_search(steps, sentences, Decoding.of(width, name))
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
    assert few.sequences_scores[0] > -1.0
    assert (few.sequences_scores[1:] == -torch.inf).all()


def test_what_is_cut_off_is_called_so() -> None:
    none = generated(network("t5", ending=30.0), inputs("t5"), max_new_tokens=2, return_dict_in_generate=True)
    assert set(none.optimality) == {"TRUNCATED"}
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


@pytest.mark.parametrize("family", ["m2m100", "nllb-moe"])
def test_words_of_a_prompt_shorten_the_expected_length_and_tags_do_not(family: str) -> None:
    """D1: L becomes L − p for p words, and a language is no word."""
    model, frame = network(family, 7, ending=1.0), FAMILIES[family][1]
    given = inputs(family)
    given["decoder_input_ids"] = torch.tensor([[*frame.prompt, 9, 10]] * len(SOURCES))
    ours = generated(model, given, beam_size=3, score="bp-norm", length=2.0)
    sentences = [Sentence(source, 12, (9, 10), 2.0 * len(source)) for source in SOURCES]
    results = uncurse.beam_search(HuggingFaceStepModel(model, frame), sentences, Decoding.of(3, "bp-norm"))
    expected = [(9, 10, *result.hypotheses[0].tokens) for result in results]
    assert outputs(family, ours) == expected


class Added(LogitsProcessor):
    """Adds a number to the score of a token."""

    def __init__(self, token: int, number: float) -> None:
        self.token, self.number = token, number

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        changed: Any = scores.clone()
        changed[:, self.token] += self.number
        return changed  # type: ignore[no-any-return]


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
        {"logits_processor": LogitsProcessorList([Added(7, -5.0)])},
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


def test_a_processor_that_makes_a_score_positive_is_refused_where_it_does() -> None:
    processors = LogitsProcessorList([Added(7, 50.0)])
    with pytest.raises(ValueError, match=r"sentence 0, step 1: .* above 0; logits processors at work: Added"):
        generated(network("t5"), inputs("t5"), logits_processor=processors)


STRANGE = MLPLength((), np.zeros(4), np.ones(4), np.zeros((2, 4)), np.zeros(2), np.zeros((1, 2)), np.zeros(1))
REFUSED: list[tuple[dict[str, object], str]] = [
    ({"num_beams": 4}, "num_beams = 4: keep num_beams=1 and give beam_size"),
    ({"do_sample": True}, "do_sample = True"),
    ({"early_stopping": True}, "early_stopping = True"),
    ({"length_penalty": 2.0}, "length_penalty = 2.0"),
    ({"use_cache": False}, "use_cache = False"),
    ({"output_scores": True, "return_dict_in_generate": True}, "output_scores = True"),
    ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens = 3"),
    ({"num_return_sequences": 5}, "num_return_sequences = 5: beam_size is 4"),
    ({"stopping_criteria": StoppingCriteriaList([MaxTimeCriteria(9.0)])}, "MaxTimeCriteria in stopping_criteria"),
    ({"max_time": 9.0}, "MaxTimeCriteria"),
    ({"sequence_bias": {(7,): 1.0}}, "sequence_bias above 0"),
    ({"prefix_allowed_tokens_fn": lambda _, __: [1]}, "prefix_allowed_tokens_fn"),
    ({"encoder_no_repeat_ngram_size": 2}, "encoder_no_repeat_ngram_size"),
    ({"decoder_attention_mask": torch.ones(6, 1)}, "decoder_attention_mask: it would not reach the model"),
    ({"eos_token_id": [1, 2]}, "eos_token_id"),
    ({"score": "bp-norm"}, "needs an expected length: give length=1.1.* or length=predictor"),
    ({"stop": "predicted-horizon"}, "needs an expected length"),
    ({"length": 1.1}, "neither the score nor the stopping rule asks for it"),
    ({"length": "1.1", "score": "bp-norm"}, "length = '1.1' is not allowed"),
    ({"length": 10**400, "score": "bp-norm"}, "ratio = 10+ is not allowed"),
    ({"forced_bos_token_id": [7]}, r"forced_bos_token_id = \[7\]: give one token"),
    ({"length": -1, "score": "bp-norm"}, "ratio = -1 is not allowed"),
    ({"score": "bpnorm"}, "did you mean 'bp-norm'"),
    ({"stop": "optima"}, "did you mean 'optimal'"),
    ({"slots": "fill"}, "slots = 'fill'"),
    ({"beam_size": 0}, "beam_size = 0"),
    ({"score": "gnmt:beta=0.3"}, "attn_implementation='eager'"),
    ({"max_new_tokens": 1, "forced_bos_token_id": 7}, "max_length = 2 leaves no room"),
    ({"force_words_ids": [[25]]}, "force_words_ids = .*: nothing is forced but a prefix"),
    ({"constraints": [7]}, "constraints = "),
    ({"num_beam_groups": 2, "diversity_penalty": 1.0}, "num_beam_groups = 2: .*; diversity_penalty = 1.0"),
    (
        {"length": [1.1], "score": "bp-norm"},
        r"length = \[1.1\] is not allowed: give a number or a LengthPredictor",
    ),
    ({"length": torch.tensor(1.1), "score": "bp-norm"}, "length = tensor.* is not allowed"),
    ({"length": FixedRatio, "score": "bp-norm"}, "length = <class .* is not allowed"),
    ({"length": STRANGE, "score": "bp-norm"}, "is for states of 3 numbers, and this model's have 16"),
    ({"score": SCORES.parse("log-prob")}, r"score = LogProb\(\) is not allowed: give a name"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value)[:40])
@pytest.mark.filterwarnings("ignore")  # generate has its own opinion of some
def test_what_cannot_act_is_refused_by_name(options: dict[str, object], message: str) -> None:
    given = inputs("t5")
    del given["decoder_input_ids"]
    with pytest.raises(ValueError, match=message):
        generated(network("t5", implementation="sdpa"), given, **{"beam_size": 4, **options})


def test_a_streamer_and_an_assistant_are_refused() -> None:
    """`generate` does not hand them on, and who waits for a streamer would wait for ever."""
    streamer: Any = TextIteratorStreamer(None)  # type: ignore[arg-type]
    streamer.put = lambda _: None  # generate shows it the prompt first
    with pytest.raises(ValueError, match="streamer: this search has no use for it"):
        generated(network("t5"), inputs("t5", SOURCES[:1]), streamer=streamer)
    with pytest.raises(ValueError, match="assistant_model: this search has no use for it"):
        generated(network("t5"), inputs("t5", SOURCES[:1]), assistant_model=network("t5"))


def test_everything_that_cannot_act_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"num_beams = 4: .*; length_penalty = 2.0"):
        generated(network("t5"), inputs("t5"), num_beams=4, length_penalty=2.0)


def test_sources_without_ids_are_refused() -> None:
    model = network("t5")
    encoded = model.get_encoder()(input_ids=inputs("t5")["input_ids"])
    with pytest.raises(ValueError, match="must be given as input_ids"):
        generated(model, {}, encoder_outputs=encoded)


def test_a_limit_of_the_model_is_tightened_and_a_limit_of_the_call_is_not() -> None:
    model: Any = network("t5")
    silent = LogitsProcessorList([Added(1, -torch.inf)])  # nothing ends, so that all go to their limits
    model.generation_config.max_length = 41
    steps = generated(
        model, inputs("t5"), max_new_tokens=None, logits_processor=silent, return_dict_in_generate=True
    ).steps
    assert steps.tolist() == [2 * len(source) + 10 for source in SOURCES]
    given = {"logits_processor": silent, "return_dict_in_generate": True, "max_new_tokens": None}
    for limit in ({"max_new_tokens": 30}, {"max_length": 31}):
        assert set(generated(model, inputs("t5"), **{**given, **limit}).steps.tolist()) == {30}
    assert set(generated(model, inputs("t5"), **{**given, "max_length": 41}).steps.tolist()) == {40}
    longer = inputs("t5", SOURCES[:1])
    assert generated(model, longer, **given, min_length=25).steps.tolist() == [35]  # 24 tokens, </s>, and room
    longer["decoder_input_ids"] = torch.tensor([[0, 8, 9, 10]])
    assert generated(model, longer, **given).steps.tolist() == [2 * 4 + 10 - 3]


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_where_nobody_sets_a_limit_it_is_not_the_20_tokens_of_generate() -> None:
    model: Any = network("t5")
    model.generation_config.max_length = None
    silent = LogitsProcessorList([Added(1, -torch.inf)])
    given = {"logits_processor": silent, "return_dict_in_generate": True, "max_new_tokens": None}
    sources = [(5, 6, 7, 8) * 3, (9,)]
    assert generated(model, inputs("t5", sources), **given).steps.tolist() == [34, 12]
    criteria = StoppingCriteriaList([MaxLengthCriteria(max_length=8)])
    assert generated(model, inputs("t5", sources), **given, stopping_criteria=criteria).steps.tolist() == [7, 7]


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
def test_no_end_is_forced_at_a_limit_that_nobody_set() -> None:
    model: Any = network("t5")
    model.generation_config.max_length, model.generation_config.forced_eos_token_id = None, 1
    given = {"return_dict_in_generate": True, "max_new_tokens": None}
    sources: list[tuple[int, ...]] = [(5, 6, 7, 8) * 3]
    forced = generated(model, inputs("t5", sources), **given)
    model.generation_config.forced_eos_token_id = None
    free = generated(model, inputs("t5", sources), **given)
    assert forced.sequences.tolist() == free.sequences.tolist()
    model.generation_config.forced_eos_token_id = 1
    silent = LogitsProcessorList([Added(1, -torch.inf)])
    assert generated(model, inputs("t5", sources), **given, logits_processor=silent).steps.tolist() == [34]
    cut = generated(model, inputs("t5", sources), **{**given, "max_new_tokens": 5})
    assert 1 in cut.sequences[0, 1:]  # a limit that comes with the call is one to force the end at


def test_a_limit_never_exceeds_the_positions() -> None:
    silent = LogitsProcessorList([Added(0, -torch.inf)])
    options = {"max_new_tokens": 200, "beam_size": 1, "logits_processor": silent, "return_dict_in_generate": True}
    given = generated(network("marian"), inputs("marian", SOURCES[:1]), **options)
    assert given.steps.tolist() == [64]


def test_a_predictor_sees_pieces_and_features_as_it_was_fitted() -> None:
    model, frame = network("mbart50", 9, ending=1.0), FAMILIES["mbart50"][1]
    random = np.random.default_rng(1)
    predictor = MLPLength(
        (0.8,),
        mean=random.normal(size=17),
        scale=np.ones(17),
        hidden_weight=random.normal(size=(4, 17)),
        hidden_bias=random.normal(size=4),
        output_weight=random.normal(size=(2, 4)),
        output_bias=np.array([2.0, 14.0]),
    )
    steps: Any = HuggingFaceStepModel(model, frame)
    lengths, features = np.array([len(source) for source in SOURCES]), steps.features(SOURCES)
    predicted = predictor.predict(lengths, features)
    limits = np.ceil(predictor.quantile(0.8, lengths, features)).astype(int)
    model.generation_config.max_length = 60
    given = {"max_new_tokens": None, "beam_size": 3, "score": "bp-norm", "length": predictor}
    ours = generated(model, inputs("mbart50"), **given)
    sentences = [
        Sentence(*each) for each in zip(SOURCES, limits.tolist(), [()] * 6, predicted.tolist(), strict=True)
    ]
    results = uncurse.beam_search(steps, sentences, Decoding.of(3, "bp-norm"))
    assert outputs("mbart50", ours) == [result.hypotheses[0].tokens for result in results]
    assert len({len(result.hypotheses[0].tokens) for result in results}) > 1
    whole = generated(model, inputs("mbart50"), **given, stop="exhaustive", return_dict_in_generate=True)
    assert whole.steps.tolist() == np.minimum(limits, 58).tolist()


def test_options_of_generate_are_no_options_of_the_core() -> None:
    with pytest.raises(TypeError, match="beam_size"):
        uncurse.beam_search(HuggingFaceStepModel(network("t5"), FAMILIES["t5"][1]), [], Decoding(), beam_size=3)  # type: ignore[call-overload]
    own = {"beam_size", "score", "length", "stop", "slots", "num_return_sequences"}
    assert own <= set(inspect.signature(uncurse.beam_search).parameters)  # generate looks for them here
