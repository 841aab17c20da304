"""Sources and prompts as `generate` hands them over, checked, with special tokens told apart from the rest."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel

from uncurse.errors import UncurseError
from uncurse.models.huggingface.cache import EncoderMemory
from uncurse.models.huggingface.network import vocab_size_of

PROMPTED: Final = ("whisper",)  # model types whose prompts say what to do: language, task, what was said before
LANGUAGE_TAGGED: Final = ("m2m_100", "mbart", "nllb-moe")  # model types whose texts carry a language tag


class DecoderPrompts(NamedTuple):
    """What the outputs of an encoder-decoder begin with."""

    special: Tensor  # [batch, special] start token, language tag and the like, which count nowhere
    prefix: Tensor  # [batch, prefix] the target prefix

    @property
    def length(self) -> int:
        """The number of tokens of a prompt."""
        return self.special.shape[1] + self.prefix.shape[1]


class GenerateSources(NamedTuple):
    """The sentences as `generate` has encoded them."""

    memory: EncoderMemory
    tokens: list[tuple[int, ...]]  # of each sentence, without special tokens; zeros where there are only features


def eos_tokens(network: PreTrainedModel, config: GenerationConfig) -> tuple[int, ...]:
    """The tokens that end an output; at least one."""
    given = config.eos_token_id
    ends = given if isinstance(given, list) else [given]
    if not ends or any(type(token) is not int for token in ends):
        raise UncurseError(f"eos_token_id = {given} is not allowed: it must be a token, or a list of tokens")
    for token in ends:
        _check_known(network, f"eos_token_id = {token}", token)
    return tuple(dict.fromkeys(ends))


def decoder_prompts(
    network: PreTrainedModel, input_ids: Tensor, batch: int, config: GenerationConfig
) -> DecoderPrompts:
    """Split decoder prompts, [batch, length], into special tokens and the target prefix."""
    _check_ids("decoder_input_ids", input_ids)
    if len(input_ids) != batch:
        raise UncurseError(f"{len(input_ids)} decoder prompts are given for {batch} sentences")
    check_vocabulary(network, "decoder_input_ids", input_ids)
    if input_ids.shape[1] == 1 and config.forced_bos_token_id is not None:
        first = config.forced_bos_token_id
        _check_known(network, f"forced_bos_token_id = {first}", first)
        input_ids = torch.cat((input_ids, torch.full_like(input_ids, first)), dim=1)
    special = torch.tensor(sorted(_special_tokens(network, config)), device=input_ids.device)
    count = input_ids.shape[1] if network.config.model_type in PROMPTED else 1
    ends = torch.tensor(eos_tokens(network, config), device=input_ids.device)
    if network.config.model_type in LANGUAGE_TAGGED and bool(torch.isin(input_ids[:, 0], ends).all()):
        count = 2  # </s> and the language; where the language comes first, it stands alone
    while count < input_ids.shape[1] and bool(torch.isin(input_ids[:, count], special).all()):
        count += 1
    return DecoderPrompts(input_ids[:, :count], input_ids[:, count:])


def encoded_sources(
    network: PreTrainedModel,
    ids: Tensor,
    prompts: DecoderPrompts,
    config: GenerationConfig,
    model_kwargs: dict[str, Any],
    copies: int,
) -> GenerateSources:
    """The encoder's states, and which of the source tokens, [batch, positions], are not special.

    `generate` repeats what it has encoded for each beam that the model's generation config asks for: of so many
    copies one is taken.
    """
    states, mask = model_kwargs["encoder_outputs"][0][::copies], model_kwargs.get("attention_mask")
    if ids.is_floating_point():
        return _encoded_features(states, mask if mask is None else mask[::copies])
    if states.shape[:2] != ids.shape:
        raise UncurseError(
            f"encoder_outputs has the shape {tuple(states.shape[:2])}, and the sources have {tuple(ids.shape)}"
        )
    mask = checked_mask(ids, mask if mask is None else mask[::copies])
    ends = eos_tokens(network, config)
    special = _special_tokens(network, config) | set(prompts.special[:, 0].tolist())
    positions, tokens = [], []
    for row, present_in_row in zip(ids.tolist(), mask.tolist(), strict=True):
        present = [place for place, one in enumerate(present_in_row) if one]
        found = [place for place in present if row[place] not in special]
        if network.config.model_type in LANGUAGE_TAGGED:  # the tag comes first, or after </s>
            found = found[1:] if row[present[-1]] in ends else found[:-1]
        positions.append(torch.tensor(found, dtype=torch.long))
        tokens.append(tuple(row[place] for place in found))
    padded = pad_sequence(positions, batch_first=True).to(states.device)
    return GenerateSources(EncoderMemory(states, mask.to(states.device), padded), tokens)


def _encoded_features(states: Tensor, mask: Tensor | None) -> GenerateSources:
    """Sources without tokens: every state counts as one."""
    if mask is None or mask.shape != states.shape[:2]:  # features of speech have other positions than states
        mask = torch.ones(states.shape[:2], dtype=torch.long, device=states.device)
    mask = checked_mask(mask, mask)
    places = torch.arange(states.shape[1], device=states.device).repeat(len(states), 1)
    positions = places.masked_fill(mask == 0, states.shape[1]).sort(dim=1).values.clamp(max=states.shape[1] - 1)
    return GenerateSources(EncoderMemory(states, mask, positions), [(0,) * int(row.sum()) for row in mask])


def check_sources(sources: Tensor) -> None:
    """Raise an `UncurseError` unless there are sources: token ids, [batch, positions], or features of them."""
    if not sources.is_floating_point() and (sources.ndim != 2 or bool((sources < 0).any())):
        raise UncurseError("the sources must be given as input_ids, so that their tokens can be counted")
    if sources.is_floating_point() and (sources.ndim != 3 or not bool(sources.isfinite().all())):
        raise UncurseError("features and embeddings must be finite numbers, [batch, positions, size]")
    if not len(sources):
        raise UncurseError("there are no sentences: input_ids has no rows")


def checked_mask(ids: Tensor, mask: Tensor | None) -> Tensor:
    """The attention mask of token ids, [batch, positions]: 1 for a token, 0 for padding; no row is all padding."""
    if mask is None:
        return torch.ones_like(ids)
    if mask.shape != ids.shape:
        raise UncurseError(
            f"attention_mask has the shape {tuple(mask.shape)}, and the sources have {tuple(ids.shape)}"
        )
    wrong = mask[(mask != 0) & (mask != 1)]
    if len(wrong):
        raise UncurseError(f"attention_mask = {wrong[0].item():g} is not allowed: each number must be 0 or 1")
    empty = (mask == 0).all(dim=1).nonzero()
    if len(empty):
        raise UncurseError(f"sentence {int(empty[0])} is all padding: its attention_mask has no 1")
    return mask.long()


def _check_ids(name: str, ids: Tensor) -> None:
    if ids.ndim != 2 or ids.is_floating_point():
        raise UncurseError(f"{name} must be token ids, [batch, length]")


def check_vocabulary(network: PreTrainedModel, name: str, ids: Tensor) -> None:
    """Raise an `UncurseError` if a token is none of the model's."""
    wrong = ids[(ids < 0) | (ids >= vocab_size_of(network))]
    if len(wrong):
        _check_known(network, f"token {int(wrong[0])} of {name}", int(wrong[0]))


def _check_known(network: PreTrainedModel, what: str, token: int) -> None:
    if not 0 <= token < vocab_size_of(network):
        raise UncurseError(f"{what} is none of the {vocab_size_of(network)} that this model knows")


def _special_tokens(network: PreTrainedModel, config: GenerationConfig) -> set[int]:
    named = (config.pad_token_id, config.bos_token_id, config.forced_bos_token_id, *eos_tokens(network, config))
    return {token for token in named if token is not None}
