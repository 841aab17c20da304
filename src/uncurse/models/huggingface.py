"""Any encoder-decoder of Hugging Face's library as a step model, by its own forward and its own cache."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from uncurse.arrays import Floats, Ints
from uncurse.model import Continuations
from uncurse.models.devices import device_of
from uncurse.models.opened import OpenModel
from uncurse.models.predictors import find_predictor
from uncurse.registry import nearest

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
        check_positions(network, "an output", fed.shape[1])
        output = network(
            encoder_outputs=(cohort.memory.states,),
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
            weights = _doubles(heads.mean(dim=1).gather(1, cohort.memory.pieces))
        found.append(Continuations(ids.cpu().numpy(), _doubles(values), weights))
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


def check_positions(network: PreTrainedModel, what: str, length: int) -> None:
    """Raise a `ValueError` if a text has more tokens than the model has positions."""
    most = positions_of(network)
    if most is not None and length > most:
        raise ValueError(f"{what} of {length} tokens is too long: this model has {most} positions; give a limit")


def positions_of(network: PreTrainedModel) -> int | None:
    """How many tokens a text can have; None if it has no end, as with relative positions."""
    most: int | None = getattr(network.config, "max_position_embeddings", None)
    return most


def vocabulary_of(network: PreTrainedModel) -> int:
    """How many target tokens there are."""
    output: Any = network.get_output_embeddings  # without types
    return int(output().weight.shape[0])


def attends(network: PreTrainedModel) -> bool:
    """Whether a network can show its attention: only the plain implementation keeps the weights."""
    return bool(network.config._attn_implementation == "eager")


def mean_states(memory: Memory) -> Floats:
    """The mean of the encoder's states over all tokens of each source, [sources, hidden]."""
    inside = _doubles(memory.mask)[:, :, None]
    mean: Floats = (_doubles(memory.states) * inside).sum(axis=1) / inside.sum(axis=1)
    return mean


def _doubles(values: Tensor) -> Floats:
    doubles: Floats = values.cpu().double().numpy()
    return doubles


@final
class HuggingFaceStepModel:
    """What a search asks of a network, for sources framed in one way."""

    def __init__(self, network: PreTrainedModel, frame: Frame, fingerprint: str | None = None) -> None:
        self._network: Any = network.train(mode=False)
        self._frame = frame
        self._banned = torch.tensor(frame.banned, dtype=torch.long, device=network.device)
        self.signature = f"{network.config.model_type}-{fingerprint or _fingerprint(network, str(frame))}"
        self.vocabulary = vocabulary_of(network)
        self.begin = frame.prompt[-1]
        self.end = frame.end
        self.attends = attends(network)
        self.positions = positions_of(network)  # the most tokens of a framed source, or of prompt and output

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
        check_positions(network, "a source", max(map(len, framed)))
        ids = pad_sequence(framed, batch_first=True)
        lengths = torch.tensor([len(each) for each in framed])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        ids, mask = ids.to(network.device), mask.to(network.device)
        most = max(map(len, sources))
        pieces = torch.arange(len(frame.before), len(frame.before) + most, device=network.device)
        states = network.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        return Memory(states, mask, pieces.repeat(len(sources), 1))


