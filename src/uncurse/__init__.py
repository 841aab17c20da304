"""Beam search that gets better, not worse, when the beam gets wider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uncurse.decoding import Decoding, Sentence, Slots
from uncurse.exact import ExactResult, exact_search
from uncurse.judging import judge, judge_all
from uncurse.length import FixedRatio, LengthPredictor, parse_limit
from uncurse.model import Continuations, ModelError, State, StepModel
from uncurse.registry import parameter
from uncurse.rescoring import SCORES, Paths, Rescorer, Source
from uncurse.result import Hypothesis, Optimality, Result
from uncurse.search import Search, beam_search, record
from uncurse.stopping import RULES, Evidence, StoppingRule
from uncurse.trace import Trace
from uncurse.tracefile import load_traces, save_traces
from uncurse.version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from pathlib import Path

    from uncurse.translator import Translator


def load(model: Path | str | None = None, device: str = "cpu") -> Translator:
    """A translator from a folder with a model, or the one in the box; this needs the extra `translate`."""
    from uncurse.loading import load as load_translator  # PyTorch is imported only where it is needed

    return load_translator(model, device)


__all__ = [
    "RULES",
    "SCORES",
    "Continuations",
    "Decoding",
    "Evidence",
    "ExactResult",
    "FixedRatio",
    "Hypothesis",
    "LengthPredictor",
    "ModelError",
    "Optimality",
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
    "__version__",
    "beam_search",
    "exact_search",
    "judge",
    "judge_all",
    "load",
    "load_traces",
    "parameter",
    "parse_limit",
    "record",
    "save_traces",
]
