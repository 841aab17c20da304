"""Transformers in folders: those of CTranslate2, of Argos Translate and of Hugging Face."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch

from uncurse.errors import UncurseError, nearest
from uncurse.lengths.predictor_file import find_predictor
from uncurse.models.devices import device_of
from uncurse.models.download import check_files
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.special_tokens import SpecialTokens
from uncurse.models.transformer.ctranslate2_file import (
    VOCABULARY,
    read_model,
    read_vocabulary,
    transformer_weights,
)
from uncurse.models.transformer.families.marian import MARIAN
from uncurse.models.transformer.folder_content import FolderContent
from uncurse.models.transformer.huggingface_file import family_of, read_config
from uncurse.models.transformer.layers import TransformerNetwork
from uncurse.models.transformer.linear import ComputeType
from uncurse.models.transformer.marian_folder import marian_content, read_huggingface_marian
from uncurse.models.transformer.native.library import chosen_library
from uncurse.models.transformer.native.network import NativeNetwork
from uncurse.models.transformer.native.step_model import NativeStepModel
from uncurse.models.transformer.step_model import TransformerStepModel
from uncurse.models.transformer.transformers_folder import read_ctranslate2_folder, read_huggingface_folder
from uncurse.models.transformer.weights import EMBEDDINGS, TransformerWeights
from uncurse.models.vocabulary_selector import VocabularySelector, find_selector


def ctranslate2_weights(folder: Path) -> Path | None:
    """The weights of a CTranslate2 folder, or of one that Argos Translate packed."""
    return next((path for path in (folder / "model.bin", folder / "model" / "model.bin") if path.exists()), None)


def load_transformer(folder: Path, options: ModelOptions) -> LoadedModel:
    """Load a model of one of the families from a folder of CTranslate2 or of Hugging Face."""
    compute_types = [each.value for each in ComputeType]
    if options.dtype not in compute_types:
        raise UncurseError(f"dtype = {options.dtype!r} is not allowed{nearest(options.dtype, compute_types)}")
    path = ctranslate2_weights(folder)
    content = _read_huggingface(folder, options) if path is None else _read_ctranslate2(folder, path, options)
    return _loaded_model(folder, content, options)


def _read_ctranslate2(folder: Path, path: Path, options: ModelOptions) -> FolderContent:
    """Read a folder of CTranslate2; if it was downloaded, its files must be those that were."""
    digests = check_files(folder, [path])
    check_files(folder, [each for each in (path.with_name(VOCABULARY),) if each.exists()])
    arrays, vocabulary = read_model(path), read_vocabulary(path.parent)
    weights = transformer_weights(arrays, path, vocabulary.eos)  # first: another model may lack tokenizers, too
    read = marian_content if weights.architecture.zero_start else read_ctranslate2_folder
    return read((folder, path.parent), digests, weights, vocabulary, options)


def _read_huggingface(folder: Path, options: ModelOptions) -> FolderContent:
    family = family_of(read_config(folder)) or MARIAN
    if family is MARIAN:
        return read_huggingface_marian(folder, options)
    return read_huggingface_folder(folder, family, options)


def _loaded_model(folder: Path, content: FolderContent, options: ModelOptions) -> LoadedModel:
    script, name = options.without_script, content.weights.architecture.name
    if script is not None and name == "BART":
        raise UncurseError("without_script is not allowed: the tokens of a BART model are bytes, not letters")
    allowed = None if script is None else content.vocabulary.without_script(script)
    fingerprint = _fingerprint(content)
    selector = _selector(folder, fingerprint, content.weights, options)
    compute_type, device = ComputeType(options.dtype), device_of(options.device)
    network = _network(content.weights, compute_type, device, allowed)
    suffix = "" if script is None else f"-without-{script.strip().lower()}"
    suffix += "" if selector is None else f"-selected-{selector.fingerprint}"
    signature = f"{name.lower()}-{fingerprint}-{network.signature}{suffix}"
    return LoadedModel(
        model=_step_model(network, signature, content.special, selector),
        source=content.source,
        target=content.target,
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
    selector.check_fits(len(weights.matrices[EMBEDDINGS].values), weights.eos)
    return selector


def _network(
    weights: TransformerWeights,
    compute_type: ComputeType,
    device: torch.device,
    allowed: Sequence[int] | None,
) -> NativeNetwork | TransformerNetwork:
    """The network as the C++ kernels run it, where there are some for it, or else as PyTorch does."""
    has_kernels = device.type == "cpu" and compute_type in (ComputeType.FLOAT32, ComputeType.INT8)
    library = chosen_library() if has_kernels else None
    if library is not None:
        return NativeNetwork(weights, compute_type, library, allowed)
    return TransformerNetwork(weights, compute_type, device, allowed)


def _step_model(
    network: NativeNetwork | TransformerNetwork,
    signature: str,
    special: SpecialTokens,
    selector: VocabularySelector | None,
) -> NativeStepModel | TransformerStepModel:
    if isinstance(network, NativeNetwork):
        return NativeStepModel(network, signature, special, selector)
    return TransformerStepModel(network, signature, special, selector)


def _fingerprint(content: FolderContent) -> str:
    """A hash of all files and of the languages."""
    tokens = sha256("\n".join(content.vocabulary.tokens).encode()).digest()
    facts = [sha256(fact.encode()).digest() for fact in content.facts]
    return sha256(b"".join((*content.digests, tokens, *facts))).hexdigest()[:16]