def _fingerprint(network: PreTrainedModel, *facts: str) -> str:
    """Identify weights by a few numbers of every tensor: weights that differ are hardly alike in all of them."""
    config = {name: value for name, value in network.config.to_dict().items() if name != "transformers_version"}
    digest = sha256("\n".join((json.dumps(config, sort_keys=True, default=str), *facts)).encode())
    for name, tensor in sorted(network.state_dict().items()):
        sample = tensor.flatten()[:: max(1, tensor.numel() // 64)]
        digest.update(f"{name} {tuple(tensor.shape)}".encode() + _doubles(sample).tobytes())
    return digest.hexdigest()[:16]


@final
class TokenizerPieces:
    """One side of a tokenizer as a subword model."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, target: bool) -> None:
        self._tokenizer: Any = tokenizer
        self._side = "text_target" if target else "text"

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line, without `</s>` and tags."""
        if not lines:
            return []
        given = {self._side: list(lines)}
        pieces: list[list[int]] = self._tokenizer(**given, add_special_tokens=False, verbose=False)["input_ids"]
        return pieces

    def decode(self, pieces: Sequence[int]) -> str:
        """The line that pieces spell, without `</s>` and tags."""
        text: str = self._tokenizer.decode(list(pieces), skip_special_tokens=True)
        return text


def load_huggingface(
    name: str | Path, device: str = "cpu", source_lang: str | None = None, target_lang: str | None = None
) -> OpenModel:
    """A sequence-to-sequence model from a folder, or from the hub by name; models of many languages need both.

    Of the model's settings for `generate` those that name tokens are taken: start, end, a forced first token, and
    tokens that are never said. Beam width, lengths and penalties are for the search to say.
    """
    where = device_of(device)
    try:
        if not AutoConfig.from_pretrained(name).is_encoder_decoder:
            raise ValueError("it is not an encoder-decoder")
        tokenizer: Any = AutoTokenizer.from_pretrained(name)
        network: Any = AutoModelForSeq2SeqLM.from_pretrained(
            name,
            dtype=torch.float32,
            attn_implementation="eager",  # as quick as others for one token at a time, and it shows attention
        )
    except (OSError, ValueError, KeyError) as error:
        place = "" if Path(name).is_dir() else "it is not a folder here, and from the hub it cannot be had: "
        raise ValueError(
            f"{name} cannot be loaded as a sequence-to-sequence model: {place}{_reason(error)}"
        ) from error
    frame = frame_of(tokenizer, network.generation_config, source_lang, target_lang)
    fingerprint = _fingerprint(network, str(frame), str(sorted(tokenizer.get_vocab().items())))
    return OpenModel(
        HuggingFaceStepModel(network.to(where), frame, fingerprint),
        TokenizerPieces(tokenizer, target=False),
        TokenizerPieces(tokenizer, target=True),
        fingerprint,
        find_predictor(Path(name), fingerprint),
    )


def _reason(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def frame_of(
    tokenizer: PreTrainedTokenizerBase, config: GenerationConfig, source_lang: str | None, target_lang: str | None
) -> Frame:
    """What a tokenizer puts around a source, and what the settings for `generate` say of the target."""
    languages = languages_of(tokenizer)
    one_sided = isinstance(tokenizer, MarianTokenizer)  # the source says into which language, if there are several
    known = {"source_lang": {} if one_sided else languages, "target_lang": languages}
    for option, language in (("source_lang", source_lang), ("target_lang", target_lang)):
        if language is None and languages and not one_sided:
            raise ValueError(f"{option} is needed: this model knows {len(languages)} languages")
        if language is not None and language not in known[option]:
            raise ValueError(
                f"{option} = {language!r} is not known to this model{nearest(language, list(known[option]))}"
            )
    any_tokenizer: Any = tokenizer
    if languages and not one_sided:
        any_tokenizer.src_lang, any_tokenizer.tgt_lang = source_lang, target_lang
    plain, framed = (any_tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    at = next(place for place in range(len(framed) + 1) if framed[place : place + len(plain)] == plain)
    tag = () if target_lang is None else (languages[target_lang],)
    before = (*(tag if one_sided else ()), *framed[:at])
    end = end_of(config)
    banned = {config.pad_token_id, *(config.suppress_tokens or ())}
    banned |= {words[0] for words in config.bad_words_ids or () if len(words) == 1}
    prompt = _prompt(config, languages, () if one_sided else tag)
    return Frame(before, tuple(framed[at + len(plain) :]), prompt, end, tuple(sorted(banned - {None, end})))


def languages_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The languages a tokenizer has tags for, and the tags."""
    any_tokenizer: Any = tokenizer
    if isinstance(tokenizer, M2M100Tokenizer | MBartTokenizer | MBart50Tokenizer):
        return dict(any_tokenizer.lang_code_to_id)
    tags: list[str] = []
    if isinstance(tokenizer, MarianTokenizer):
        tags = any_tokenizer.supported_language_codes
    elif isinstance(tokenizer, NllbTokenizer):
        tags = [
            token for token in any_tokenizer.all_special_tokens if re.fullmatch("[a-z]{3}_[A-Z][a-z]{3}", token)
        ]
    return {tag.strip("<>"): any_tokenizer.convert_tokens_to_ids(tag) for tag in tags}


def end_of(config: GenerationConfig) -> int:
    """The one token that ends a target; several are an error."""
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if len(ends) != 1 or ends[0] is None:
        raise ValueError(
            f"eos_token_id = {config.eos_token_id} is not allowed: a search knows one end of sequence"
        )
    return int(ends[0])


def _prompt(config: GenerationConfig, languages: dict[str, int], tag: tuple[int, ...]) -> tuple[int, ...]:
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    if tag and (start is None or start in languages.values()):  # mBART starts with the language itself
        return tag
    if start is None:
        raise ValueError("decoder_start_token_id is needed: the model does not say how a target starts")
    forced = config.forced_bos_token_id
    return (start, *(tag or (() if forced is None else (forced,))))
