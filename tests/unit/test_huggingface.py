"""Models of Hugging Face's library as step models, and the search inside their `generate`."""

from __future__ import annotations

import inspect
import io
import json
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    GenerationConfig,
    GPT2Config,
    LEDConfig,
    LogitsProcessor,
    LogitsProcessorList,
    M2M100Config,
    M2M100Tokenizer,
    MarianConfig,
    MarianTokenizer,
    MaxLengthCriteria,
    MaxTimeCriteria,
    MBart50Tokenizer,
    MBartConfig,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedModel,
    StoppingCriteriaList,
    T5Config,
    T5Tokenizer,
    TextIteratorStreamer,
)

import uncurse
from uncurse import SCORES, Decoding, Sentence, load
from uncurse.cli import main
from uncurse.length import FixedRatio, MLPLength
from uncurse.models.huggingface import Frame, HuggingFaceStepModel
from uncurse.models.huggingface_folder import frame_of, load_huggingface
from uncurse.models.predictors import place_of_predictor
from uncurse.testing import check_step_model
from uncurse.translator import Translator

SIZE: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "init_std": 0.25,
}
T5_SIZE: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
FAMILIES: dict[str, tuple[Any, Frame]] = {
    "marian": (
        MarianConfig(**SIZE, pad_token_id=39, eos_token_id=0, decoder_start_token_id=39, forced_eos_token_id=None),
        Frame((), (0,), (39,), end=0),
    ),
    "t5": (
        T5Config(**T5_SIZE),
        Frame((), (1,), (0,), end=1),
    ),
    "bart": (BartConfig(**SIZE, forced_eos_token_id=None), Frame((0,), (2,), (2, 0), end=2)),
    "m2m100": (M2M100Config(**SIZE), Frame((38,), (2,), (2, 37), end=2)),
    "mbart": (
        MBartConfig(**SIZE, forced_eos_token_id=None, decoder_start_token_id=37),
        Frame((), (2, 38), (37,), end=2),
    ),
    "mbart50": (
        MBartConfig(**SIZE, forced_eos_token_id=None, decoder_start_token_id=2),
        Frame((38,), (2,), (2, 37), end=2),
    ),
}
LED = LEDConfig(
    vocab_size=40, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, attention_window=4,
    max_encoder_position_embeddings=64, max_decoder_position_embeddings=20,
)  # fmt: skip
SOURCES = [(5, 6, 7, 8), (9,), (12, 4, 4, 20), (11, 3), (30, 31, 32, 33, 34, 35), (6, 6)]
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)


def random_model(config: Any, seed: int, **options: str) -> Any:
    torch.manual_seed(seed)
    return AutoModelForSeq2SeqLM.from_config(config, **options).eval()  # type: ignore[no-untyped-call]


def network(family: str, seed: int = 0, ending: float = 0.0, implementation: str = "eager") -> PreTrainedModel:
    """A random model; to the logit of `</s>` at step t is added `ending` times t − 5."""
    config, frame = FAMILIES[family]
    model = random_model(config, seed, attn_implementation=implementation)
    at_end = torch.zeros(config.vocab_size).index_fill(0, torch.tensor(frame.end), ending)
    before = [0]

    def count(_: object, __: object, options: dict[str, Any]) -> None:
        cache = options.get("past_key_values")
        before[0] = 0 if cache is None else cache.get_seq_length()

    def raised(_: object, __: object, logits: torch.Tensor) -> torch.Tensor:
        step = before[0] + torch.arange(logits.shape[1]) + 2 - len(frame.prompt)
        return logits + (step - 5)[:, None] * at_end

    model.register_forward_pre_hook(count, with_kwargs=True)
    model.get_output_embeddings().register_forward_hook(raised)
    checked: PreTrainedModel = model
    return checked


def inputs(family: str, sources: list[tuple[int, ...]] = SOURCES) -> dict[str, torch.Tensor]:
    """What a tokenizer would make of the sources, the prompt as `decoder_input_ids`."""
    config, frame = FAMILIES[family]
    framed = [(*frame.before, *source, *frame.after) for source in sources]
    widest = max(map(len, framed))
    return {
        "input_ids": torch.tensor([[*each, *[config.pad_token_id] * (widest - len(each))] for each in framed]),
        "attention_mask": torch.tensor([[1] * len(each) + [0] * (widest - len(each)) for each in framed]),
        "decoder_input_ids": torch.tensor([frame.prompt] * len(sources)),
    }


