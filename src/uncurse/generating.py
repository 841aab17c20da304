"""The search inside `generate` of Hugging Face's library.

`model.generate(**inputs, custom_generate=uncurse.beam_search, beam_size=20, length=1.1)` encodes sources, gathers
logits processors and limits as ever, and returns what it always returns; only the search is this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.utils.generic import ModelOutput

from uncurse.arrays import Floats, Ints
from uncurse.decoding import MOST, Decoding, Sentence, checked_count
from uncurse.generate_call import acting, check_able, limit_is_asked_for, limit_is_made_up
from uncurse.length import DEFAULT_LIMIT, FixedRatio, LengthPredictor, QuantileLimit, limits_of, room_above
from uncurse.model import Continuations, ModelError
from uncurse.models.huggingface import (
    Cohort,
    Cohorts,
    Memory,
    Readout,
    advance,
    attends,
    mean_states,
    positions_of,
    vocabulary_of,
)
from uncurse.models.huggingface_folder import end_of
from uncurse.rescoring import needs
from uncurse.result import Result
from uncurse.search import beam_search
from uncurse.translator import DEFAULT_LEVEL

TAGGED: Final = ("m2m_100", "mbart", "nllb-moe")  # families whose texts carry the tag of their language


@final
@dataclass
class BeamSearchOutput(ModelOutput):
    """What `generate` returns with `return_dict_in_generate=True`: n-best lists and what is proved of them."""

    sequences: Tensor  # [batch · n, length]
    sequences_scores: Tensor | None = None  # [batch · n] -inf where fewer than n finished
    optimality: tuple[str, ...] | None = None  # [batch] names of `Optimality`
    gaps: Tensor | None = None  # [batch] by how much a continuation could have beaten the n-th best
    steps: Tensor | None = None  # [batch]


class _Prompts(NamedTuple):
    """What the targets begin with."""

    tags: Tensor  # [batch, tags] start token, language and the like, which count nowhere
    words: Tensor  # [batch, words] the target prefix


class _Sources(NamedTuple):
    """The sentences as `generate` has encoded them."""

    memory: Memory
    pieces: list[tuple[int, ...]]  # of each sentence, without </s> and tags

    @property
    def lengths(self) -> Ints:
        """|x|, [batch]."""
        return np.array([len(pieces) for pieces in self.pieces])

    @property
    def features(self) -> Floats:
        """What a length predictor sees, [batch, hidden]."""
        return mean_states(self.memory)


@final
class _Prepared:
    """A step model for sentences that are encoded already and join all at once."""

    signature: Final = "generate"  # nobody sees it: no trace is kept

    def __init__(self, network: PreTrainedModel, first: Cohort, end: int, read: Readout) -> None:
        self._network = network
        self._first = first
        self._read = read
        self.vocabulary = vocabulary_of(network)
        self.begin = int(first.fed[0, -1])
        self.end = end
        self.attends = attends(network)

    def start(self, sources: Sequence[Sequence[int]]) -> Cohorts:
        """The sentences, in their order."""
        return Cohorts((self._first,))

    def step(self, state: Cohorts, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, Cohorts]:
        """Feed each row its token; the k best next tokens."""
        return advance(self._network, state, tokens, k, attention, self._read)


@torch.no_grad()
def decode(
    network: PreTrainedModel,
    input_ids: Tensor,
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
    **model_kwargs: Any,  # noqa: ANN401  (what the forwards of models take)
) -> Tensor | BeamSearchOutput:
    """Search for the sentences that `generate` has prepared.

    `length` is the number of target tokens to expect per source piece, or a predictor. A limit that comes with the
    call is the limit. The `max_length` that comes with a model is about its tables and not about these sentences;
    then the limit is no higher than in a `Translator`: the predictor's 0.8 quantile if it knows it, else 2x+10.
    """
    checked_count("beam_size", beam_size)
    checked_count("num_return_sequences", num_return_sequences)
    decoding = Decoding.of(beam_size, score, stop, num_return_sequences, slots)
    check_able(network, generation_config, logits_processor, stopping_criteria, decoding, model_kwargs)
    predictor = _predictor(length, decoding)
    prompts = _prompts(network, input_ids.to(network.device), generation_config)
    sources = _sources(network, inputs_tensor, prompts, generation_config, model_kwargs)
    limits = _limits(network, sources, prompts, predictor, generation_config, stopping_criteria)
    predicted: list[float | None] = [None] * len(limits)
    if predictor is not None:
        predicted = list(predictor.predict(sources.lengths, sources.features).tolist())
    sentences = [
        Sentence(pieces, limit, tuple(words), expected)
        for pieces, limit, words, expected in zip(
            sources.pieces, limits, prompts.words.tolist(), predicted, strict=True
        )
    ]
    processors: Any = acting(logits_processor, generation_config)

    def read(fed: Tensor, logits: Tensor) -> Tensor:
        """Processors see log-probabilities, as in the beam search of `generate`."""
        processed: Tensor = processors(fed, logits.log_softmax(dim=1))
        return processed

    model = _Prepared(network, Cohort.starting(sources.memory, prompts.tags), end_of(generation_config), read)
    try:
        results = beam_search(model, sentences, decoding, batch=len(sentences))
    except ModelError as error:
        names = ", ".join(type(each).__name__ for each in processors) or "none"
        raise ValueError(f"{error}; logits processors at work: {names}") from error
    return _output(results, torch.cat(prompts, dim=1), decoding.n_best, generation_config)


def _predictor(length: float | LengthPredictor | None, decoding: Decoding) -> LengthPredictor | None:
    needed = needs(decoding.score).prediction or decoding.stop.needs_prediction
    if length is None:
        if needed:
            raise ValueError(
                "this score or stopping rule needs an expected length: give length=1.1, say, for 1.1 target tokens"
                " per source piece, or length=predictor with a LengthPredictor that was fitted to the model"
            )
        return None
    number = isinstance(length, float | int | np.number) and not isinstance(length, bool)
    if isinstance(length, type) or not (number or isinstance(length, LengthPredictor)):
        raise ValueError(f"length = {length!r} is not allowed: give a number or a LengthPredictor")
    predictor = FixedRatio(length) if isinstance(length, float | int | np.number) else length
    if not needed and DEFAULT_LEVEL not in predictor.levels:
        raise ValueError("length is given, and neither the score nor the stopping rule asks for it")
    return predictor


def _prompts(network: PreTrainedModel, given: Tensor, config: GenerationConfig) -> _Prompts:
    """Tell the tags of prompts, [batch, length], from their words."""
    if given.shape[1] == 1 and config.forced_bos_token_id is not None:
        given = torch.cat((given, torch.full_like(given, config.forced_bos_token_id)), dim=1)
    special = torch.tensor(sorted(_special(config)), device=given.device)
    tags = 1
    if network.config.model_type in TAGGED and bool((given[:, 0] == end_of(config)).all()):
        tags = 2  # </s> and the language; where a language comes first there is no other
    while tags < given.shape[1] and bool(torch.isin(given[:, tags], special).all()):
        tags += 1
    return _Prompts(given[:, :tags], given[:, tags:])


def _special(config: GenerationConfig) -> set[int]:
    named = (config.pad_token_id, config.bos_token_id, config.forced_bos_token_id, end_of(config))
    return {each for each in named if each is not None}


def _sources(
    network: PreTrainedModel,
    ids: Tensor,
    prompts: _Prompts,
    config: GenerationConfig,
    model_kwargs: dict[str, Any],
) -> _Sources:
    """The encoder's states, and which of the source tokens are pieces."""
    if ids.ndim != 2 or ids.is_floating_point() or bool((ids < 0).any()):
        raise ValueError("the sources must be given as input_ids, so that their pieces can be counted")
    states, mask = model_kwargs["encoder_outputs"][0], model_kwargs.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    special = _special(config) | set(prompts.tags[:, 0].tolist())
    places, pieces = [], []
    for row, inside in zip(ids.tolist(), mask.tolist(), strict=True):
        present = [place for place, one in enumerate(inside) if one]
        found = [place for place in present if row[place] not in special]
        if network.config.model_type in TAGGED and present:  # the tag is the first token, or the one after </s>
            found = found[1:] if row[present[-1]] == end_of(config) else found[:-1]
        places.append(torch.tensor(found, dtype=torch.long))
        pieces.append(tuple(row[place] for place in found))
    padded = pad_sequence(places, batch_first=True).to(states.device)
    return _Sources(Memory(states, mask.to(states.device), padded), pieces)


