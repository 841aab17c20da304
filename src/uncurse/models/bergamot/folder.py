"""Bergamot models in folders: the weights, `model.*.bin`, and the vocabulary, `vocab.*.spm`."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from uncurse.errors import UncurseError, nearest
from uncurse.lengths.predictor_file import find_predictor
from uncurse.models.bergamot.marian_file import read_marian_file
from uncurse.models.bergamot.network import BergamotNetwork
from uncurse.models.bergamot.step_model import BergamotStepModel
from uncurse.models.bergamot.weights import bergamot_weights
from uncurse.models.devices import device_of
from uncurse.models.download import check_files
from uncurse.models.loaded_model import LoadedModel, ModelOptions
from uncurse.models.transformer.linear import ComputeType
from uncurse.text.marian_tokenizer import read_tokenizer_with_vocabulary

WEIGHTS: Final = "model.*.bin"
VOCABULARY: Final = "vocab.*.spm"


def load_bergamot(folder: Path, options: ModelOptions) -> LoadedModel:
    """Load a Bergamot model; if it was downloaded, its files must be those that were."""
    compute_types = [each.value for each in ComputeType]
    if options.dtype not in compute_types:
        raise UncurseError(f"dtype = {options.dtype!r} is not allowed{nearest(options.dtype, compute_types)}")
    paths = [_only(folder, WEIGHTS), _only(folder, VOCABULARY)]
    fingerprint = sha256(b"".join(check_files(folder, paths))).hexdigest()[:16]
    tokenizer, vocabulary = read_tokenizer_with_vocabulary(paths[1])
    file = read_marian_file(paths[0])
    try:
        weights = bergamot_weights(file, vocabulary.eos)
    except UncurseError as error:
        raise UncurseError(f"{paths[0]}: {error}") from error
    if weights.vocab_size != len(vocabulary):
        raise UncurseError(
            f"{folder}: the vocabulary has {len(vocabulary)} tokens and the model {weights.vocab_size} embeddings"
        )
    script, compute_type = options.without_script, ComputeType(options.dtype)
    allowed = None if script is None else vocabulary.without_script(script)
    network = BergamotNetwork(weights, compute_type, device_of(options.device), allowed)
    suffix = "" if script is None else f"-without-{script.strip().lower()}"
    return LoadedModel(
        model=BergamotStepModel(network, f"bergamot-{fingerprint}-{compute_type.signature}{suffix}"),
        source=tokenizer,
        target=tokenizer,
        fingerprint=fingerprint,
        find_predictor=partial(find_predictor, folder, fingerprint),
    )


def _only(folder: Path, pattern: str) -> Path:
    """The one file of a name; models with two vocabularies are not supported."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise UncurseError(f"{folder} has {len(found)} files {pattern}; a Bergamot model here has one")
    return found[0]
