"""From the logits of a model to the log-probabilities that a search sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.models.tensors import to_float64
from uncurse.search.step_model import Continuations

# From the tokens fed so far, [rows, length], and logits, [rows, vocab_size], to log-probabilities.
LogProbsFn = Callable[[Tensor, Tensor], Tensor]


def processed_log_probs(processors: Iterable[Any], eos: Sequence[int]) -> LogProbsFn:
    """Apply logits processors to log-probabilities, as the beam search of transformers does.

    Where several tokens end an output, the first stands for all of them, with the sum of their probabilities.
    """
    steps = list(processors)

    def log_probs(fed: Tensor, logits: Tensor) -> Tensor:
        scores = logits.log_softmax(dim=1)
        for processor in steps:
            scores = _checked(processor, processor(fed, scores), scores)
        if len(eos) > 1:
            ends = torch.tensor(eos, device=scores.device)
            together = scores[:, ends].logsumexp(dim=1)
            scores = scores.index_fill(1, ends, -torch.inf)
            scores[:, eos[0]] = together
        return scores

    return log_probs


def chosen(log_probs: Tensor, wanted: int | Ints, attention: Floats | None = None) -> Continuations:
    """The k best tokens of each row of log-probabilities, or candidates that are given for it, [rows, k]."""
    if isinstance(wanted, int):
        values, ids = log_probs.topk(min(wanted, log_probs.shape[1]), dim=1)
        return Continuations(ids.cpu().numpy(), to_float64(values), attention)
    values = log_probs.gather(1, torch.from_numpy(wanted).to(log_probs.device))
    return Continuations(wanted, to_float64(values), attention)


def _checked(processor: object, returned: object, given: Tensor) -> Tensor:
    name = f"the logits processor {type(processor).__name__}"
    if not isinstance(returned, Tensor):
        raise UncurseError(f"{name} returned {type(returned).__name__} instead of a tensor")
    if returned.shape != given.shape:
        raise UncurseError(f"{name} returned the shape {tuple(returned.shape)} instead of {tuple(given.shape)}")
    if not returned.is_floating_point():
        raise UncurseError(f"{name} returned numbers of {returned.dtype} instead of log-probabilities")
    return returned