def _limits(
    network: PreTrainedModel,
    sources: _Sources,
    prompts: _Prompts,
    predictor: LengthPredictor | None,
    config: GenerationConfig,
    criteria: StoppingCriteriaList,
) -> list[int]:
    """`R` of each sentence."""
    used = sum(part.shape[1] for part in prompts)
    most = MOST if limit_is_made_up(config) else criteria.max_length or config.max_length
    highest = most - used
    if (positions := positions_of(network, "decoder")) is not None:
        highest = min(highest, positions - used + 1)  # the last token is not fed
    if highest < 1:
        raise ValueError(f"max_length = {most} leaves no room: prompts have {used} tokens")
    if limit_is_asked_for(network, config, most):
        return [highest] * len(sources.pieces)
    known = predictor is not None and DEFAULT_LEVEL in predictor.levels
    limit = QuantileLimit(DEFAULT_LEVEL) if known else DEFAULT_LIMIT
    usual = limits_of(limit, predictor, sources.lengths, sources.features)
    fewest = max((config.min_length or 0) - used + 1, 0)  # min_length does not count </s>
    return [min(max(each - prompts.words.shape[1], room_above(fewest)), highest) for each in usual]


def _output(
    results: list[Result], prompts: Tensor, n_best: int, config: GenerationConfig
) -> Tensor | BeamSearchOutput:
    """N-best lists one below the other; where fewer than n finished, prompts alone."""
    rows, scores = [], []
    for prompt, result in zip(prompts.tolist(), results, strict=True):
        missing = n_best - len(result.hypotheses)
        rows += [prompt + list(each.tokens) for each in result.hypotheses] + [prompt] * missing
        scores += [each.score for each in result.hypotheses] + [-torch.inf] * missing
    padding = end_of(config) if config.pad_token_id is None else config.pad_token_id
    padded = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=padding)
    sequences = padded.to(prompts.device)
    if not config.return_dict_in_generate:
        return sequences
    return BeamSearchOutput(
        sequences,
        torch.tensor(scores, device=prompts.device),
        tuple(result.optimality.name for result in results),
        torch.tensor([result.gap for result in results], device=prompts.device),
        torch.tensor([result.steps for result in results], device=prompts.device),
    )
