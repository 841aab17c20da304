"""Models in folders whose tokenizer is one of transformers: M2M100, NLLB, BART, mBART, mBART-50."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from uncurse.errors import UncurseError, needs_extra
from uncurse.models.download import check_files
from uncurse.models.loaded_model import ModelOptions
from uncurse.models.transformer.families.family import Family
from uncurse.models.transformer.folder_content import FolderContent
from uncurse.models.transformer.huggingface_file import CONFIG, read_config, read_transformer, weights_file
from uncurse.models.transformer.weights import EMBEDDINGS, TransformerWeights
from uncurse.text.marian_tokenizer import Vocabulary

if TYPE_CHECKING:
    from uncurse.models.huggingface.tokenizer import FolderTokenizer

START_AND_END: Final = {"decoder_start_token": "decoder_start_token_id", "eos_token": "eos_token_id"}
PADDING: Final = "<pad>"


def read_huggingface_folder(folder: Path, family: Family, options: ModelOptions) -> FolderContent:
    """Read a folder of Hugging Face."""
    tokenizer = _read_tokenizer(folder, options, None)
    weights = read_transformer(folder, family, tokenizer.special.eos)
    names = {index: token for token, index in tokenizer.ids.items()}
    rows = len(weights.matrices[EMBEDDINGS].values)
    vocabulary = Vocabulary([names.get(index, f"<unused {index}>") for index in range(rows)])
    digests = check_files(folder, [weights_file(folder)])
    return _content(folder, digests, weights, tokenizer, vocabulary)


def read_ctranslate2_folder(
    folders: Sequence[Path],
    digests: list[bytes],
    weights: TransformerWeights,
    vocabulary: Vocabulary,
    options: ModelOptions,
) -> FolderContent:
    """A model of CTranslate2, in the last folder, with the tokenizer that is in one of them."""
    home = next((each for each in folders if (each / "tokenizer_config.json").exists()), None)
    if home is None:
        raise UncurseError(
            f"{folders[0]} has no tokenizer: copy tokenizer_config.json and the other files of the tokenizer there"
        )
    tokenizer = _read_tokenizer(home, options, _special_ids(folders[-1], vocabulary))
    if (rows := len(weights.matrices[EMBEDDINGS].values)) != len(vocabulary):
        raise UncurseError(
            f"{folders[0]}: the vocabulary has {len(vocabulary)} tokens and the model {rows} embeddings"
        )
    for token, index in tokenizer.ids.items():
        if index < rows and vocabulary.tokens[index] != token:
            raise UncurseError(
                f"{home}: its tokenizer is not the model's: token {index} is {token!r} and not"
                f" {vocabulary.tokens[index]!r}"
            )
    return _content(folders[0], digests, weights, tokenizer, vocabulary)


def _read_tokenizer(folder: Path, options: ModelOptions, special: Mapping[str, int] | None) -> FolderTokenizer:
    with needs_extra("huggingface"):
        from uncurse.models.huggingface.tokenizer import read_tokenizer  # heavy
    return read_tokenizer(folder, options.source_lang, options.target_lang, special)


def _special_ids(folder: Path, vocabulary: Vocabulary) -> dict[str, int]:
    """The special tokens that CTranslate2's `config.json` names, and padding, as in a generation config."""
    config, found = read_config(folder), {}
    for theirs, name in START_AND_END.items():
        if (token := config.get(theirs)) is None:  # mBART starts with the target language
            continue
        index = vocabulary.find(token) if isinstance(token, str) else None
        if index is None:
            raise UncurseError(f"{folder / CONFIG}: {theirs} is {token!r}, which is not in the vocabulary")
        found[name] = index
    padding = vocabulary.find(PADDING)
    return found if padding is None else {**found, "pad_token_id": padding}


def _content(
    folder: Path,
    digests: list[bytes],
    weights: TransformerWeights,
    tokenizer: FolderTokenizer,
    vocabulary: Vocabulary,
) -> FolderContent:
    from uncurse.models.huggingface.special_tokens import check_tokens

    special = tokenizer.special
    try:
        check_tokens(len(vocabulary), len(vocabulary), special, tokenizer.ids.values())
    except UncurseError as error:
        raise UncurseError(f"{folder}: {error}") from error
    if not special.framed(()):
        raise UncurseError(f"{folder}: its tokenizer adds no special token to a source")
    if special.eos != weights.eos:
        raise UncurseError(f"{folder}: its outputs end in token {special.eos}, and </s> is {weights.eos}")
    return FolderContent(
        weights=weights.without_output(special.suppressed),
        special=special,
        vocabulary=vocabulary,
        source=tokenizer.source,
        target=tokenizer.target,
        digests=digests,
        facts=(str(special),),
    )
