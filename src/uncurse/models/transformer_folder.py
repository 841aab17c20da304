"""Marian Transformers on disk: folders of CTranslate2, of Argos Translate and of Hugging Face."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from uncurse.models.ctranslate2 import marian_weights, read_model, read_vocabulary
from uncurse.models.devices import device_of
from uncurse.models.marian import TENSORS, read_marian
from uncurse.models.opened import OpenModel
from uncurse.models.predictors import find_predictor
from uncurse.models.products import Numbers
from uncurse.models.transformer import Transformer, TransformerWeights
from uncurse.models.transformer_steps import TransformerStepModel
from uncurse.text.vocabulary import RankedPieces, SentencePieces, Vocabulary
from uncurse.translator import Pieces

SOURCES = ("source.spm", "sentencepiece.model")  # the source side's subword model
TARGET = "target.spm"


def ctranslate2_weights(folder: Path) -> Path | None:
    """The weights of a CTranslate2 folder, or of one that Argos Translate packed."""
    return next((path for path in (folder / "model.bin", folder / "model" / "model.bin") if path.exists()), None)


def load_ctranslate2(folder: Path, device: str, numbers: Numbers, target_lang: str | None) -> OpenModel:
    """Open a folder of CTranslate2."""
    path = ctranslate2_weights(folder)
    if path is None:
        raise ValueError(f"{folder} has no model.bin")
    vocabulary = Vocabulary(read_vocabulary(path.parent))
    weights = marian_weights(read_model(path), path, vocabulary.end)
    return _opened(folder, path, weights, vocabulary, device, numbers, target_lang)


def load_marian(folder: Path, device: str, numbers: Numbers, target_lang: str | None) -> OpenModel:
    """Open a folder of Hugging Face with a Marian model."""
    try:
        ids = json.loads((folder / "vocab.json").read_bytes())
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(ids))):
            raise ValueError("the ids are not those from 0 on")
    except FileNotFoundError:
        raise ValueError(f"{folder / 'vocab.json'} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / 'vocab.json'} is not a vocabulary: {error}") from error
    return _opened(folder, folder / TENSORS, read_marian(folder), Vocabulary(pieces), device, numbers, target_lang)


def _opened(
    folder: Path,
    path: Path,
    weights: TransformerWeights,
    vocabulary: Vocabulary,
    device: str,
    numbers: Numbers,
    target_lang: str | None,
) -> OpenModel:
    tag = _tag(folder, vocabulary, target_lang)
    places = [where / name for where in (folder, path.parent) for name in SOURCES]
    source_path = next((place for place in places if place.exists()), None)
    if source_path is None:
        raise ValueError(f"{folder} has no subword model: neither {' nor '.join(SOURCES)}")
    try:
        network = Transformer(weights, numbers, device_of(device))
    except KeyError as error:
        raise ValueError(f"{path} is damaged: it lacks {error}") from error
    embedded = network.vocabulary
    if embedded != len(vocabulary):
        raise ValueError(f"{folder}: {len(vocabulary)} pieces and {embedded} embeddings do not fit")
    source_model, target_path = source_path.read_bytes(), source_path.with_name(TARGET)
    target: Pieces = RankedPieces(vocabulary)
    digests = [path.read_bytes(), source_model]
    if target_path.exists():
        target = SentencePieces(target_path.read_bytes(), vocabulary)
        digests.append(target_path.read_bytes())
    pieces = "\n".join(vocabulary.pieces).encode()
    language = [] if target_lang is None else [target_lang.encode()]
    fingerprint = sha256(b"".join(sha256(part).digest() for part in (*digests, pieces, *language))).hexdigest()[
        :16
    ]
    model = TransformerStepModel(network, f"transformer-{fingerprint}-{numbers.value}", tag)
    source = SentencePieces(source_model, vocabulary)
    return OpenModel(model, source, target, fingerprint, find_predictor(folder, fingerprint))


def _tag(folder: Path, vocabulary: Vocabulary, target_lang: str | None) -> int | None:
    """The piece that asks a Marian model of several target languages for one of them, such as `>>fra<<`."""
    tags = {piece[2:-2]: index for index, piece in enumerate(vocabulary.pieces) if _TAG.fullmatch(piece)}
    if not tags:
        if target_lang is not None:
            raise ValueError(f"{folder} translates into one language and needs no --target-lang")
        return None
    if target_lang not in tags:
        known = ", ".join(sorted(tags))
        raise ValueError(f"{folder} translates into several languages: use --target-lang, one of {known}")
    return tags[target_lang]


_TAG: Final = re.compile(r">>[\w@-]+<<")
