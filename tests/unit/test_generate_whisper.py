"""Whisper through `generate`: features in, prompts that say what to do, timestamps."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from uncurse import UncurseError
from uncurse.huggingface import beam_search

EOS, START, ENGLISH, FRENCH, TRANSCRIBE, TRANSLATE, NO_TIMESTAMPS, PREVIOUS = 2, 3, 4, 5, 6, 7, 38, 11
ENDING = 0.9  # added to the logit of </s> for each position


def whisper(seed: int = 0, ending: float = ENDING) -> Any:
    """A random model; tokens above the one for no timestamps are times."""
    torch.manual_seed(seed)
    size = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 8}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": EOS, "decoder_start_token_id": START}
    config_class: Any = WhisperConfig
    config = config_class(
        vocab_size=60, max_source_positions=20, max_target_positions=30, init_std=0.6, **size, **heads, **tokens,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model_class: Any = WhisperForConditionalGeneration
    model = model_class(config).eval()
    chosen = model.generation_config
    chosen.is_multilingual = True
    chosen.lang_to_id = {"<|en|>": ENGLISH, "<|fr|>": FRENCH}
    chosen.task_to_id = {"transcribe": TRANSCRIBE, "translate": TRANSLATE}
    chosen.no_timestamps_token_id = NO_TIMESTAMPS
    chosen.prev_sot_token_id = PREVIOUS
    chosen.suppress_tokens, chosen.begin_suppress_tokens = [9], [10, EOS]
    chosen.max_initial_timestamp_index = 5
    chosen.max_length = 24
    at_end = torch.zeros(60).index_fill(0, torch.tensor(EOS), ending)
    place = [0]

    def note(_: object, __: object, options: dict[str, Any]) -> None:
        cache = options.get("past_key_values")
        place[0] = 0 if cache is None else cache.get_seq_length()

    def raised(_: object, __: object, logits: torch.Tensor) -> torch.Tensor:
        steps = place[0] + torch.arange(logits.shape[1])
        return logits + (steps[:, None] - 6) * at_end

    model.model.decoder.register_forward_pre_hook(note, with_kwargs=True)
    model.proj_out.register_forward_hook(raised)
    return model


FEATURES = torch.randn(4, 8, 40, generator=torch.Generator().manual_seed(1))
ALIKE = {"custom_generate": beam_search, "beam_size": 4, "slots": "refill"}
THEIRS = {"num_beams": 4, "early_stopping": "never"}


@pytest.mark.parametrize(
    "options",
    [
        {"language": "en", "task": "transcribe"},
        {"language": "fr", "task": "translate"},
        {"task": "transcribe"},  # the language is found out
        {"language": "en", "task": "transcribe", "return_timestamps": True},
        {"language": "en", "task": "transcribe", "prompt_ids": torch.tensor([PREVIOUS, 20, 21])},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_transcriptions_are_those_of_generate(options: dict[str, Any]) -> None:
    """Without a penalty for length, since transformers would count the prompt."""
    model = whisper()
    found = model.generate(FEATURES, **options, **ALIKE, score="log-prob")
    expected = model.generate(FEATURES, **options, **THEIRS, length_penalty=0.0)
    assert words(found) == words(expected)
    assert len({len(row) for row in words(found)}) > 1


def words(rows: torch.Tensor) -> list[list[int]]:
    """The tokens before `</s>` and padding."""
    return [list(takewhile(lambda token: token not in (EOS, 0), row)) for row in rows.tolist()]


def test_forced_decoder_ids_of_the_model_are_a_prompt() -> None:
    model = whisper()
    expected = model.generate(FEATURES, **ALIKE, language="fr", task="translate")
    model.generation_config.forced_decoder_ids = [[1, FRENCH], [2, TRANSLATE], [3, NO_TIMESTAMPS]]
    assert model.generate(FEATURES, **ALIKE).tolist() == expected.tolist()


def test_lengths_count_no_token_of_the_prompt() -> None:
    """With an expected length the score is F1-Norm, which would count them."""
    model = whisper()
    found = model.generate(
        FEATURES, **ALIKE, language="en", task="transcribe", expected_length=3.0, return_dict_in_generate=True
    )
    prompt = [START, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS]
    for row, score in zip(found.sequences.tolist(), found.sequences_scores.tolist(), strict=True):
        assert row[:4] == prompt
        length = row.index(EOS) - 3
        ids = torch.tensor([row[: 4 + length]])
        index = found.sequences.tolist().index(row)
        with torch.inference_mode():
            logits = model(FEATURES[index : index + 1], decoder_input_ids=ids[:, :-1], use_cache=False).logits[
                0, 3:
            ]
        log_probs = logits.log_softmax(dim=1)
        total = float(log_probs.gather(1, ids[0, 4:, None]).sum())
        overlap = (length + 3 - ((length - 3.0) ** 2 + 3) ** 0.5) / 2
        assert score == pytest.approx(1 - (length + 3) / (2 * overlap) + total / overlap, abs=1e-3)


def test_what_is_proved_comes_with_each_segment() -> None:
    model = whisper()
    found = model.generate(
        FEATURES, **ALIKE, language="en", task="transcribe", return_timestamps=True, return_segments=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    for segments in found["segments"]:
        assert segments[0]["result"]["certificates"] in ("GLOBAL", "BEAM", "NONE", "TRUNCATED")


def test_a_threshold_of_log_probabilities_is_refused_by_name() -> None:
    options = {"language": "en", "task": "transcribe", "logprob_threshold": -1.0, "temperature": (0.0, 0.2)}
    with pytest.raises(UncurseError, match="logprob_threshold: it reads the scores of every step"):
        whisper().generate(FEATURES, **ALIKE, **options)
