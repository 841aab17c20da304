"""Marian models in folders: a vocabulary file beside one or two SentencePiece models."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from uncurse.errors import UncurseError
from uncurse.models.download import check_files
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.special_tokens import marian_tokens
from uncurse.models.transformer.folder_content import FolderContent
from uncurse.models.transformer.huggingface_file import read_marian, weights_file
from uncurse.models.transformer.weights import EMBEDDINGS, TransformerWeights
from uncurse.storage.strict_json import read_json
from uncurse.text.marian_tokenizer import RankedTokenizer, Vocabulary, read_marian_tokenizer
from uncurse.text.tokenizer import Tokenizer

SOURCE_TOKENIZERS: Final = ("source.spm", "sentencepiece.model")  # of Hugging Face and of Argos Translate
TARGET_TOKENIZER: Final = "target.spm"
LANGUAGE_TOKEN: Final = re.compile(r">>[\w@-]+<<")


def read_huggingface_marian(folder: Path, options: ModelOptions) -> FolderContent:
    """Read a folder of Hugging Face."""
    path = folder / "vocab.json"
    if not path.exists():
        raise UncurseError(f"{path} is missing")
    ids = read_json(path)
    if not isinstance(ids, dict) or any(type(index) is not int for index in ids.values()):
        raise UncurseError(f"{path} is not a vocabulary: it must map every token to an id")
    if sorted(ids.values()) != list(range(len(ids))):
        raise UncurseError(f"{path} is not a vocabulary: the ids must be 0, 1, 2, …")
    weights, vocabulary = read_marian(folder), Vocabulary(sorted(ids, key=ids.__getitem__))
    digests = check_files(folder, [weights_file(folder)])
    return marian_content((folder,), digests, weights, vocabulary, options)


def marian_content(
    folders: Sequence[Path],
    digests: list[bytes],
    weights: TransformerWeights,
    vocabulary: Vocabulary,
    options: ModelOptions,
) -> FolderContent:
    """A model with the tokenizers that are in one of the folders; the digests are those of its weights."""
    folder = folders[0]
    if options.source_lang is not None:
        raise UncurseError(
            f"source_lang = {options.source_lang!r} is not allowed: a Marian model does not take it"
        )
    paths = _find_tokenizers(folders)
    if (rows := len(weights.matrices[EMBEDDINGS].values)) != len(vocabulary):
        raise UncurseError(
            f"{folder}: the vocabulary has {len(vocabulary)} tokens and the model {rows} embeddings"
        )
    language = _language_token(folder, vocabulary, options.target_lang)
    tokenizers: list[Tokenizer] = [read_marian_tokenizer(each, vocabulary) for each in paths]
    return FolderContent(
        weights=weights,
        special=marian_tokens(weights.eos, rows, language),
        vocabulary=vocabulary,
        source=tokenizers[0],
        target=tokenizers[1] if len(tokenizers) == 2 else RankedTokenizer(vocabulary),
        digests=[*digests, *check_files(folder, paths)],
        facts=() if options.target_lang is None else (options.target_lang,),
    )


def _find_tokenizers(folders: Sequence[Path]) -> list[Path]:
    """The SentencePiece model of the source and, if there is one beside it, that of the target."""
    paths = [folder / name for folder in folders for name in SOURCE_TOKENIZERS]
    source = next((path for path in paths if path.exists()), None)
    if source is None:
        raise UncurseError(f"{folders[0]} has no tokenizer: neither {' nor '.join(SOURCE_TOKENIZERS)}")
    return [path for path in (source, source.with_name(TARGET_TOKENIZER)) if path.exists()]


def _language_token(folder: Path, vocabulary: Vocabulary, target_lang: str | None) -> int | None:
    """The source token that asks a multilingual model for a target language, such as `>>fra<<`."""
    languages = {
        token[2:-2]: index for index, token in enumerate(vocabulary.tokens) if LANGUAGE_TOKEN.fullmatch(token)
    }
    if not languages:
        if target_lang is not None:
            raise UncurseError(f"{folder} translates into one language and takes no target_lang")
        return None
    if target_lang not in languages:
        known = ", ".join(sorted(languages))
        raise UncurseError(f"{folder} translates into several languages: give target_lang, one of {known}")
    return languages[target_lang]
