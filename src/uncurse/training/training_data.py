"""What a run learns from: its tokenizers and its sentence pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

from uncurse.errors import UncurseError
from uncurse.text.parallel import read_parallel
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer
from uncurse.training.data import SentencePairs
from uncurse.training.distributed import ProcessGroup
from uncurse.training.recipe import Recipe
from uncurse.training.run_folder import RunFolder


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """Tokenizers, and the pairs of the training and development text."""

    source: SentencePieceTokenizer
    target: SentencePieceTokenizer
    train: SentencePairs
    dev: SentencePairs
    fingerprint: str  # of text and tokenizers


def load_training_data(recipe: Recipe, root: Path, folder: RunFolder, processes: ProcessGroup) -> TrainingData:
    """Read the text, and train the tokenizers unless the folder has them."""
    train, dev = read_parallel(recipe.data.train, root), read_parallel(recipe.data.dev, root)
    text = train.fingerprint + dev.fingerprint
    processes.require_same(text + repr(recipe), "text and recipe")
    targets = [line for lines in train.targets for line in lines]
    config = recipe.tokenizer
    source = folder.tokenizer(
        "source.spm", lambda: _train("source", train.sources, config.source, config.lowercase)
    )
    target = folder.tokenizer("target.spm", lambda: _train("target", targets, config.target, config.lowercase))
    longest = recipe.training.max_tokens_per_side
    return TrainingData(
        source=source,
        target=target,
        train=SentencePairs(train, source, target, longest),
        dev=SentencePairs(dev, source, target, longest),
        fingerprint=sha256(text.encode() + source.model + target.model).hexdigest(),
    )


def _train(side: str, lines: Sequence[str], vocab_size: int, lowercase: bool) -> SentencePieceTokenizer:
    try:
        return SentencePieceTokenizer.train(lines, vocab_size, lowercase)
    except UncurseError as error:
        raise UncurseError(f"tokenizer.{side} = {vocab_size} is not allowed: {error}") from None