def generated(model: PreTrainedModel, given: dict[str, torch.Tensor], **options: object) -> Any:
    """`generate` with this search, 12 tokens at most unless told otherwise."""
    options = {"max_new_tokens": 12, "score": "length-norm", "custom_generate": uncurse.beam_search, **options}
    generate: Any = model.generate
    return generate(**given, **options)


def outputs(family: str, sequences: torch.Tensor) -> list[tuple[int, ...]]:
    """The tokens of each row after the prompt, up to and with `</s>`."""
    frame = FAMILIES[family][1]
    rows = [row[len(frame.prompt) :] for row in sequences.tolist()]
    return [tuple(row[: row.index(frame.end) + 1] if frame.end in row else row) for row in rows]


@EVERY_FAMILY
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_every_family_keeps_the_contract_of_a_step_model(family: str, implementation: str) -> None:
    model = HuggingFaceStepModel(network(family, 1, implementation=implementation), FAMILIES[family][1])
    assert model.attends == (implementation == "eager")
    check_step_model(model, [*SOURCES[:4], ()])


@EVERY_FAMILY
def test_step_by_step_log_probs_equal_those_of_one_forward(family: str) -> None:
    own, frame = network(family, 2, ending=1.0), FAMILIES[family][1]
    sentences = [Sentence(source, limit=9) for source in SOURCES]
    results = uncurse.beam_search(HuggingFaceStepModel(own, frame), sentences, Decoding.of(3, "log-prob"), batch=2)
    for source, result in zip(SOURCES, results, strict=True):
        tokens = result.hypotheses[0].tokens
        with torch.inference_mode():
            logits = own(
                input_ids=torch.tensor([[*frame.before, *source, *frame.after]]),
                decoder_input_ids=torch.tensor([[*frame.prompt, *tokens[:-1]]]),
            ).logits[0, len(frame.prompt) - 1 :]
        forced = logits.log_softmax(dim=-1)[torch.arange(len(tokens)), list(tokens)]
        assert np.abs(forced.numpy() - np.array(result.hypotheses[0].log_probs)).max() < 1e-5


@EVERY_FAMILY
def test_attention_is_that_of_the_last_layer_over_the_pieces(family: str) -> None:
    own, frame = network(family), FAMILIES[family][1]
    model = HuggingFaceStepModel(own, frame)
    given, _ = model.step(model.start(SOURCES), np.full(len(SOURCES), model.begin), 2, attention=True)
    assert given.attention is not None
    for row, source in enumerate(SOURCES):
        framed = torch.tensor([[*frame.before, *source, *frame.after]])
        decoder = torch.tensor([frame.prompt])
        with torch.inference_mode():
            layers = own(input_ids=framed, decoder_input_ids=decoder, output_attentions=True).cross_attentions
        expected = layers[-1][0, :, -1].mean(dim=0)[len(frame.before) :][: len(source)]
        assert np.abs(given.attention[row, : len(source)] - expected.numpy()).max() < 1e-5


def test_banned_tokens_share_their_probability_among_the_others() -> None:
    frame = FAMILIES["marian"][1]
    model = HuggingFaceStepModel(
        network("marian"), Frame(frame.before, frame.after, frame.prompt, frame.end, (39, 7))
    )
    given, _ = model.step(model.start([(5, 6)]), np.array([39]), 40, attention=False)
    assert set(given.tokens[0, -2:].tolist()) == {39, 7}
    assert (given.log_probs[0, -2:] == -np.inf).all()
    assert np.exp(given.log_probs).sum() == pytest.approx(1.0, abs=1e-6)


def test_more_continuations_than_tokens_can_be_asked_for() -> None:
    model = HuggingFaceStepModel(network("t5"), FAMILIES["t5"][1])
    given, _ = model.step(model.start([(5, 6)]), np.array([0]), 1000, attention=False)
    assert given.tokens.shape == (1, 40)


@EVERY_FAMILY
def test_features_do_not_depend_on_the_batch(family: str) -> None:
    model = HuggingFaceStepModel(network(family), FAMILIES[family][1])
    together = model.features(SOURCES)
    for row, source in enumerate(SOURCES):
        assert np.abs(model.features([source])[0] - together[row]).max() < 1e-5


