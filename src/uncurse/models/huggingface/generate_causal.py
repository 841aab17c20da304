"""The prompts of a decoder-only model in `generate`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from uncurse.errors import UncurseError
from uncurse.lengths.limits import FALLBACK_MAX_LENGTH
from uncurse.models.huggingface.causal import CausalStepModel
from uncurse.models.huggingface.generate_call import GenerateCall
from uncurse.models.huggingface.generate_constraints import Constraints
from uncurse.models.huggingface.generate_inputs import check_vocabulary, checked_mask, eos_tokens
from uncurse.models.huggingface.generate_lengths import ExpectedLength, expected_lengths
from uncurse.models.huggingface.log_probs import LogProbsFn
from uncurse.models.huggingface.network import max_positions, rescaled_positions
from uncurse.scoring.decoding import Decoding, Sentence
from uncurse.scoring.result import Result
from uncurse.search.search import beam_search


@final
@dataclass(frozen=True, eq=False)
class CausalTask:
    """What is searched for in one call of `generate`."""

    model: CausalStepModel
    sentences: list[Sentence]
    prompts: Tensor  # [batch, length] as they were given, with their padding

    def search(self, decoding: Decoding) -> list[Result]:
        """Search for the outputs of all prompts at once."""
        return beam_search(self.model, self.sentences, decoding, batch_size=len(self.sentences))


def causal_task(
    call: GenerateCall,
    input_ids: Tensor,
    expected_length: ExpectedLength | None,
    log_probs: LogProbsFn,
    constraints: Constraints,
    model_kwargs: dict[str, Any],
) -> CausalTask:
    """Take over prompts, which may be padded on either side and may be embeddings."""
    network, mask, embedded = call.network, model_kwargs.get("attention_mask"), model_kwargs.get("inputs_embeds")
    prompts = input_ids[:: call.copies].to(network.device)
    check_vocabulary(network, "input_ids", prompts)
    ids = prompts
    if embedded is not None:
        embedded = embedded[:: call.copies].to(network.device)
        ids = torch.zeros(embedded.shape[:2], dtype=torch.long, device=network.device)
    mask = checked_mask(ids, mask if mask is None else mask[:: call.copies].to(network.device))
    sources = [
        tuple(token for token, one in zip(row, present, strict=True) if one)
        for row, present in zip(ids.tolist(), mask.tolist(), strict=True)
    ]
    embeddings = None if embedded is None else [row[one == 1] for row, one in zip(embedded, mask, strict=True)]
    expected: list[float | None] = [None] * len(sources)
    if expected_length is not None:
        expected = list(expected_lengths(expected_length, sources).tolist())
    fewest = _min_length(call, prompts)
    most = [
        _max_length(call, prompts.shape[1], len(source), length)
        for source, length in zip(sources, expected, strict=True)
    ]
    ends = eos_tokens(network, call.config)
    return CausalTask(
        model=CausalStepModel(network, ends, log_probs, "generate", embeddings, prompts),
        sentences=[
            Sentence(
                source=source,
                max_length=limit,
                prefix=(),
                expected_length=length,
                min_length=fewest,
                constraint=constraints.of(place, prompts[place], ends),
            )
            for place, (source, limit, length) in enumerate(zip(sources, most, expected, strict=True))
        ],
        prompts=prompts,
    )


def _max_length(call: GenerateCall, padded: int, prompt: int, expected: float | None) -> int:
    """The most new tokens: what the call asks for, else the model, else 2L+10, else the default of `generate`."""
    if (total := call.max_length if call.max_length is not None else call.model_max_length) is not None:
        most = total - padded  # `generate` counts the padding, too
    elif expected is not None:
        most = FALLBACK_MAX_LENGTH.tokens(math.ceil(expected))
    else:
        most = (call.config.max_length or 0) - padded
    positions, rescaled = max_positions(call.network, "decoder"), rescaled_positions(call.network)
    if rescaled is not None and prompt <= rescaled:
        positions = rescaled
    room = most if positions is None else min(most, positions - prompt + 1)  # the last token is not fed
    if room < 1:
        model = "" if room == most else f": {type(call.network).__name__} has {positions} positions"
        raise UncurseError(f"a prompt of {prompt} tokens leaves no room for an output{model}")
    return room


def _min_length(call: GenerateCall, prompts: Tensor) -> int:
    return max((call.config.min_length or 0) - prompts.shape[1] + 1, 0)  # min_length does not count </s>
