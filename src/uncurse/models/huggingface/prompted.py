"""A decoder-only model in a folder of transformers as a translation model: sources go into a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from uncurse.arrays import Floats, Ints
from uncurse.errors import UncurseError
from uncurse.lengths.predictor_file import find_predictor
from uncurse.models.huggingface.beam_tree import BeamTree
from uncurse.models.huggingface.cache import CacheGroups
from uncurse.models.huggingface.causal import CausalStepModel
from uncurse.models.huggingface.generate_inputs import eos_tokens
from uncurse.models.huggingface.log_probs import LogProbsFn, processed_log_probs
from uncurse.models.huggingface.network import fingerprint_of, max_positions, rescaled_positions, vocab_size_of
from uncurse.models.huggingface.prompt_template import PromptedSource, PromptedTarget, PromptTemplate, line_breaks
from uncurse.models.huggingface.special_tokens import never_output
from uncurse.models.loaded_model import LoadedModel
from uncurse.models.tensors import to_float64
from uncurse.search.step_model import Continuations


@final
class PromptedStepModel:
    """A decoder-only model whose sources stand between the tokens of a prompt, which count in no length."""

    def __init__(
        self, network: PreTrainedModel, model: CausalStepModel, before: tuple[int, ...], after: tuple[int, ...]
    ) -> None:
        self._network: Any = network
        self._model = model
        self._before, self._after = before, after
        self.signature, self.vocab_size = model.signature, model.vocab_size
        self.bos, self.eos, self.attends = model.bos, model.eos, model.attends
        prompt = len(before) + len(after)
        positions = rescaled_positions(network) or max_positions(network, "decoder")
        room = None if positions is None else positions - prompt + 1  # the last token is not fed
        if room is not None and room < 2:
            raise UncurseError(f"a prompt of {prompt} tokens leaves no room in {positions} positions")
        self.max_source_length = None if room is None else room // 2  # half for the source, half for the output
        self.max_target_length = None if room is None else room - room // 2

    def start(self, sources: Sequence[Sequence[int]]) -> CacheGroups[BeamTree]:
        """Take in sources, whose prompts are run at the first step."""
        return self._model.start([(*self._before, *source, *self._after) for source in sources])

    def step(
        self, state: CacheGroups[BeamTree], tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, CacheGroups[BeamTree]]:
        """Feed each row its token, or its prompt at the first step; return its k best next tokens."""
        return self._model.step(state, tokens, k, attention)

    def step_among(
        self, state: CacheGroups[BeamTree], tokens: Ints, candidates: Ints, attention: bool
    ) -> tuple[Continuations, CacheGroups[BeamTree]]:
        """Feed each row its token; return what its candidates have, [rows, k]."""
        return self._model.step_among(state, tokens, candidates, attention)

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the last layer's states over each prompt, [sources, hidden]."""
        rows = []
        for source in sources:
            ids = torch.tensor([[*self._before, *source, *self._after]], device=self._network.device)
            states = self._network(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states[-1]
            rows.append(to_float64(states[0].float().mean(dim=0)))
        return np.stack(rows)


def prompted_model(
    folder: Path, tokenizer: PreTrainedTokenizerBase, network: PreTrainedModel, prompt: str | None
) -> LoadedModel:
    """A decoder-only model with its tokenizer. An output is one line: a line break ends it, as `</s>` does."""
    if prompt is None:
        raise UncurseError(
            f"{folder} is a decoder-only model, which needs a prompt: the text around a line, with {{text}} where"
            " the line goes"
        )
    template = PromptTemplate(prompt)
    source = PromptedSource(tokenizer, template)
    breaks, within = line_breaks(tokenizer, vocab_size_of(network))
    config: Any = network.generation_config
    ends = tuple(dict.fromkeys((*eos_tokens(network, config), *breaks)))
    vocabulary: Any = tokenizer
    never = never_output(config) & set(range(vocab_size_of(network)))  # padding may be none of the tokens
    suppressed = sorted({*within, *never} - {*ends})
    facts = (prompt, str(ends), str(suppressed), str(sorted(vocabulary.get_vocab().items())))
    fingerprint = fingerprint_of(network, *facts)
    causal = CausalStepModel(network, ends, _log_probs(ends, suppressed), fingerprint)
    return LoadedModel(
        model=PromptedStepModel(network, causal, source.before, source.after),
        source=source,
        target=PromptedTarget(tokenizer, template, ends),
        fingerprint=fingerprint,
        find_predictor=partial(find_predictor, folder, fingerprint),
    )


def _log_probs(ends: Sequence[int], suppressed: Sequence[int]) -> LogProbsFn:
    """Log-probabilities among the tokens that may be output."""
    ending = processed_log_probs((), ends)

    def log_probs(fed: Tensor, logits: Tensor) -> Tensor:
        never = torch.tensor(suppressed, dtype=torch.long, device=logits.device)
        return ending(fed, logits.index_fill(1, never, -torch.inf))

    return log_probs
