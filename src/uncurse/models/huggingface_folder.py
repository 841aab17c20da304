"""Folders and names of Hugging Face: which tokens frame a source and an output, and how lines become pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from logging import CRITICAL
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch
from huggingface_hub.utils import logging as hub_logging
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from uncurse.jsonfile import read_json
from uncurse.models.devices import device_of
from uncurse.models.huggingface import Frame, HuggingFaceStepModel, check_tokens, fingerprint_of
from uncurse.models.opened import OpenModel
from uncurse.models.predictors import find_predictor
from uncurse.registry import nearest

MOST_LAYERS: Final = 1000
TOKENIZERS: Final = ("tokenizer*", "*.model", "*.spm", "vocab*")
SLACK: Final = 1 << 24  # numbers that have a formula, such as positions, are not stored


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
        tokenizer, network = _read(name)
    except Exception as error:  # settings and files that others made can fail in any way
        place = "" if Path(name).is_dir() else "it is not a folder here, and from the hub it cannot be had: "
        raise ValueError(
            f"{name} cannot be loaded as a sequence-to-sequence model: {place}{_reason(error)}"
        ) from error
    try:
        frame = frame_of(tokenizer, network.generation_config, source_lang, target_lang)
        check_tokens(network, frame, tokenizer.get_vocab().values())
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{name} does not say how a text is framed: {_reason(error)}") from error
    fingerprint = fingerprint_of(network, str(frame), str(sorted(tokenizer.get_vocab().items())))
    model = HuggingFaceStepModel(network.to(where), frame, fingerprint)
    try:
        model.step(model.start([(frame.end,)]), np.array([model.begin]), 1, attention=model.attends)
    except Exception as error:  # settings that nothing looks at before the first word
        raise ValueError(f"{name} cannot be run: {_reason(error)}") from error
    return OpenModel(
        model,
        TokenizerPieces(tokenizer, target=False),
        TokenizerPieces(tokenizer, target=True),
        fingerprint,
        partial(find_predictor, Path(name), fingerprint),
    )


def _read(name: str | Path) -> tuple[Any, Any]:
    """Tokenizer and network; no code that comes with a model is run, and no pickle is opened."""
    with _silence():
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if not config.is_encoder_decoder:
            raise ValueError("it is not an encoder-decoder")
        if Path(name).is_dir():
            _check_proportions(Path(name), config)
            if not any(path for pattern in TOKENIZERS for path in Path(name).glob(pattern)):
                raise ValueError("it has no tokenizer: save that of the model beside it")  # else one is made up
        tokenizer: Any = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        loaded: Any = AutoModelForSeq2SeqLM.from_pretrained(
            name,
            dtype=torch.float32,
            attn_implementation="eager",  # as quick as others for one token at a time, and it shows attention
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    network, report = loaded
    if missing := sorted(report["missing_keys"]):  # else they would be drawn by chance
        raise ValueError(f"its weights lack {missing[0]!r}")
    for weight_name, weight in network.state_dict().items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise ValueError(f"its {weight_name!r} has a number that is not finite")
    return tokenizer, network


@contextmanager
def _silence() -> Iterator[None]:
    """Without the reports of `transformers` and the hub: what is wrong is told in one line, by the error."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    of_the_hub = hub_logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    hub_logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(of_the_hub)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _check_proportions(folder: Path, config: PreTrainedConfig) -> None:
    """Refuse settings that ask for more layers or numbers than the weights of a folder can hold."""
    _check_layers(read_json(folder / "config.json"))
    with torch.device("meta"):
        network: Any = AutoModelForSeq2SeqLM.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    wanted = sum(parameter.numel() for parameter in network.parameters())
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not stored:
        raise ValueError("it has no weights in the format of safetensors")
    if wanted > stored + SLACK:  # a number has at least a byte
        raise ValueError(f"its settings want {wanted} numbers, and its weights have {stored} bytes")


def _check_layers(config: object) -> None:
    if isinstance(config, dict):
        for name, value in config.items():
            if name.endswith("layers") and isinstance(value, int | float) and value > MOST_LAYERS:
                raise ValueError(f"its settings want {value} {name}")
            _check_layers(value)


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
    if not plain:
        raise ValueError("its tokenizer knows no pieces")
    inside = [place for place in range(len(framed) + 1) if framed[place : place + len(plain)] == plain]
    if not inside:
        raise ValueError("its tokenizer changes the pieces of a text when it frames it")
    at = inside[0]
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
    if len(ends) != 1 or type(ends[0]) is not int:
        raise ValueError(
            f"eos_token_id = {config.eos_token_id} is not allowed: a search knows one end of sequence"
        )
    return ends[0]


def _prompt(config: GenerationConfig, languages: dict[str, int], tag: tuple[int, ...]) -> tuple[int, ...]:
    start = config.decoder_start_token_id
    if tag and (start is None or start in languages.values()):  # mBART starts with the language itself
        return tag
    if start is None and (start := config.bos_token_id) is None:
        raise ValueError("decoder_start_token_id is needed: the model does not say how a target starts")
    forced = config.forced_bos_token_id
    return (start, *(tag or (() if forced is None else (forced,))))