def test_signatures_tell_weights_and_frames_apart() -> None:
    frame = FAMILIES["marian"][1]
    other = Frame((7,), frame.after, frame.prompt, frame.end)
    changed = network("marian")
    with torch.no_grad():
        dict(changed.named_parameters())["model.decoder.layers.1.fc1.weight"][0, 0] += 1e-3
    models = [
        (network("marian"), frame),
        (network("marian", 1), frame),
        (network("marian"), other),
        (changed, frame),
    ]
    assert len({HuggingFaceStepModel(*each).signature for each in models}) == 4
    again: Any = network("marian")
    again.config._name_or_path = "elsewhere/" + again.config._name_or_path
    assert HuggingFaceStepModel(*models[0]).signature == HuggingFaceStepModel(again, frame).signature


def test_sides_may_have_different_numbers_of_positions() -> None:
    model = HuggingFaceStepModel(random_model(LED, 1, attn_implementation="eager"), Frame((0,), (2,), (2,), end=2))
    check_step_model(model, SOURCES)
    assert (model.longest_source, model.longest_output) == (62, 20)


def test_rows_of_sentences_that_change_places_are_refused() -> None:
    model = HuggingFaceStepModel(network("t5"), FAMILIES["t5"][1])
    with pytest.raises(ValueError, match="order in which they joined"):
        model.start(SOURCES[:1]).append(model.start(SOURCES[1:2])).select(np.array([1, 0]))


def test_texts_longer_than_the_positions_are_refused() -> None:
    model = HuggingFaceStepModel(network("marian"), Frame((), (0,), (39,), end=0, banned=(0,)))
    assert (model.longest_source, model.longest_output) == (63, 64)
    with pytest.raises(ValueError, match="a source of 65 tokens is too long: this model has 64 positions"):
        model.start([(5,) * 64])
    with pytest.raises(ValueError, match="an output of 65 tokens is too long"):
        uncurse.beam_search(model, [Sentence((5,), limit=100)], Decoding.of(1, "log-prob"))


@EVERY_FAMILY
@pytest.mark.parametrize("width", [2, 5])
def test_n_best_lists_are_those_of_generate(family: str, width: int) -> None:
    """`early_stopping="never"` proves the worst of b hypotheses, as `optimal` does for an n-best list of b."""
    wanted = {"num_return_sequences": width, "return_dict_in_generate": True, "max_new_tokens": 24}
    theirs_only = {"num_beams": width, "early_stopping": "never", "length_penalty": 1.0, "output_scores": True}
    lengths: set[int] = set()
    for seed in range(3):
        model: Any = network(family, seed, ending=1.0, implementation="sdpa")
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


def test_words_of_a_prompt_shorten_the_expected_length_and_tags_do_not() -> None:
    """D1: L becomes L − p for p words, and a language is no word."""
    model, frame = network("m2m100", 7, ending=1.0), FAMILIES["m2m100"][1]
    given = inputs("m2m100")
    given["decoder_input_ids"] = torch.tensor([[*frame.prompt, 9, 10]] * len(SOURCES))
    ours = generated(model, given, beam_size=3, score="bp-norm", length=2.0)
    sentences = [Sentence(source, 12, (9, 10), 2.0 * len(source)) for source in SOURCES]
    results = uncurse.beam_search(HuggingFaceStepModel(model, frame), sentences, Decoding.of(3, "bp-norm"))
    expected = [(9, 10, *result.hypotheses[0].tokens) for result in results]
    assert outputs("m2m100", ours) == expected


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
    ({"length": -1, "score": "bp-norm"}, "ratio = -1.0 is not allowed"),
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


def subwords() -> tuple[bytes, list[str]]:
    """A small subword model, and its pieces but the special ones."""
    trained = io.BytesIO()
    lines = ["the old cat sleeps on the red sofa", "a dog and a cat", "all day in the kitchen", "old dogs sleep"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 5), model_writer=trained, vocab_size=40, model_type="bpe", minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    return trained.getvalue(), [processor.id_to_piece(piece) for piece in range(3, len(processor))]


