"""Word error rate of Whisper by beam size and score: `python benchmarks/speech.py FOLDER [DECIBELS]`.

The folder holds a Whisper model of transformers with tokenizer and feature extractor. espeak-ng, which is needed,
speaks the first two of the Harvard lists (IEEE 1969), twenty sentences. The number of decibels is the ratio of
signal to noise; without it there is no noise. The noise is white, from a fixed seed.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import wave
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, WhisperFeatureExtractor, WhisperForConditionalGeneration

from uncurse.arrays import Floats
from uncurse.huggingface import beam_search

BEAM_SIZES, BATCH, RATE = (1, 5, 20), 4, 16_000
SENTENCES = """The birch canoe slid on the smooth planks.
Glue the sheet to the dark blue background.
It's easy to tell the depth of a well.
These days a chicken leg is a rare dish.
Rice is often served in round bowls.
The juice of lemons makes fine punch.
The box was thrown beside the parked truck.
The hogs were fed chopped corn and garbage.
Four hours of steady work faced us.
A large size in stockings is hard to sell.
The boy was there when the sun rose.
A rod is used to catch pink salmon.
The source of the huge river is the clear spring.
Kick the ball straight and follow through.
Help the woman get back to her feet.
A pot of tea helps to pass the evening.
Smoky fires lack flame and heat.
The soft cushion broke the man's fall.
The salt breeze came across from the sea.
The girl at the booth sold fifty bonds.""".splitlines()


def spoken(text: str) -> Floats:
    """A sentence as espeak-ng says it, at the rate that Whisper expects."""
    said = subprocess.run(["espeak-ng", "-v", "en-us", "--stdout", text], capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(said)) as sound:
        samples = np.frombuffer(sound.readframes(len(said)), dtype=np.int16) / 32768
        rate = sound.getframerate()
    spectrum = np.fft.rfft(samples)
    length = round(len(samples) * RATE / rate)
    resampled: Floats = np.fft.irfft(spectrum[: length // 2 + 1], length) * length / len(samples)
    return resampled


def noisy(sound: Floats, decibels: float, random: np.random.Generator) -> Floats:
    """A sound with white noise at a ratio of signal to noise."""
    loudness = float(sound.std()) * 10 ** (-decibels / 20)
    noise: Floats = random.standard_normal(len(sound))
    return sound + loudness * noise


def words(text: str) -> list[str]:
    """The words of a text, without case and punctuation."""
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).replace("'", "").split()


def errors(reference: list[str], found: list[str]) -> int:
    """The fewest words to insert, delete or replace."""
    row = list(range(len(found) + 1))
    for place, word in enumerate(reference, start=1):
        before, row[0] = row[0], place
        for column, other in enumerate(found, start=1):
            before, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, before + (word != other))
    return row[-1]


def encode_once(model: Any) -> None:  # noqa: ANN401
    """Let a model remember what it has encoded, which is the same at every beam size and score."""
    encode, known = model.model.encoder.forward, {}

    def remembered(input_features: torch.Tensor, **options: Any) -> Any:  # noqa: ANN401
        key = input_features.numpy().tobytes()
        if key not in known:
            known[key] = encode(input_features, **options)
        return known[key]

    model.model.encoder.forward = remembered


def transcribed(
    model: Any,  # noqa: ANN401
    tokenizer: Any,  # noqa: ANN401
    features: torch.Tensor,
    beam_size: int,
    options: dict[str, Any],
) -> list[list[str]]:
    """The words of each sound; an option that is a list has a value for each."""
    found: list[list[str]] = []
    for first in range(0, len(features), BATCH):
        few = slice(first, first + BATCH)
        given = {name: value[few] if isinstance(value, list) else value for name, value in options.items()}
        sequences = model.generate(
            features[few], custom_generate=beam_search, beam_size=beam_size, max_new_tokens=60, **given
        )
        found += [words(tokenizer.decode(row, skip_special_tokens=True)) for row in sequences]
    return found


def main() -> None:
    """Transcribe everything in every way and print a table."""
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python benchmarks/speech.py FOLDER [DECIBELS]")
    folder, decibels = sys.argv[1], float(sys.argv[2]) if len(sys.argv) == 3 else np.inf
    model_class: Any = WhisperForConditionalGeneration
    model = model_class.from_pretrained(folder).eval()
    encode_once(model)
    extractor_class: Any = WhisperFeatureExtractor
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    extractor = extractor_class.from_pretrained(folder)
    random = np.random.default_rng(0)
    sounds = [noisy(spoken(text), decibels, random) for text in SENTENCES]
    features = torch.cat(
        [extractor(each, sampling_rate=RATE, return_tensors="pt").input_features for each in sounds]
    )
    seconds = np.array([len(each) / RATE for each in sounds])
    tokens = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) + 2 for text in SENTENCES)
    references = [words(text) for text in SENTENCES]
    total = sum(map(len, references))
    rows: dict[str, dict[str, Any]] = {
        "raw": {"score": "log-prob"},
        "length norm, the default": {},
        # So many tokens a second, </s> counted.
        "default with a length by duration": {"expected_length": (seconds * tokens / seconds.sum()).tolist()},
    }
    print(f"word error rate in %, {len(SENTENCES)} sentences; in brackets the words found, of {total} spoken")
    print("", *(f"b = {beam_size}" for beam_size in BEAM_SIZES), sep="\t")
    for name, options in rows.items():
        cells = []
        for beam_size in BEAM_SIZES:
            found = transcribed(model, tokenizer, features, beam_size, options)
            wrong = sum(map(errors, references, found))
            cells.append(f"{100 * wrong / total:.1f} ({sum(map(len, found))})")
        print(name, *cells, sep="\t", flush=True)


if __name__ == "__main__":
    main()
