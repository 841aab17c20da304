"""Beam search that gets better, not worse, when the beam gets wider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uncurse.constraints.automaton import Automaton, Trie
from uncurse.constraints.constraint import AllOf, Constraint, NextTokens
from uncurse.constraints.phrases import BannedPhrases, NoRepeatNgram
from uncurse.errors import UncurseError, needs_extra
from uncurse.lengths.limits import parse_max_length
from uncurse.lengths.predictors import FixedRatio, LengthPredictor
from uncurse.scoring.decoding import Decoding, Sentence, Slots
from uncurse.scoring.evidence import Evidence
from uncurse.scoring.registry import parameter
from uncurse.scoring.rescorer import Paths, Rescorer, Source
from uncurse.scoring.result import Certificate, Hypothesis, Result
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES, StoppingRule
from uncurse.search.exact import ExactResult, exact_search
from uncurse.search.judge import judge
from uncurse.search.record import record
from uncurse.search.search import Search, beam_search
from uncurse.search.step_model import Continuations, ModelError, State, StepModel
from uncurse.search.trace import Trace
from uncurse.search.trace_file import load_traces, save_traces
from uncurse.version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from pathlib import Path

    from uncurse.translation.translator import Translator


def load(
    model: Path | str | None = None,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    source_lang: str | None = None,
    target_lang: str | None = None,
    prompt: str | None = None,
    without_script: str | None = None,
    vocabulary_selection: bool = False,
    vocabulary_selector: Path | str | None = None,
    length_predictor: Path | str | None = None,
) -> Translator:
    """Load a translator; by default the small bundled model.

    `model` is a name that `uncurse models` lists, a folder, or owner/name on the hub. `device` is cpu, cuda,
    cuda:1 or mps. `dtype` is float32, int8, bfloat16 or float16 for Marian models. Multilingual models need
    `target_lang`, and some `source_lang`. Decoder-only models need a `prompt`, such as "Translate to English:
    {text}\\nEnglish:". A `without_script` such as "cjk" forbids output tokens in that script (Marian models
    only). `vocabulary_selection` computes only the output tokens that a selector expects for a sentence, which is
    faster (Marian models only); `vocabulary_selector` is a file that `uncurse fit-vocabulary` wrote, if it is not
    in the model's folder. `length_predictor` is a file that `uncurse fit-length` wrote. Needs the extra
    `translate`, and `huggingface` for models that run in transformers.
    """
    from uncurse.models.load import extra_of
    from uncurse.models.loaded_model import ModelOptions  # PyTorch is imported only where it is needed
    from uncurse.translation.translator import load_translator

    options = ModelOptions(
        model=None if model is None else str(model),
        device=device,
        dtype=dtype,
        source_lang=source_lang,
        target_lang=target_lang,
        prompt=prompt,
        without_script=without_script,
        vocabulary_selection=vocabulary_selection,
        vocabulary_selector=None if vocabulary_selector is None else str(vocabulary_selector),
        length_predictor=None if length_predictor is None else str(length_predictor),
    )
    with needs_extra(extra_of(options.model)):
        return load_translator(options)


__all__ = [
    "RULES",
    "SCORES",
    "AllOf",
    "Automaton",
    "BannedPhrases",
    "Certificate",
    "Constraint",
    "Continuations",
    "Decoding",
    "Evidence",
    "ExactResult",
    "FixedRatio",
    "Hypothesis",
    "LengthPredictor",
    "ModelError",
    "NextTokens",
    "NoRepeatNgram",
    "Paths",
    "Rescorer",
    "Result",
    "Search",
    "Sentence",
    "Slots",
    "Source",
    "State",
    "StepModel",
    "StoppingRule",
    "Trace",
    "Trie",
    "UncurseError",
    "__version__",
    "beam_search",
    "exact_search",
    "judge",
    "load",
    "load_traces",
    "parameter",
    "parse_max_length",
    "record",
    "save_traces",
]
