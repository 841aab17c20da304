"""Tokenizers of transformers, and what special tokens they imply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging import CRITICAL
from pathlib import Path
from threading import Lock
from typing import Any, final

from huggingface_hub.utils import logging as hub_logging
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from uncurse.errors import UncurseError
from uncurse.models.huggingface.folder_checks import check_files, check_tokenizer
from uncurse.models.huggingface.special_tokens import special_tokens_of
from uncurse.models.special_tokens import SpecialTokens
from uncurse.storage.strict_json import read_json
from uncurse.text.token_texts import token_texts as texts_by_token


@final
class HuggingFaceTokenizer:
    """The source side or the target side of a tokenizer.

    Tokenizers of transformers change while they work (Marian's switches between its sides), so the sides share a
    lock.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, target: bool, lock: Lock) -> None:
        self._tokenizer: Any = tokenizer
        self._side = "text_target" if target else "text"
        self._lock = lock

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of each line, without special tokens."""
        if not lines:
            return []
        given = {self._side: list(lines)}
        with self._lock:
            tokens: list[list[int]] = self._tokenizer(**given, add_special_tokens=False, verbose=False)[
                "input_ids"
            ]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens."""
        with self._lock:
            text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text


def token_texts(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> tuple[str, ...]:
    """What each of the model's tokens adds to an output, for an `Automaton`.

    It is empty for special tokens and for tokens that hold half a character.
    """
    return texts_by_token(HuggingFaceTokenizer(tokenizer, target=True, lock=Lock()), vocab_size)


@final
@dataclass(frozen=True, eq=False)
class FolderTokenizer:
    """A tokenizer with its vocabulary, and the special tokens for a pair of languages."""

    source: HuggingFaceTokenizer
    target: HuggingFaceTokenizer
    ids: Mapping[str, int]  # by token
    special: SpecialTokens


def read_tokenizer(
    folder: Path, source_lang: str | None, target_lang: str | None, special: Mapping[str, int] | None = None
) -> FolderTokenizer:
    """Read the tokenizer of a folder, without running code that comes with it.

    The generation config says how an output starts and ends, unless `special` does, by its names of token ids.
    """
    try:
        check_files(folder)
        check_tokenizer(folder)
        with silence():
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            config = _generation_config(folder) if special is None else GenerationConfig(**special)  # type: ignore[no-untyped-call]
        tokens = special_tokens_of(tokenizer, config, source_lang, target_lang)
        ids = dict(tokenizer.get_vocab())
    except UncurseError as error:
        raise UncurseError(f"{folder}: {error}") from error
    except Exception as error:  # files of others can fail in any way
        raise UncurseError(f"{folder}: its tokenizer cannot be loaded: {first_line(error)}") from error
    lock = Lock()
    source, target = (HuggingFaceTokenizer(tokenizer, target=side, lock=lock) for side in (False, True))
    return FolderTokenizer(source, target, ids, tokens)


def _generation_config(folder: Path) -> GenerationConfig:
    if (folder / "generation_config.json").exists():
        return GenerationConfig.from_dict(read_json(folder / "generation_config.json"))
    return GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder, trust_remote_code=False))


@contextmanager
def silence() -> Iterator[None]:
    """Without the logs of transformers and the hub: an error says in one line what is wrong."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_verbosity = hub_logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    hub_logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