def tokenizer(kind: str, folder: Path) -> Any:
    model, words = subwords()
    known = ["<s>", "<pad>", "</s>", "<unk>", *words]
    scored = [(piece, -float(rank)) for rank, piece in enumerate(known)]
    vocabulary, spm = folder / "vocab.json", folder / "pieces.spm"
    spm.write_bytes(model)
    if kind == "marian":
        known = ["</s>", "<unk>", *words, ">>fra<<", ">>ron<<", "<pad>"]
    vocabulary.write_text(json.dumps({piece: rank for rank, piece in enumerate(known)}))
    if kind == "marian":
        return MarianTokenizer(str(spm), str(spm), str(vocabulary))
    if kind == "m2m100":
        return M2M100Tokenizer(str(vocabulary), str(spm))
    if kind == "nllb":
        return NllbTokenizer(vocab=json.loads(vocabulary.read_text()), merges=[])
    if kind == "t5":
        return T5Tokenizer(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scored[4:]])
    return MBartTokenizer(vocab=scored) if kind == "mbart" else MBart50Tokenizer(vocab=scored)


def saved(kind: str, folder: Path) -> Path:
    """A folder with a tokenizer and a random model."""
    own = tokenizer(kind, folder)
    config: Any = copy(FAMILIES[{"nllb": "m2m100"}.get(kind, kind)][0])
    config.vocab_size = config.decoder_vocab_size = max(own.get_vocab().values()) + 1
    if kind == "m2m100":
        config.vocab_size += 108  # its languages are apart
    if kind == "marian":
        config.pad_token_id = config.decoder_start_token_id = own.pad_token_id
    if kind == "mbart":
        config.decoder_start_token_id = own.lang_code_to_id["fr_XX"]
    model = random_model(config, 1)
    model.generation_config.max_length = 60
    model.generation_config.bad_words_ids = [[config.pad_token_id], *([word] for word in range(5, 25))]
    model.generation_config.renormalize_logits = True
    model.save_pretrained(folder)
    own.save_pretrained(folder)
    return folder


LANGUAGES: dict[str, tuple[str | None, str | None]] = {
    "marian": (None, None),
    "t5": (None, None),
    "m2m100": ("en", "fr"),
    "nllb": ("eng_Latn", "fra_Latn"),
    "mbart": ("en_XX", "fr_XX"),
    "mbart50": ("en_XX", "fr_XX"),
}
WITHOUT_SACREMOSES = pytest.mark.filterwarnings("ignore:Recommended")
LINES = ["the old cat sleeps", "a dog", "all day on the sofa"]


@WITHOUT_SACREMOSES
@pytest.mark.parametrize("kind", LANGUAGES)
def test_a_folder_translates_as_generate_does(kind: str, tmp_path: Path) -> None:
    source_lang, target_lang = LANGUAGES[kind]
    loaded = load_huggingface(saved(kind, tmp_path), "cpu", source_lang, target_lang)
    assert [loaded.source.decode(each) for each in loaded.source.encode(LINES)] == LINES
    assert [loaded.target.decode(each) for each in loaded.target.encode(LINES)] == LINES
    translator = Translator(loaded.model, loaded.source, loaded.target, None)
    ours = translator.translate(LINES, beam=3, score="bp-norm", ratio=1.5)

    own: Any = AutoTokenizer.from_pretrained(tmp_path)
    first = None
    if source_lang is not None:
        own.src_lang = source_lang
        first = own.convert_tokens_to_ids(f"__{target_lang}__" if kind == "m2m100" else target_lang)
    forced = {} if first is None or kind == "mbart" else {"forced_bos_token_id": first}
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    given = own(LINES, padding=True, return_tensors="pt")
    options = {"max_new_tokens": None, "beam_size": 3, "score": "bp-norm", "length": 1.5, **forced}
    sequences = generated(model, {key: given[key] for key in ("input_ids", "attention_mask")}, **options)
    found = [each.result.hypotheses[0].tokens for each in ours if each.result is not None]
    prompt = sequences.shape[1] - max(map(len, found))
    padding = own.pad_token_id
    expected = [tuple(token for token in row[prompt:] if token != padding) for row in sequences.tolist()]
    assert found == expected
    assert len(set(found)) == len(LINES)
    assert [each.texts[0] for each in ours] == own.batch_decode(expected, skip_special_tokens=True)


def test_a_target_without_a_start_token_starts_with_its_language(tmp_path: Path) -> None:
    own = tokenizer("mbart", tmp_path)
    config = GenerationConfig(bos_token_id=0, pad_token_id=1, eos_token_id=2)  # type: ignore[no-untyped-call]
    assert frame_of(own, config, "en_XX", "fr_XX").prompt == (own.lang_code_to_id["fr_XX"],)


