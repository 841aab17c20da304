"""Which special tokens a model of transformers expects, by its tokenizer and its generation config."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from transformers import (
    GenerationConfig,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PreTrainedTokenizerBase,
)

from uncurse.errors import UncurseError, nearest
from uncurse.models.special_tokens import SpecialTokens

_NLLB_LANGUAGE: Final = re.compile("[a-z]{3}_[A-Z][a-z]{3}")  # eng_Latn


def special_tokens_of(
    tokenizer: PreTrainedTokenizerBase, config: GenerationConfig, source_lang: str | None, target_lang: str | None
) -> SpecialTokens:
    """What the tokenizer adds to a source, and what the generation config says about the output."""
    languages = languages_of(tokenizer)
    tag_in_source = isinstance(
        tokenizer, MarianTokenizer
    )  # the source names the target language, and nothing its own
    _check_languages(languages, tag_in_source, source_lang, target_lang)
    any_tokenizer: Any = tokenizer
    if languages and not tag_in_source:
        any_tokenizer.src_lang, any_tokenizer.tgt_lang = source_lang, target_lang
    tag = () if target_lang is None else (languages[target_lang],)
    prefix, suffix = _added_by(any_tokenizer)
    eos = eos_of(config)
    return SpecialTokens(
        source_prefix=(*(tag if tag_in_source else ()), *prefix),
        source_suffix=suffix,
        decoder_prompt=_decoder_prompt(config, languages, () if tag_in_source else tag),
        eos=eos,
        suppressed=tuple(sorted(never_output(config) - {eos})),
    )


def languages_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The languages that a tokenizer has tags for, and the tokens of the tags."""
    any_tokenizer: Any = tokenizer
    if isinstance(tokenizer, M2M100Tokenizer | MBartTokenizer | MBart50Tokenizer):
        return dict(any_tokenizer.lang_code_to_id)
    tags: list[str] = []
    if isinstance(tokenizer, MarianTokenizer):
        tags = any_tokenizer.supported_language_codes
    elif isinstance(tokenizer, NllbTokenizer):
        tags = [token for token in any_tokenizer.all_special_tokens if _NLLB_LANGUAGE.fullmatch(token)]
    return {tag.strip("<>"): any_tokenizer.convert_tokens_to_ids(tag) for tag in tags}


def eos_of(config: GenerationConfig) -> int:
    """The one token that ends an output; several are an error."""
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    if len(ends) != 1 or type(ends[0]) is not int:
        raise UncurseError(
            f"eos_token_id = {config.eos_token_id} is not allowed: an encoder-decoder needs exactly one token"
        )
    return ends[0]


def never_output(config: GenerationConfig) -> set[int]:
    """The tokens that stand in no output: padding, and what the generation config suppresses."""
    words = (tokens[0] for tokens in config.bad_words_ids or () if len(tokens) == 1)
    return {config.pad_token_id, *(config.suppress_tokens or ()), *words} - {None}


def check_tokens(sources: int, targets: int, special: SpecialTokens, vocabulary: Iterable[int]) -> None:
    """Raise an `UncurseError` if a token has no embedding: a special one, or one of the tokenizer's.

    A model has so many embeddings of source tokens and so many target tokens.
    """
    fed = (*special.source_prefix, *special.source_suffix, *special.decoder_prompt, *vocabulary)
    for size, tokens in ((sources, fed), (targets, (special.eos, *special.suppressed))):
        for token in tokens:
            if type(token) is not int or not 0 <= token < size:
                raise UncurseError(f"token {token!r} is none of the {size} that this model knows")


def _check_languages(
    languages: dict[str, int], tag_in_source: bool, source_lang: str | None, target_lang: str | None
) -> None:
    known = {"source_lang": {} if tag_in_source else languages, "target_lang": languages}
    for option, language in (("source_lang", source_lang), ("target_lang", target_lang)):
        if language is None and languages and not tag_in_source:
            raise UncurseError(f"{option} is needed: this model knows {len(languages)} languages")
        if language is not None and language not in known[option]:
            raise UncurseError(
                f"{option} = {language!r} is not known to this model{nearest(language, list(known[option]))}"
            )


def _added_by(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ANN401  (families share no type)
    """What a tokenizer puts before a text and after it."""
    plain, framed = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True))
    if not plain:
        raise UncurseError("its tokenizer has no token for the letter a")
    starts = [place for place in range(len(framed) + 1) if framed[place : place + len(plain)] == plain]
    if not starts:
        raise UncurseError("its tokenizer changes the tokens of a text when it adds special tokens")
    return tuple(framed[: starts[0]]), tuple(framed[starts[0] + len(plain) :])


def _decoder_prompt(config: GenerationConfig, languages: dict[str, int], tag: tuple[int, ...]) -> tuple[int, ...]:
    start = config.decoder_start_token_id
    if tag and (start is None or start in languages.values()):  # mBART starts with the language itself
        return tag
    if start is None and (start := config.bos_token_id) is None:
        raise UncurseError("decoder_start_token_id is needed: the model does not say how an output starts")
    forced = config.forced_bos_token_id
    return (start, *(tag or (() if forced is None else (forced,))))
