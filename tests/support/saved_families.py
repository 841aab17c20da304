"""Small random models of the families of transformers, saved with their tokenizers."""

from __future__ import annotations

import io
import json
from copy import copy
from pathlib import Path
from typing import Any

import sentencepiece
from transformers import (
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    RobertaTokenizer,
    T5Tokenizer,
)

from support.families import FAMILIES, random_model


def subwords() -> tuple[bytes, list[str]]:
    """A small subword model, and its pieces but the special ones."""
    trained = io.BytesIO()
    lines = ["the old cat sleeps on the red sofa", "a dog and a cat", "all day in the kitchen", "old dogs sleep"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 5), model_writer=trained, vocab_size=40, model_type="bpe", minloglevel=2
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    return trained.getvalue(), [processor.id_to_piece(piece) for piece in range(3, len(processor))]


def tokenizer(kind: str, folder: Path) -> Any:
    model, words = subwords()
    known = ["<s>", "<pad>", "</s>", "<unk>", *words]
    scored = [(piece, -float(rank)) for rank, piece in enumerate(known)]
    vocabulary, spm = folder / "vocab.json", folder / "pieces.spm"
    spm.write_bytes(model)
    if kind == "marian":
        known = ["</s>", "<unk>", *words, ">>fra<<", ">>ron<<", "<pad>"]
    vocabulary.write_text(json.dumps({piece: rank for rank, piece in enumerate(known)}))
    if kind == "marian":
        return MarianTokenizer(str(spm), str(spm), str(vocabulary))
    if kind == "m2m100":
        return M2M100Tokenizer(str(vocabulary), str(spm))
    if kind == "nllb":
        return NllbTokenizer(vocab=json.loads(vocabulary.read_text()), merges=[])
    if kind == "t5":
        return T5Tokenizer(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scored[4:]])
    if kind == "bart":
        letters = sorted({*"".join(words).replace("\u2581", "")})
        known = ["<s>", "<pad>", "</s>", "<unk>", "\u0120", *letters, *(f"\u0120{letter}" for letter in letters)]
        merges: Any = [("\u0120", letter) for letter in letters]
        return RobertaTokenizer(vocab={piece: rank for rank, piece in enumerate(known)}, merges=merges)
    return MBartTokenizer(vocab=scored) if kind == "mbart" else MBart50Tokenizer(vocab=scored)


def saved(kind: str, folder: Path) -> Path:
    """A folder with a tokenizer and a random model."""
    own = tokenizer(kind, folder)
    config: Any = copy(FAMILIES[{"nllb": "m2m100"}.get(kind, kind)][0])
    config.vocab_size = config.decoder_vocab_size = max(own.get_vocab().values()) + 1
    if kind == "m2m100":
        config.vocab_size += 108  # its languages are apart
    if kind == "marian":
        config.pad_token_id = config.decoder_start_token_id = own.pad_token_id
    if kind == "mbart":
        config.decoder_start_token_id = own.lang_code_to_id["fr_XX"]
    model = random_model(config, 1)
    model.generation_config.max_length = 60
    model.generation_config.bad_words_ids = [[config.pad_token_id], *([word] for word in range(5, 25))]
    model.generation_config.renormalize_logits = True
    model.save_pretrained(folder)
    own.save_pretrained(folder)
    return folder


LANGUAGES: dict[str, tuple[str | None, str | None]] = {
    "marian": (None, None),
    "t5": (None, None),
    "bart": (None, None),
    "m2m100": ("en", "fr"),
    "nllb": ("eng_Latn", "fra_Latn"),
    "mbart": ("en_XX", "fr_XX"),
    "mbart50": ("en_XX", "fr_XX"),
}