@WITHOUT_SACREMOSES
def test_a_target_language_that_the_source_names_is_a_tag_of_the_source(tmp_path: Path) -> None:
    own = AutoTokenizer.from_pretrained(saved("marian", tmp_path))
    plain, tagged = (load_huggingface(tmp_path, target_lang=language) for language in (None, "fra"))
    (framed,) = own([">>fra<< a dog"])["input_ids"]
    expected, _ = plain.model.step(plain.model.start([framed[:-1]]), np.array([plain.model.begin]), 9, False)
    found, _ = tagged.model.step(
        tagged.model.start(tagged.source.encode(["a dog"])), np.array([plain.model.begin]), 9, False
    )
    assert np.abs(found.log_probs - expected.log_probs).max() < 1e-6
    assert plain.model.signature != tagged.model.signature


@WITHOUT_SACREMOSES
@pytest.mark.parametrize(
    ("kind", "languages", "message"),
    [
        ("m2m100", {}, "source_lang is needed: this model knows 100 languages"),
        ("m2m100", {"source_lang": "en"}, "target_lang is needed"),
        ("nllb", {"source_lang": "eng_Latn", "target_lang": "fra_Latin"}, "did you mean 'fra_Latn'"),
        (
            "mbart50",
            {"source_lang": "en_XY", "target_lang": "fr_XX"},
            "source_lang = 'en_XY' is not known .*'en_XX'",
        ),
        ("marian", {"source_lang": "fra"}, "source_lang = 'fra' is not known to this model; it takes none"),
        ("marian", {"target_lang": "fr"}, "target_lang = 'fr' is not known to this model; did you mean 'fra'"),
        ("t5", {"target_lang": "fr"}, "it takes none"),
    ],
)
def test_a_language_that_cannot_act_is_refused(
    kind: str, languages: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        load_huggingface(saved(kind, tmp_path), **languages)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_a_marian_model_that_the_own_runtime_does_not_do_is_run_by_transformers(tmp_path: Path) -> None:
    folder = saved("marian", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "scale_embedding": False}))
    translator = load(folder, target_lang="fra")
    assert translator.model.signature.startswith("marian-")
    assert len(list(translator.translate(["the cat"], beam=2, score="length-norm"))) == 1


@WITHOUT_SACREMOSES
def test_each_pair_of_languages_has_its_own_predictor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = saved("m2m100", tmp_path), tmp_path / "text"
    text.write_text("\n".join(LINES * 5), encoding="utf-8")
    pairs = [f"--{name}={text}" for name in ("source", "target", "test-source", "test-target")]
    fit = ["fit-length", "--model", str(folder), *pairs, "--source-lang=en", "--target-lang"]
    main([*fit, "fr"])
    french, german = (load_huggingface(folder, "cpu", "en", target) for target in ("fr", "de"))
    assert french.predictor is not None
    assert german.predictor is None  # and nothing is in its way
    main([*fit, "de"])
    place = place_of_predictor(folder, german.fingerprint)
    sound = place.read_bytes()
    place.write_bytes(sound[:-9])
    with pytest.raises(ValueError, match=r"is not a length predictor: .*; delete it, or fit another"):
        load_huggingface(folder, "cpu", "en", "de").predictor  # noqa: B018
    main([*fit, "de"])
    assert place.read_bytes() == sound
    assert "predictor" in capsys.readouterr().out


@WITHOUT_SACREMOSES
@pytest.mark.parametrize("kind", ["t5", "m2m100", "nllb", "mbart50"])
def test_a_model_without_a_tokenizer_is_refused(kind: str, tmp_path: Path) -> None:
    folder = saved(kind, tmp_path)
    for path in folder.iterdir():
        if path.name not in ("config.json", "generation_config.json", "model.safetensors"):
            path.unlink()
    with pytest.raises(ValueError, match="it has no tokenizer"):
        load_huggingface(folder, "cpu", *LANGUAGES[kind])


def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    GPT2Config().save_pretrained(tmp_path / "decoder")
    (tmp_path / "empty").mkdir()
    for name, message in (
        (tmp_path / "decoder", "it is not an encoder-decoder"),
        (tmp_path / "empty", "cannot be loaded as a sequence-to-sequence model"),
        ("nobody/nothing", "it is not a folder here, and from the hub it cannot be had"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            load_huggingface(name)
        assert str(name) in str(caught.value)
        assert "\n" not in str(caught.value)
