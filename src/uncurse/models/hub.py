"""Models on the Hugging Face hub, `owner/name` or `owner/name@revision`, as folders of the hub's cache."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from uncurse.errors import UncurseError, needs_extra
from uncurse.storage.strict_json import read_json

_PART: Final = r"[A-Za-z0-9](?:[\w.-]*\w)?"
_NAME: Final = re.compile(rf"({_PART}/{_PART})(?:@({_PART}(?:/{_PART})*))?")
CONFIG: Final = "config.json"
PICKLED: Final = "pytorch_model.bin"
CTRANSLATE2: Final = ("model.bin", "shared_vocabulary.json")
FILES: Final = (  # configs, tokenizers and safetensors; no weights of other frameworks, and no code
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "special_tokens_map.json",
    "tokenizer*.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
    "*.spm",
)


def is_hub_name(name: str) -> bool:
    """Whether a name can be one on the hub."""
    return _NAME.fullmatch(name) is not None


def parse_hub_name(name: str) -> tuple[str, str | None]:
    """The repository and, if one is given, the revision: a branch, a tag or a commit."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UncurseError(f"{name!r} is not a name on the hub: write owner/name or owner/name@revision")
    return match[1], match[2]


def hub_folder(name: str) -> Path:
    """The folder of a model in the hub's cache, downloaded unless it is there; offline, what is there is used."""
    repository, revision = parse_hub_name(name)
    with needs_extra("huggingface"):
        from huggingface_hub import snapshot_download  # heavy
    try:
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=list(FILES)))
        more = [name for name in _weights(folder) if not (folder / name).exists()]
        if more:
            snapshot_download(repository, revision=folder.name, allow_patterns=more)
    except Exception as error:  # of the network, the cache or the hub
        raise UncurseError(
            f"{name} cannot be had from the Hugging Face hub: {_reason(error, revision)}"
        ) from error
    return folder


def _weights(folder: Path) -> tuple[str, ...]:
    """The files with the weights of a repository without safetensors, if the runtime here reads them."""
    from uncurse.models.transformer.huggingface_file import is_supported

    if any(folder.glob("*.safetensors")) or not (folder / CONFIG).exists():
        return ()
    config = read_json(folder / CONFIG)
    if isinstance(config, dict) and "model_type" not in config:
        return CTRANSLATE2
    return (PICKLED,) if is_supported(folder) else ()  # only for these models a pickle is read


def _reason(error: Exception, revision: str | None) -> str:
    """Why a model cannot be had, in one line."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "it is gated; accept its terms on its page, then log in with hf auth login"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such repository, or it is private and you are not logged in"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no revision {revision}"
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return "it is not in the cache, and the hub cannot be reached or HF_HUB_OFFLINE is set"
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
