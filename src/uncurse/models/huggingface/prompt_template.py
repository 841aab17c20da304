"""The prompt of a decoder-only model: a text around the line that is translated, and its tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, final

from transformers import PreTrainedTokenizerBase

from uncurse.errors import UncurseError

PLACE: Final = "{text}"
PROBES: Final = ("a", "Z7")  # lines that share no token


@final
@dataclass(frozen=True)
class PromptTemplate:
    """What comes before a line and after it, as `Translate to English: {text}` and a line break."""

    text: str

    def __post_init__(self) -> None:
        if self.text.count(PLACE) != 1:
            raise UncurseError(f"prompt = {self.text!r} is not allowed: {PLACE} must be in it, once")

    def around(self, line: str) -> str:
        """The prompt for a line."""
        return self.text.replace(PLACE, line)

    @property
    def gap(self) -> str:
        """What stands between a prompt and an output."""
        return "" if self.text[-1].isspace() else " "


@final
class PromptedSource:
    """Lines as tokens inside a prompt, which count without it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: PromptTemplate) -> None:
        self._tokenizer: Any = tokenizer
        self._template = template
        probes = self._prompts(PROBES)
        self.before = _shared(*probes)
        self.after = _shared(*(probe[len(self.before) :][::-1] for probe in probes))[::-1]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of each line inside the prompt; where the two share a token, those of the line alone."""
        if not lines:
            return []
        alone = self._tokenizer(list(lines), add_special_tokens=False, verbose=False)["input_ids"]
        first, last = len(self.before), len(self.after)
        found: list[list[int]] = []
        for line, prompt, tokens in zip(lines, self._prompts(lines), alone, strict=True):
            inside = prompt[first : len(prompt) - last]
            whole = (*self.before, *inside, *self.after) == tuple(prompt)
            found.append([] if not line.strip() else inside if whole and inside else tokens)
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special tokens."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text.strip()

    def _prompts(self, lines: Sequence[str]) -> list[list[int]]:
        prompts: list[list[int]] = self._tokenizer(list(map(self._template.around, lines)), verbose=False)[
            "input_ids"
        ]
        return prompts


@final
class PromptedTarget:
    """Outputs as tokens that follow a prompt."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, template: PromptTemplate, ends: Collection[int]
    ) -> None:
        self._tokenizer: Any = tokenizer
        self._prompt = template.around(PROBES[0])
        self._gap = template.gap
        self._ends = frozenset(ends)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The tokens of each line after a prompt."""
        if not lines:
            return []
        texts = [self._prompt, *(f"{self._prompt}{self._gap}{line}" for line in lines)]
        prompt, *wholes = self._tokenizer(texts, verbose=False)["input_ids"]
        alone = self._tokenizer([self._gap + line for line in lines], add_special_tokens=False, verbose=False)
        return [
            whole[len(prompt) :] if whole[: len(prompt)] == prompt else tokens
            for whole, tokens in zip(wholes, alone["input_ids"], strict=True)
        ]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that end it and without the gap after a prompt."""
        text: str = self._tokenizer.decode(
            [token for token in tokens if token not in self._ends], skip_special_tokens=True
        )
        return text.strip()


def _shared(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The tokens that two sequences begin with."""
    return tuple(token for token, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def line_breaks(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> tuple[list[int], list[int]]:
    """The tokens that begin with a line break, and those that have one later on."""
    any_tokenizer: Any = tokenizer
    known = range(min(vocab_size, len(any_tokenizer)))
    texts = any_tokenizer.batch_decode([[token] for token in known], clean_up_tokenization_spaces=False)
    first = [token for token, text in zip(known, texts, strict=True) if text[:1] in ("\n", "\r")]
    within = [token for token, text in zip(known, texts, strict=True) if "\n" in text or "\r" in text]
    return first, sorted(set(within) - set(first))
