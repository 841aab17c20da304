"""Any encoder-decoder of Hugging Face's library as a step model, by its own forward and its own cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutput

from uncurse.arrays import Floats, Ints
from uncurse.model import Continuations
from uncurse.models.tensors import doubles

Side = Literal["encoder", "decoder"]

# From the tokens fed so far, [rows, length], and logits, [rows, vocabulary], to log-probabilities.
Readout = Callable[[Tensor, Tensor], Tensor]


@final
@dataclass(frozen=True)
class Frame:
    """What a model expects around a source and before a target, as token ids; none of it counts as a piece."""

    before: tuple[int, ...]  # put before the source, for example a language tag
    after: tuple[int, ...]  # put after it, for example </s>
    prompt: tuple[int, ...]  # fed to the decoder first and not scored: a start token, perhaps a language tag
    end: int  # </s> of the target
    banned: tuple[int, ...] = ()  # never part of a target, for example padding

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("prompt = () is not allowed: a decoder needs a token to start from")


class Memory(NamedTuple):
    """What the rows of a cohort attend to; the same in every row of a sentence."""

    states: Tensor  # [rows, positions, hidden] of the encoder
    mask: Tensor  # [rows, positions] 1 where there is a source token, else 0
    pieces: Tensor  # [rows, most pieces] the positions of the source pieces; beyond them any


@final
@dataclass(frozen=True, eq=False)
class Cohort:
    """Sentences that joined together, so that their caches have one length: models count positions by it."""

    memory: Memory
    sentence: Ints  # [rows] which sentence a row belongs to
    fed: Tensor  # [rows, length] the tokens so far; before the first step the prompt, which is fed then
    cache: EncoderDecoderCache  # of the rows

    @staticmethod
    def starting(memory: Memory, prompt: Tensor) -> Cohort:
        """One row for each sentence, with prompts of one length, [rows, length]."""
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        return Cohort(memory, np.arange(len(prompt)), prompt, cache)

    def __len__(self) -> int:
        return len(self.sentence)

    def select(self, rows: Ints) -> Cohort:
        """The given rows."""
        chosen = torch.from_numpy(np.ascontiguousarray(rows)).to(self.fed.device)
        own = _selected(self.cache.self_attention_cache, chosen)
        if np.array_equal(sentence := self.sentence[rows], self.sentence):
            # Keys and values of a source are large, and while beams stay as wide as they are no row needs others.
            memory, shared = self.memory, _selected(self.cache.cross_attention_cache, None)
        else:
            memory = Memory(*(part[chosen] for part in self.memory))
            shared = _selected(self.cache.cross_attention_cache, chosen)
        return Cohort(memory, sentence, self.fed[chosen], EncoderDecoderCache(own, shared))


def _selected(cache: DynamicCache, rows: Tensor | None) -> DynamicCache:
    """A cache of some rows, or of all; a layer replaces its tensors and never changes them, so they are shared."""
    selected = DynamicCache()
    selected.layers = [copy(layer) for layer in cache.layers]
    if rows is not None:
        selected.batch_select_indices(rows)
    return selected


@final
@dataclass(frozen=True, eq=False)
class Cohorts:
    """The state of a batch: cohorts one after the other, each run by a forward of its own."""

    cohorts: tuple[Cohort, ...]

    def select(self, rows: Ints) -> Self:
        """The given rows; cohorts without any are let go."""
        ends = np.cumsum([len(cohort) for cohort in self.cohorts])
        home = np.searchsorted(ends, rows, side="right")  # [rows] the cohort of each
        if (np.diff(home) < 0).any():
            raise ValueError("rows cannot be selected: sentences must stay in the order in which they joined")
        staying = np.unique(home).tolist()
        parts = [rows[home == place] - (ends[place] - len(self.cohorts[place])) for place in staying]
        return type(self)(
            tuple(self.cohorts[place].select(part) for place, part in zip(staying, parts, strict=True))
        )

    def append(self, other: Self) -> Self:
        """These cohorts and then the others."""
        return type(self)(self.cohorts + other.cohorts)


@final
@dataclass
class _Encoded(BaseModelOutput):
    """What an encoder has found; models of several experts also ask which of them it chose."""

    router_logits: Tensor | None = None


def advance(
    network: PreTrainedModel, state: Cohorts, tokens: Ints, k: int, attention: bool, read: Readout
) -> tuple[Continuations, Cohorts]:
    """Feed each row its token, or its prompt if it has not begun; caches of the given state are used up."""
    after, found = [], []
    first = 0
    for cohort in state.cohorts:
        new = torch.from_numpy(np.ascontiguousarray(tokens[first : first + len(cohort)]))[:, None]
        first += len(cohort)
        begun = cohort.cache.get_seq_length() > 0
        fed = torch.cat((cohort.fed, new.to(cohort.fed.device)), dim=1) if begun else cohort.fed
        check_positions(network, "decoder", fed.shape[1])
        states: Any = cohort.memory.states
        output = network(
            encoder_outputs=_Encoded(last_hidden_state=states),
            attention_mask=cohort.memory.mask,
            decoder_input_ids=fed[:, -1:] if begun else fed,
            past_key_values=cohort.cache,
            use_cache=True,
            output_attentions=attention,
        )
        log_probs = read(fed, output.logits[:, -1].float())
        values, ids = log_probs.topk(min(k, log_probs.shape[1]), dim=1)
        weights = None
        if attention:
            heads = output.cross_attentions[-1][:, :, -1].float()  # [rows, heads, positions]
            weights = doubles(heads.mean(dim=1).gather(1, cohort.memory.pieces))
        found.append(Continuations(ids.cpu().numpy(), doubles(values), weights))
        after.append(Cohort(cohort.memory, cohort.sentence, fed, cohort.cache))
    return _together(found), Cohorts(tuple(after))


def _together(parts: list[Continuations]) -> Continuations:
    weights = [part.attention for part in parts if part.attention is not None]
    widest = max((each.shape[1] for each in weights), default=0)
    padded = [np.pad(each, ((0, 0), (0, widest - each.shape[1]))) for each in weights]
    return Continuations(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.log_probs for part in parts]),
        np.concatenate(padded) if padded else None,
    )


def check_positions(network: PreTrainedModel, side: Side, length: int) -> None:
    """Raise a `ValueError` if a text has more tokens than the model has positions."""
    most, what = positions_of(network, side), "a source" if side == "encoder" else "an output"
    if most is not None and length > most:
        raise ValueError(f"{what} of {length} tokens is too long: this model has {most} positions; give a limit")


def positions_of(network: PreTrainedModel, side: Side) -> int | None:
    """How many tokens a text can have; None if it has no end, as with relative positions."""
    config = getattr(network.config, side, network.config)  # two models that were put together have one each
    for name in (f"max_{side}_position_embeddings", "max_position_embeddings"):
        most: int | None = getattr(config, name, None)
        if most is not None and (type(most) is not int or most < 1):
            raise ValueError(f"{name} = {most!r} is not allowed: it must be a whole number")
        if most is not None:
            return most
    return None


def vocabulary_of(network: PreTrainedModel) -> int:
    """How many target tokens there are."""
    output: Any = network.get_output_embeddings  # without types
    return int(output().weight.shape[0])


def check_tokens(network: PreTrainedModel, frame: Frame, pieces: Iterable[int]) -> None:
    """Raise a `ValueError` if a token of the frame, or one that a tokenizer knows, is none of the network's."""
    inputs: Any = network.get_input_embeddings()
    sources, targets = int(inputs.weight.shape[0]), vocabulary_of(network)
    given = (
        (sources, (*frame.before, *frame.after, *frame.prompt, *pieces)),
        (targets, (frame.end, *frame.banned)),
    )
    for known, tokens in given:
        for token in tokens:
            if type(token) is not int or not 0 <= token < known:
                raise ValueError(f"token {token!r} is none of the {known} that this model knows")


