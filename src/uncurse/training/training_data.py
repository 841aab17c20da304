"""What a run learns from: its tokenizers and its sentence pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

from uncurse.errors import UncurseError
from uncurse.models.load import model_folder
from uncurse.models.lstm.folder import SavedLSTM, read_lstm
from uncurse.text.parallel import read_parallel
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer
from uncurse.training.data import SentencePairs
from uncurse.training.distributed import ProcessGroup
from uncurse.training.recipe import Recipe
from uncurse.training.run_folder import RunFolder


@final
@dataclass(frozen=True, eq=False)
class TrainingData:
    """Tokenizers, the pairs of the training and development text, and perhaps a model to start from."""

    source: SentencePieceTokenizer
    target: SentencePieceTokenizer
    train: SentencePairs
    dev: SentencePairs
    fingerprint: str  # of text, tokenizers and initial weights
    initial: SavedLSTM | None


def load_training_data(recipe: Recipe, root: Path, folder: RunFolder, processes: ProcessGroup) -> TrainingData:
    """Read the text, and train the tokenizers unless the folder has them or the recipe starts from a model."""
    train, dev = read_parallel(recipe.data.train, root), read_parallel(recipe.data.dev, root)
    text = train.fingerprint + dev.fingerprint
    config, initial = recipe.tokenizer, None
    if recipe.model.finetune_from is not None:
        initial = _initial_model(recipe.model.finetune_from)
        text += initial.fingerprint
    processes.require_same(text + repr(recipe), "text and recipe")
    targets = [line for lines in train.targets for line in lines]
    source = folder.tokenizer(
        "source.spm",
        lambda: initial.source if initial else _train("source", train.sources, config.source, config.lowercase),
    )
    target = folder.tokenizer(
        "target.spm",
        lambda: initial.target if initial else _train("target", targets, config.target, config.lowercase),
    )
    longest = recipe.training.max_tokens_per_side
    return TrainingData(
        source=source,
        target=target,
        train=SentencePairs(train, source, target, longest),
        dev=SentencePairs(dev, source, target, longest),
        fingerprint=sha256(text.encode() + source.model + target.model).hexdigest(),
        initial=initial,
    )


def _initial_model(name: str) -> SavedLSTM:
    folder = model_folder(name)
    if folder is None:
        raise UncurseError(f"finetune_from = {name!r} is not allowed: it must be an LSTM model of uncurse")
    return read_lstm(folder)


def _train(side: str, lines: Sequence[str], vocab_size: int, lowercase: bool) -> SentencePieceTokenizer:
    try:
        return SentencePieceTokenizer.train(lines, vocab_size, lowercase)
    except UncurseError as error:
        raise UncurseError(f"tokenizer.{side} = {vocab_size} is not allowed: {error}") from None
