"""Folders with a random decoder-only model and a small byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

LINES = [
    "the old cat sleeps on the red sofa",
    "a dog and a cat",
    "say it in English: hello\n",
    "old dogs sleep.\n",
]


def causal_tokenizer() -> Any:
    """Byte-level BPE, as GPT-2, Llama 3 and Qwen2 have it."""
    trained = Tokenizer(BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>"]
    trainer = BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=special, show_progress=False)
    trained.train_from_iterator(LINES * 5, trainer)
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=trained, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def causal_folder(folder: Path, config: PreTrainedConfig, seed: int = 0) -> Path:
    """Save a random model of this config with the tokenizer."""
    tokenizer = causal_tokenizer()
    config.vocab_size = len(tokenizer)
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
