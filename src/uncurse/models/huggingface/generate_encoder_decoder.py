"""The sentences of an encoder-decoder in `generate`: encoded already, with the default lengths of a translator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from uncurse.arrays import Ints
from uncurse.errors import UncurseError
from uncurse.lengths.limits import LinearLimit
from uncurse.lengths.policy import LengthPolicy
from uncurse.lengths.predictors import LengthPredictor
from uncurse.models.huggingface.cache import CacheGroup, CacheGroups, EncoderMemory
from uncurse.models.huggingface.generate_call import GenerateCall
from uncurse.models.huggingface.generate_constraints import Constraints
from uncurse.models.huggingface.generate_inputs import (
    DecoderPrompts,
    decoder_prompts,
    encoded_sources,
    eos_tokens,
)
from uncurse.models.huggingface.generate_lengths import LengthOptions
from uncurse.models.huggingface.log_probs import LogProbsFn
from uncurse.models.huggingface.network import max_positions, shows_attention, vocab_size_of
from uncurse.models.huggingface.step_model import advance
from uncurse.scoring.decoding import Decoding, Sentence
from uncurse.scoring.result import Result
from uncurse.search.search import beam_search
from uncurse.search.step_model import Continuations


@final
@dataclass(frozen=True, eq=False)
class EncoderDecoderTask:
    """What is searched for in one call of `generate`."""

    model: EncodedSentences
    sentences: list[Sentence]
    policy: LengthPolicy
    prompts: Tensor  # [batch, length] what every output begins with

    def search(self, decoding: Decoding) -> list[Result]:
        """Search for all sentences at once, then again for those whose default maximum length was too short."""
        results = beam_search(self.model, self.sentences, decoding, batch_size=len(self.sentences))
        found = enumerate(zip(self.sentences, results, strict=True))
        again = {place: wider for place, each in found if (wider := self.policy.retry(*each)) is not None}
        if again:
            model = self.model.take(list(again))
            second = beam_search(model, list(again.values()), decoding, batch_size=len(again))
            for place, result in zip(again, second, strict=True):
                results[place] = result
        return results


def encoder_decoder_task(
    call: GenerateCall,
    input_ids: Tensor,
    inputs_tensor: Tensor,
    lengths: LengthOptions,
    log_probs: LogProbsFn,
    constraints: Constraints,
    model_kwargs: dict[str, Any],
) -> EncoderDecoderTask:
    """Take over sources that `generate` has encoded."""
    network, config = call.network, call.config
    prompts = decoder_prompts(network, input_ids[:: call.copies].to(network.device), len(inputs_tensor), config)
    sources = encoded_sources(network, inputs_tensor, prompts, config, model_kwargs, call.copies)
    policy = _policy(call, prompts, lengths.predictor(sources.tokens))
    features = np.empty((0, 0)) if lengths.length_predictor is None else sources.memory.mean_states()
    prefixes = [tuple(prefix) for prefix in prompts.prefix.tolist()]
    ends = eos_tokens(network, config)
    sentences = policy.sentences(sources.tokens, prefixes, features)
    return EncoderDecoderTask(
        model=EncodedSentences(network, sources.memory, prompts.special, ends[0], log_probs),
        sentences=[
            replace(sentence, constraint=constraints.of(place, prompts.special[place], ends))
            for place, sentence in enumerate(sentences)
        ],
        policy=policy,
        prompts=torch.cat(prompts, dim=1),
    )


def _policy(call: GenerateCall, prompts: DecoderPrompts, predictor: LengthPredictor | None) -> LengthPolicy:
    """Maximum lengths as the call or else the default has them, counted without special tokens."""
    special, asked = prompts.special.shape[1], call.max_length
    fewest = max((call.config.min_length or 0) - prompts.length + 1, 0)  # min_length does not count </s>
    limits = []
    if (positions := max_positions(call.network, "decoder")) is not None:
        limits.append(positions - special + 1)  # the last token is not fed
    if asked is None and call.model_max_length is not None:
        limits.append(call.model_max_length - special)
    if asked is not None and asked - prompts.length < max(fewest, 1):
        least = f" and min_length = {call.config.min_length}" if fewest > 1 else ""
        raise UncurseError(f"max_length = {asked} leaves no room: prompts have {prompts.length} tokens{least}")
    return LengthPolicy(
        predictor,
        max_length=None if asked is None else LinearLimit(Fraction(0), asked - special),
        min_length=fewest,
        model_limit=min(limits, default=None),
    )


@final
class EncodedSentences:
    """A step model for sentences that are encoded already and join all at once."""

    signature: Final = "generate"  # no trace is kept that could be mistaken for another model's

    def __init__(
        self, network: PreTrainedModel, memory: EncoderMemory, prompts: Tensor, eos: int, log_probs: LogProbsFn
    ) -> None:
        self._network = network
        self._memory = memory
        self._prompts = prompts  # [batch, length]
        self._log_probs = log_probs
        self.vocab_size = vocab_size_of(network)
        self.bos = int(prompts[0, -1])
        self.eos = eos
        self.attends = shows_attention(network)

    def take(self, sentences: list[int]) -> EncodedSentences:
        """The same for some of the sentences."""
        rows = torch.tensor(sentences, device=self._prompts.device)
        memory, prompts = self._memory.take(rows), self._prompts[rows]
        return EncodedSentences(self._network, memory, prompts, self.eos, self._log_probs)

    def start(self, sources: Sequence[Sequence[int]]) -> CacheGroups[CacheGroup]:
        """The sentences, in their order."""
        # Eager attention would copy shared keys and values at every step.
        return CacheGroups((CacheGroup.starting(self._memory, self._prompts, shares=not self.attends),))

    def step(
        self, state: CacheGroups[CacheGroup], tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, CacheGroups[CacheGroup]]:
        """Feed each row its token; return its k best next tokens."""
        return advance(self._network, state, tokens, k, attention, self._log_probs)

    def step_among(
        self, state: CacheGroups[CacheGroup], tokens: Ints, candidates: Ints, attention: bool
    ) -> tuple[Continuations, CacheGroups[CacheGroup]]:
        """Feed each row its token; return what its candidates have, [rows, k]."""
        return advance(self._network, state, tokens, candidates, attention, self._log_probs)
