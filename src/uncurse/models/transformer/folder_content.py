"""What the files of a folder with a Transformer hold, whatever its family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from uncurse.models.special_tokens import SpecialTokens
from uncurse.models.transformer.weights import TransformerWeights
from uncurse.text.marian_tokenizer import Vocabulary
from uncurse.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True, eq=False)
class FolderContent:
    """A model with its tokenizers and special tokens."""

    weights: TransformerWeights
    special: SpecialTokens
    vocabulary: Vocabulary  # a name for every embedding
    source: Tokenizer
    target: Tokenizer
    digests: list[bytes]  # of all files but the vocabulary
    facts: tuple[str, ...]  # what else decides the output: languages
