"""The tokens around a source and before an output: language tags, start tokens, `</s>`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from uncurse.errors import UncurseError


@final
@dataclass(frozen=True)
class SpecialTokens:
    """Token ids that a model expects around a source and before an output; none of them counts in a length."""

    source_prefix: tuple[int, ...]  # for example a language tag
    source_suffix: tuple[int, ...]  # for example </s>
    decoder_prompt: tuple[
        int, ...
    ]  # fed to the decoder first and not scored: a start token, perhaps a language tag
    eos: int  # </s> of the target
    suppressed: tuple[int, ...] = ()  # never output, for example padding

    def __post_init__(self) -> None:
        if not self.decoder_prompt:
            raise UncurseError("decoder_prompt = () is not allowed: a decoder needs a token to start from")

    def framed(self, source: Sequence[int]) -> tuple[int, ...]:
        """A source with the tokens around it."""
        return *self.source_prefix, *source, *self.source_suffix

    def max_source_length(self, positions: int) -> int:
        """The most tokens of a source for an encoder with so many positions."""
        return positions - len(self.source_prefix) - len(self.source_suffix)

    def max_target_length(self, positions: int) -> int:
        """The most tokens of an output for a decoder with so many positions."""
        return positions - len(self.decoder_prompt) + 1


def marian_tokens(eos: int, vocab_size: int, language: int | None = None) -> SpecialTokens:
    """Marian's: `</s>` ends a source, and an output starts from a zero embedding, for which `vocab_size` stands.

    Models of several target languages want the language as the first source token, such as `>>fra<<`.
    """
    prefix = () if language is None else (language,)
    return SpecialTokens(source_prefix=prefix, source_suffix=(eos,), decoder_prompt=(vocab_size,), eos=eos)
