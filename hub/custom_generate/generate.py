"""Beam search that does not get worse when the beam gets wider, for `model.generate`."""

from typing import Any

from transformers import PreTrainedModel

from uncurse.huggingface import beam_search


def generate(model: PreTrainedModel, **options: Any) -> Any:  # noqa: ANN401  (what `generate` takes and returns)
    """Generate with the beam search of uncurse; its options are those of `uncurse.huggingface.beam_search`."""
    return model.generate(**options, custom_generate=beam_search)
