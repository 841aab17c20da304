"""The C++ kernels on a real model: opus-mt-zh-en, if it was downloaded."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import uncurse
from uncurse import Sentence, record
from uncurse.arrays import Floats
from uncurse.models.download import downloaded_folder
from uncurse.models.transformer.ctranslate2_file import read_model, read_vocabulary, transformer_weights
from uncurse.models.transformer.layers import TransformerNetwork
from uncurse.models.transformer.linear import ComputeType
from uncurse.models.transformer.native.library import available_instruction_sets, load_library
from uncurse.models.transformer.native.network import NativeNetwork
from uncurse.models.transformer.native.step_model import NativeStepModel
from uncurse.models.transformer.step_model import TransformerStepModel
from uncurse.models.transformer.weights import TransformerWeights
from uncurse.models.vocabulary_selector import SHIPPED, find_selector
from uncurse.search.step_model import StepModel
from uncurse.search.trace import Trace
from uncurse.text.marian_tokenizer import read_marian_tokenizer

FOLDER = downloaded_folder("opus-mt-zh-en")
AVAILABLE = available_instruction_sets()
LINES = ["外面下雨了。", "他昨天在北京见到了两位老朋友,谈了很久。", "这本书很有意思,我想再读一遍。"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(FOLDER is None, reason="not downloaded: uncurse models get opus-mt-zh-en"),
    pytest.mark.skipif(not AVAILABLE, reason="the kernels were not built"),
]


@cache
def weights() -> tuple[TransformerWeights, tuple[tuple[int, ...], ...]]:
    """The weights, and the sentences as tokens."""
    folder = Path(str(FOLDER))
    path, vocabulary = folder / "model" / "model.bin", read_vocabulary(folder / "model")
    tokenizer = read_marian_tokenizer(folder / "sentencepiece.model", vocabulary)
    sources = tuple(tuple(source) for source in tokenizer.encode(LINES))
    return transformer_weights(read_model(path), path, vocabulary.eos), sources


def native(compute_type: ComputeType) -> NativeStepModel:
    return NativeStepModel(NativeNetwork(weights()[0], compute_type, load_library(AVAILABLE[0])), "opus")


def reference(compute_type: ComputeType) -> TransformerStepModel:
    return TransformerStepModel(TransformerNetwork(weights()[0], compute_type, torch.device("cpu")), "opus")


def traces(model: StepModel[Any], batch_size: int = 3) -> list[Trace]:
    return record(model, [Sentence(source, 20) for source in weights()[1]], beam_size=5, batch_size=batch_size)


def test_in_float32_a_search_gives_what_pytorch_gives() -> None:
    for one, two in zip(traces(native(ComputeType.FLOAT32)), traces(reference(ComputeType.FLOAT32)), strict=True):
        assert one.tokens.tolist() == two.tokens.tolist()
        assert np.allclose(one.log_probs, two.log_probs, atol=1e-4)


@pytest.mark.parametrize("compute_type", [ComputeType.FLOAT32, ComputeType.INT8])
def test_a_search_is_the_same_bit_for_bit_in_any_batch(compute_type: ComputeType) -> None:
    model = native(compute_type)
    for one, two in zip(traces(model), traces(model, batch_size=1), strict=True):
        assert one.tokens.tolist() == two.tokens.tolist()
        assert one.log_probs.tolist() == two.log_probs.tolist()


def test_in_int8_the_kernels_are_as_close_to_float32_as_pytorch_is() -> None:
    # Closer to one another they cannot be: a value that is rounded the other way changes all that follow, and so
    # PyTorch alone differs from PyTorch in a batch.
    def error(features: Floats) -> float:
        return float(np.sqrt(((features - exact) ** 2).mean()))

    sources = weights()[1]
    exact = reference(ComputeType.FLOAT32).features(sources)
    ours = error(native(ComputeType.INT8).features(sources))
    assert ours <= 1.3 * error(reference(ComputeType.INT8).features(sources))


def test_the_shipped_selector_is_used_and_selects_less_than_a_fifth_of_the_vocabulary() -> None:
    plain, selecting = (
        uncurse.load("opus-mt-zh-en", dtype="int8", vocabulary_selection=selection) for selection in (False, True)
    )
    (file,) = SHIPPED.glob("*.safetensors")
    selector = find_selector(Path("nowhere"), file.stem)
    assert selecting.model.signature == f"{plain.model.signature}-selected-{selector.fingerprint}"
    texts = [[each.text for each in translator.translate(LINES, beam_size=5)] for translator in (plain, selecting)]
    assert texts[0] == texts[1]
    model = native(ComputeType.INT8)
    for votes in model.votes(weights()[1], selector.tokens):
        assert 1000 < len(selector.selected(votes)) < model.vocab_size / 5
