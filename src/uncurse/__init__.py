"""Beam search that gets better, not worse, when the beam gets wider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from uncurse.decoding import Decoding, Sentence, Slots
from uncurse.exact import ExactResult, exact_search
from uncurse.judging import judge, judge_all
from uncurse.length import FixedRatio, LengthPredictor, parse_limit
from uncurse.model import Continuations, ModelError, State, StepModel
from uncurse.registry import parameter
from uncurse.rescoring import SCORES, Paths, Rescorer, Source
from uncurse.result import Hypothesis, Optimality, Result
from uncurse.search import Search, record
from uncurse.search import beam_search as _search
from uncurse.stopping import RULES, Evidence, StoppingRule
from uncurse.trace import Trace
from uncurse.tracefile import load_traces, save_traces
from uncurse.version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor
    from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

    from uncurse.generating import BeamSearchOutput
    from uncurse.model import S
    from uncurse.translator import Translator


def load(
    model: Path | str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    source_lang: str | None = None,
    target_lang: str | None = None,
    without_script: str | None = None,
) -> Translator:
    """A translator by the name of its model or its folder, or the one in the box; needs the extra `translate`."""
    from uncurse.loading import load as load_translator  # PyTorch is imported only where it is needed

    return load_translator(model, device, dtype, source_lang, target_lang, without_script)


@overload
def beam_search(
    model: StepModel[S], sentences: Sequence[Sentence], decoding: Decoding, batch: int = 32
) -> list[Result]: ...


@overload
def beam_search(
    model: PreTrainedModel,
    input_ids: Tensor,
    /,
    *,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    inputs_tensor: Tensor,
    beam_size: int = 10,
    score: str = "bp-norm",
    length: float | LengthPredictor | None = None,
    stop: str = "optimal",
    slots: str = "occupy",
    num_return_sequences: int = 1,
    **model_kwargs: object,
) -> Tensor | BeamSearchOutput: ...


def beam_search(
    *arguments: Any,
    beam_size: Any = None,
    score: Any = None,
    length: Any = None,
    stop: Any = None,
    slots: Any = None,
    num_return_sequences: Any = None,
    inputs_tensor: Any = None,
    **others: Any,
) -> Any:
    """Search for every sentence; or, as `custom_generate=uncurse.beam_search`, decode for `model.generate`.

    `uncurse.search.beam_search` and `uncurse.generating.decode` say what each takes; `generate` hands over what is
    named here.
    """
    named = {
        "beam_size": beam_size,
        "score": score,
        "length": length,
        "stop": stop,
        "slots": slots,
        "num_return_sequences": num_return_sequences,
        "inputs_tensor": inputs_tensor,
    }
    options: dict[str, Any] = {name: value for name, value in named.items() if value is not None} | others
    if "generation_config" not in options:
        return _search(*arguments, **options)
    from uncurse.generating import decode  # PyTorch is imported only where it is needed

    return decode(*arguments, **options)


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
