"""Marian Transformers on disk: folders of CTranslate2, of Argos Translate and of Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import torch

from uncurse.catalogue import check_noted
from uncurse.jsonfile import read_json
from uncurse.models.ctranslate2 import VOCABULARY, marian_weights, read_model, read_vocabulary
from uncurse.models.devices import device_of
from uncurse.models.marian import TENSORS, read_marian
from uncurse.models.opened import OpenModel
from uncurse.models.predictors import find_predictor
from uncurse.models.products import Numbers, written
from uncurse.models.transformer import Transformer
from uncurse.models.transformer_steps import TransformerStepModel
from uncurse.models.transformer_weights import TransformerWeights
from uncurse.text.vocabulary import RankedPieces, Vocabulary, read_pieces
from uncurse.translator import Pieces

SOURCES: Final = ("source.spm", "sentencepiece.model")  # the source side's subword model
TARGET: Final = "target.spm"


def ctranslate2_weights(folder: Path) -> Path | None:
    """The weights of a CTranslate2 folder, or of one that Argos Translate packed."""
    return next((path for path in (folder / "model.bin", folder / "model" / "model.bin") if path.exists()), None)


def load_ctranslate2(
    folder: Path, device: str, numbers: Numbers, target_lang: str | None, without_script: str | None
) -> OpenModel:
    """Open a folder of CTranslate2; if it was fetched, its files must be those that were."""
    path = ctranslate2_weights(folder)
    if path is None:
        raise ValueError(f"{folder} has no model.bin")
    digests = check_noted(folder, [path])
    check_noted(folder, [each for each in (path.with_name(VOCABULARY),) if each.exists()])
    stored, vocabulary = read_model(path), read_vocabulary(path.parent)
    weights = marian_weights(stored, path, vocabulary.end)  # another family is no matter of subword models
    source = _source_model((folder, path.parent))
    digests += check_noted(folder, _subword_models(source))
    where = device_of(device)
    return _opened(folder, source, weights, vocabulary, digests, where, numbers, target_lang, without_script)


def load_marian(
    folder: Path, device: str, numbers: Numbers, target_lang: str | None, without_script: str | None
) -> OpenModel:
    """Open a folder of Hugging Face with a Marian model."""
    path = folder / "vocab.json"
    if not path.exists():
        raise ValueError(f"{path} is missing")
    ids = read_json(path)
    if not isinstance(ids, dict) or any(type(index) is not int for index in ids.values()):
        raise ValueError(f"{path} is not a vocabulary: it must give every piece a number")
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"{path} is not a vocabulary: the ids are not those from 0 on")
    weights, vocabulary = read_marian(folder), Vocabulary(sorted(ids, key=ids.__getitem__))
    source = _source_model((folder,))
    digests = check_noted(folder, [folder / TENSORS, *_subword_models(source)])
    where = device_of(device)
    return _opened(folder, source, weights, vocabulary, digests, where, numbers, target_lang, without_script)


def _source_model(folders: Sequence[Path]) -> Path:
    places = [folder / name for folder in folders for name in SOURCES]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise ValueError(f"{folders[0]} has no subword model: neither {' nor '.join(SOURCES)}")
    return found


def _subword_models(source: Path) -> list[Path]:
    """That of the source and, if there is one beside it, that of the target."""
    return [path for path in (source, source.with_name(TARGET)) if path.exists()]


def _opened(
    folder: Path,
    source: Path,
    weights: TransformerWeights,
    vocabulary: Vocabulary,
    digests: Sequence[bytes],  # of the files that the model is made of, but for the vocabulary
    device: torch.device,
    numbers: Numbers,
    target_lang: str | None,
    without_script: str | None,
) -> OpenModel:
    tag = _tag(folder, vocabulary, target_lang)
    if (embeddings := len(weights.matrices["decoder/embeddings"].values)) != len(vocabulary):
        raise ValueError(f"{folder}: {len(vocabulary)} pieces and {embeddings} embeddings do not fit")
    allowed = None if without_script is None else vocabulary.without_script(without_script)
    network = Transformer(weights, numbers, device, allowed)
    pieces = sha256("\n".join(vocabulary.pieces).encode()).digest()
    language = [] if target_lang is None else [sha256(target_lang.encode()).digest()]
    fingerprint = sha256(b"".join((*digests, pieces, *language))).hexdigest()[:16]
    fewer = "" if without_script is None else f"-without-{without_script.strip().lower()}"
    model = TransformerStepModel(network, f"transformer-{fingerprint}-{written(numbers)}{fewer}", tag)
    sides: list[Pieces] = [read_pieces(path, vocabulary) for path in _subword_models(source)]
    target = sides[1] if len(sides) == 2 else RankedPieces(vocabulary)
    return OpenModel(model, sides[0], target, fingerprint, partial(find_predictor, folder, fingerprint))


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
