"""Marian models in folders: those of CTranslate2, of Argos Translate and of Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, final

import torch

from uncurse.errors import UncurseError, nearest
from uncurse.lengths.predictor_file import find_predictor
from uncurse.models.devices import device_of
from uncurse.models.download import check_files
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.transformer.ctranslate2_file import VOCABULARY, marian_weights, read_model, read_vocabulary
from uncurse.models.transformer.huggingface_file import read_marian, weights_file
from uncurse.models.transformer.layers import TransformerNetwork
from uncurse.models.transformer.linear import ComputeType
from uncurse.models.transformer.native.library import chosen_library
from uncurse.models.transformer.native.network import NativeNetwork
from uncurse.models.transformer.native.step_model import NativeStepModel
from uncurse.models.transformer.step_model import TransformerStepModel
from uncurse.models.transformer.weights import EMBEDDINGS, TransformerWeights
from uncurse.models.vocabulary_selector import VocabularySelector, find_selector
from uncurse.storage.strict_json import read_json
from uncurse.text.marian_tokenizer import RankedTokenizer, Vocabulary, read_marian_tokenizer
from uncurse.text.tokenizer import Tokenizer

SOURCE_TOKENIZERS: Final = ("source.spm", "sentencepiece.model")  # of Hugging Face and of Argos Translate
TARGET_TOKENIZER: Final = "target.spm"
LANGUAGE_TOKEN: Final = re.compile(r">>[\w@-]+<<")


def ctranslate2_weights(folder: Path) -> Path | None:
    """The weights of a CTranslate2 folder, or of one that Argos Translate packed."""
    return next((path for path in (folder / "model.bin", folder / "model" / "model.bin") if path.exists()), None)


def load_transformer(folder: Path, options: ModelOptions) -> LoadedModel:
    """Load a Marian model from a folder of CTranslate2 or of Hugging Face."""
    compute_types = [each.value for each in ComputeType]
    if options.dtype not in compute_types:
        raise UncurseError(f"dtype = {options.dtype!r} is not allowed{nearest(options.dtype, compute_types)}")
    path = ctranslate2_weights(folder)
    content = _read_huggingface(folder) if path is None else _read_ctranslate2(folder, path)
    return _loaded_model(folder, content, options)


@final
@dataclass(frozen=True, eq=False)
class _FolderContent:
    """What the files of a folder hold."""

    weights: TransformerWeights
    vocabulary: Vocabulary
    tokenizers: list[Path]  # of the source and, if there is one, of the target
    digests: list[bytes]  # of all files but the vocabulary


def _read_ctranslate2(folder: Path, path: Path) -> _FolderContent:
    """Read a folder of CTranslate2; if it was downloaded, its files must be those that were."""
    digests = check_files(folder, [path])
    check_files(folder, [each for each in (path.with_name(VOCABULARY),) if each.exists()])
    arrays, vocabulary = read_model(path), read_vocabulary(path.parent)
    weights = marian_weights(arrays, path, vocabulary.eos)  # first: another architecture may lack tokenizers, too
    tokenizers = _find_tokenizers((folder, path.parent))
    return _FolderContent(weights, vocabulary, tokenizers, [*digests, *check_files(folder, tokenizers)])


def _read_huggingface(folder: Path) -> _FolderContent:
    path = folder / "vocab.json"
    if not path.exists():
        raise UncurseError(f"{path} is missing")
    ids = read_json(path)
    if not isinstance(ids, dict) or any(type(index) is not int for index in ids.values()):
        raise UncurseError(f"{path} is not a vocabulary: it must map every token to an id")
    if sorted(ids.values()) != list(range(len(ids))):
        raise UncurseError(f"{path} is not a vocabulary: the ids must be 0, 1, 2, …")
    weights, vocabulary = read_marian(folder), Vocabulary(sorted(ids, key=ids.__getitem__))
    tokenizers = _find_tokenizers((folder,))
    return _FolderContent(
        weights, vocabulary, tokenizers, check_files(folder, [weights_file(folder), *tokenizers])
    )


def _find_tokenizers(folders: Sequence[Path]) -> list[Path]:
    """The SentencePiece model of the source and, if there is one beside it, that of the target."""
    paths = [folder / name for folder in folders for name in SOURCE_TOKENIZERS]
    source = next((path for path in paths if path.exists()), None)
    if source is None:
        raise UncurseError(f"{folders[0]} has no tokenizer: neither {' nor '.join(SOURCE_TOKENIZERS)}")
    return [path for path in (source, source.with_name(TARGET_TOKENIZER)) if path.exists()]


def _loaded_model(folder: Path, content: _FolderContent, options: ModelOptions) -> LoadedModel:
    vocabulary, script = content.vocabulary, options.without_script
    language_token = _language_token(folder, vocabulary, options.target_lang)
    if (rows := len(content.weights.matrices[EMBEDDINGS].values)) != len(vocabulary):
        raise UncurseError(
            f"{folder}: the vocabulary has {len(vocabulary)} tokens and the model {rows} embeddings"
        )
    allowed = None if script is None else vocabulary.without_script(script)
    fingerprint = _fingerprint(content, options.target_lang)
    selector = _selector(folder, fingerprint, content.weights, options)
    compute_type, device = ComputeType(options.dtype), device_of(options.device)
    network = _network(content.weights, compute_type, device, allowed, selector)
    suffix = "" if script is None else f"-without-{script.strip().lower()}"
    suffix += "" if selector is None else f"-selected-{selector.fingerprint}"
    signature = f"marian-{fingerprint}-{network.signature}{suffix}"
    tokenizers: list[Tokenizer] = [read_marian_tokenizer(path, vocabulary) for path in content.tokenizers]
    return LoadedModel(
        model=_step_model(network, signature, language_token),
        source=tokenizers[0],
        target=tokenizers[1] if len(tokenizers) == 2 else RankedTokenizer(vocabulary),
        fingerprint=fingerprint,
        find_predictor=partial(find_predictor, folder, fingerprint),
    )


def _selector(
    folder: Path, fingerprint: str, weights: TransformerWeights, options: ModelOptions
) -> VocabularySelector | None:
    """The vocabulary selector, if it is asked for."""
    if not options.vocabulary_selection:
        if options.vocabulary_selector is not None:
            raise UncurseError("vocabulary_selector is a file that nothing reads without vocabulary_selection")
        return None
    file = None if options.vocabulary_selector is None else Path(options.vocabulary_selector)
    selector = find_selector(folder, fingerprint, file)
    vocab_size, d_model = weights.matrices[EMBEDDINGS].values.shape
    selector.check_fits(vocab_size, d_model, weights.eos)
    return selector


def _network(
    weights: TransformerWeights,
    compute_type: ComputeType,
    device: torch.device,
    allowed: Sequence[int] | None,
    selector: VocabularySelector | None,
) -> NativeNetwork | TransformerNetwork:
    """The network as the C++ kernels run it, where there are some for it, or else as PyTorch does."""
    has_kernels = device.type == "cpu" and compute_type in (ComputeType.FLOAT32, ComputeType.INT8)
    library = chosen_library() if has_kernels else None
    if library is not None:
        return NativeNetwork(weights, compute_type, library, allowed, selector)
    return TransformerNetwork(weights, compute_type, device, allowed, selector)


def _step_model(
    network: NativeNetwork | TransformerNetwork, signature: str, language_token: int | None
) -> NativeStepModel | TransformerStepModel:
    if isinstance(network, NativeNetwork):
        return NativeStepModel(network, signature, language_token)
    return TransformerStepModel(network, signature, language_token)


def _fingerprint(content: _FolderContent, target_lang: str | None) -> str:
    """A hash of all files and of the target language."""
    tokens = sha256("\n".join(content.vocabulary.tokens).encode()).digest()
    language = [] if target_lang is None else [sha256(target_lang.encode()).digest()]
    return sha256(b"".join((*content.digests, tokens, *language))).hexdigest()[:16]


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
