"""Any encoder-decoder of transformers as a step model, run by its own forward with its own KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from uncurse.arrays import Floats, Ints
from uncurse.models.encoder_cache import CachedEncoder
from uncurse.models.huggingface.cache import CacheGroup, CacheGroups, EncoderMemory, concatenated
from uncurse.models.huggingface.log_probs import LogProbsFn, chosen
from uncurse.models.huggingface.network import (
    check_positions,
    fingerprint_of,
    max_positions,
    shows_attention,
    vocab_size_of,
)
from uncurse.models.special_tokens import SpecialTokens
from uncurse.models.tensors import to_float64
from uncurse.search.step_model import Continuations


@final
class HuggingFaceStepModel:
    """An encoder-decoder with the special tokens that it expects."""

    def __init__(self, network: PreTrainedModel, special: SpecialTokens, fingerprint: str | None = None) -> None:
        self._network: Any = network.train(mode=False)
        self._special = special
        self._suppressed = torch.tensor(special.suppressed, dtype=torch.long, device=network.device)
        self._encoded = CachedEncoder(self._encode)
        self.signature = f"{network.config.model_type}-{fingerprint or fingerprint_of(network, str(special))}"
        self.vocab_size = vocab_size_of(network)
        self.bos = special.decoder_prompt[-1]
        self.eos = special.eos
        self.attends = shows_attention(network)
        positions = max_positions(network, "encoder")
        self.max_source_length = None if positions is None else special.max_source_length(positions)
        positions = max_positions(network, "decoder")
        self.max_target_length = None if positions is None else special.max_target_length(positions)

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> CacheGroups[CacheGroup]:
        """Encode sources."""
        prompt = torch.tensor(self._special.decoder_prompt, device=self._network.device)
        return CacheGroups((CacheGroup.starting(self._encoded(sources), prompt.repeat(len(sources), 1)),))

    @torch.inference_mode()
    def step(
        self, state: CacheGroups[CacheGroup], tokens: Ints, k: int, attention: bool
    ) -> tuple[Continuations, CacheGroups[CacheGroup]]:
        """Feed each row its token; return its k best next tokens."""
        return advance(self._network, state, tokens, k, attention, self._log_probs)

    @torch.inference_mode()
    def step_among(
        self, state: CacheGroups[CacheGroup], tokens: Ints, candidates: Ints, attention: bool
    ) -> tuple[Continuations, CacheGroups[CacheGroup]]:
        """Feed each row its token; return what its candidates have, [rows, k]."""
        return advance(self._network, state, tokens, candidates, attention, self._log_probs)

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states of each source, [sources, hidden]."""
        return self._encoded(sources).mean_states()

    def _log_probs(self, fed: Tensor, logits: Tensor) -> Tensor:
        """Log-probabilities among the tokens that may be output."""
        return logits.index_fill(1, self._suppressed, -torch.inf).log_softmax(dim=1)

    def _encode(self, sources: Sequence[Sequence[int]]) -> EncoderMemory:
        special, network = self._special, self._network
        framed = [torch.tensor(special.framed(source), dtype=torch.long) for source in sources]
        check_positions(network, "encoder", max(map(len, framed)))
        ids = pad_sequence(framed, batch_first=True)
        lengths = torch.tensor([len(each) for each in framed])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        ids, mask = ids.to(network.device), mask.to(network.device)
        first, most = len(special.source_prefix), max(map(len, sources))
        positions = torch.arange(first, first + most, device=network.device)
        states = network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return EncoderMemory(states, mask, positions.repeat(len(sources), 1))


def advance(
    network: PreTrainedModel,
    state: CacheGroups[CacheGroup],
    tokens: Ints,
    wanted: int | Ints,
    attention: bool,
    log_probs: LogProbsFn,
) -> tuple[Continuations, CacheGroups[CacheGroup]]:
    """Feed each row its token, or its prompt at the first step; the caches of the given state are used up.

    What is wanted is the k best continuations, or candidates that are given for each row, [rows, k].
    """
    after, found = [], []
    for (group, of_group), wanted_of_group in zip(state.split(tokens), state.split_wanted(wanted), strict=True):
        new = torch.from_numpy(np.ascontiguousarray(of_group))[:, None]
        begun = group.cache.get_seq_length() > 0
        fed = torch.cat((group.fed, new.to(group.fed.device)), dim=1) if begun else group.fed
        check_positions(network, "decoder", fed.shape[1])
        states: Any = group.memory.states
        output = network(
            encoder_outputs=_EncoderOutput(last_hidden_state=states),
            attention_mask=group.memory.mask,
            decoder_input_ids=fed[:, -1:] if begun else fed,
            past_key_values=group.cache,
            use_cache=True,
            output_attentions=attention,
        )
        scores = log_probs(fed, output.logits[:, -1].float())
        weights = None
        if attention:
            heads = output.cross_attentions[-1][:, :, -1].float()  # [rows, heads, positions]
            weights = to_float64(heads.mean(dim=1).gather(1, group.memory.source_positions))
        found.append(chosen(scores, wanted_of_group, weights))
        after.append(replace(group, fed=fed))
    return concatenated(found), CacheGroups(tuple(after))


@final
@dataclass
class _EncoderOutput(BaseModelOutput):
    """The output of an encoder; mixtures of experts also look for the routers' logits."""

    router_logits: Tensor | None = None