def attends(network: PreTrainedModel) -> bool:
    """Whether a network can show its attention: only the plain implementation keeps the weights."""
    return bool(network.config._attn_implementation == "eager")


def mean_states(memory: Memory) -> Floats:
    """The mean of the encoder's states over all tokens of each source, [sources, hidden]."""
    inside = doubles(memory.mask)[:, :, None]
    mean: Floats = (doubles(memory.states) * inside).sum(axis=1) / inside.sum(axis=1)
    return mean


@final
class HuggingFaceStepModel:
    """What a search asks of a network, for sources framed in one way."""

    def __init__(self, network: PreTrainedModel, frame: Frame, fingerprint: str | None = None) -> None:
        self._network: Any = network.train(mode=False)
        self._frame = frame
        self._banned = torch.tensor(frame.banned, dtype=torch.long, device=network.device)
        self.signature = f"{network.config.model_type}-{fingerprint or fingerprint_of(network, str(frame))}"
        self.vocabulary = vocabulary_of(network)
        self.begin = frame.prompt[-1]
        self.end = frame.end
        self.attends = attends(network)
        places, framing = positions_of(network, "encoder"), len(frame.before) + len(frame.after)
        self.longest_source = None if places is None else places - framing
        places = positions_of(network, "decoder")
        self.longest_output = None if places is None else places - len(frame.prompt) + 1

    @torch.inference_mode()
    def start(self, sources: Sequence[Sequence[int]]) -> Cohorts:
        """Encode sources."""
        prompt = torch.tensor(self._frame.prompt, device=self._network.device)
        return Cohorts((Cohort.starting(self._encoded(sources), prompt.repeat(len(sources), 1)),))

    @torch.inference_mode()
    def step(self, state: Cohorts, tokens: Ints, k: int, attention: bool) -> tuple[Continuations, Cohorts]:
        """Feed each row its token; the k best next tokens."""
        return advance(self._network, state, tokens, k, attention, self._read)

    @torch.inference_mode()
    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states of each source, [sources, hidden]."""
        return mean_states(self._encoded(sources))

    def _read(self, fed: Tensor, logits: Tensor) -> Tensor:
        """Log-probabilities among the tokens that can be part of a target."""
        return logits.index_fill(1, self._banned, -torch.inf).log_softmax(dim=1)

    def _encoded(self, sources: Sequence[Sequence[int]]) -> Memory:
        frame, network = self._frame, self._network
        framed = [torch.tensor((*frame.before, *source, *frame.after), dtype=torch.long) for source in sources]
        check_positions(network, "encoder", max(map(len, framed)))
        ids = pad_sequence(framed, batch_first=True)
        lengths = torch.tensor([len(each) for each in framed])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        ids, mask = ids.to(network.device), mask.to(network.device)
        most = max(map(len, sources))
        pieces = torch.arange(len(frame.before), len(frame.before) + most, device=network.device)
        states = network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return Memory(states, mask, pieces.repeat(len(sources), 1))


def fingerprint_of(network: PreTrainedModel, *facts: str) -> str:
    """Identify weights by a few numbers of every tensor: weights that differ are hardly alike in all of them."""
    known = network.config.to_dict().items()
    config = {name: value for name, value in known if name not in ("transformers_version", "_name_or_path")}
    digest = sha256("\n".join((json.dumps(config, sort_keys=True, default=str), *facts)).encode())
    for name, tensor in sorted(network.state_dict().items()):
        sample = tensor.flatten()[:: max(1, tensor.numel() // 64)]
        digest.update(f"{name} {tuple(tensor.shape)}".encode() + doubles(sample).tobytes())
    return digest.hexdigest()[:16]
