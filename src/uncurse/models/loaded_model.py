"""A model that is ready to translate, whatever its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, final

from uncurse.arrays import Floats
from uncurse.lengths.predictors import LengthPredictor
from uncurse.search.step_model import State, StepModel
from uncurse.text.tokenizer import Tokenizer

MAX_WEIGHT_BYTES: Final = 1 << 35  # of a file; the largest translation models have some 7 GB
S = TypeVar("S", bound=State)


class TranslationModel(StepModel[S], Protocol[S]):
    """A step model with limits on its lengths, and with features of sources for a length predictor."""

    @property
    def max_source_length(self) -> int | None:
        """The most tokens of a source; None if there is no limit."""
        ...

    @property
    def max_target_length(self) -> int | None:
        """The most tokens of an output, forced ones and `</s>` counted; None if there is no limit."""
        ...

    def features(self, sources: Sequence[Sequence[int]]) -> Floats:
        """The mean of the encoder's states for each source, [sources, size]."""
        ...


@final
@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A step model with its tokenizers and, if there is one, the length predictor that was fitted to it.

    The predictor is read when it is first used, so that a damaged one can be replaced by fitting another.
    """

    model: TranslationModel[Any]
    source: Tokenizer
    target: Tokenizer
    fingerprint: str  # of weights and tokenizers
    find_predictor: Callable[[], LengthPredictor | None]
    length_ratio: float | None = None  # gr: target tokens per source token in the training text, where it is known

    @cached_property
    def predictor(self) -> LengthPredictor | None:
        """The length predictor that was fitted to this model."""
        return self.find_predictor()


@final
@dataclass(frozen=True)
class ModelOptions:
    """Which model is loaded, and how it runs."""

    model: str | None = None  # a name or a folder; None: the bundled model
    device: str = "cpu"
    dtype: str = "float32"
    source_lang: str | None = None
    target_lang: str | None = None
    prompt: str | None = None  # of a decoder-only model: the text around a line, with {text} where the line goes
    without_script: str | None = None  # no output token may have letters of this script
    vocabulary_selection: bool = False  # compute only the output tokens that a selector expects for a sentence
    vocabulary_selector: str | None = None  # a file; None: as for the length predictor
    length_predictor: str | None = (
        None  # a file; None: the one in the model's folder, or that comes with the package
    )

    def with_absolute_paths(self) -> ModelOptions:
        """The same model for a process that may run in another folder."""

        def absolute(name: str | None) -> str | None:
            return str(Path(name).resolve()) if name is not None and Path(name).exists() else name

        return replace(
            self,
            model=absolute(self.model),
            length_predictor=absolute(self.length_predictor),
            vocabulary_selector=absolute(self.vocabulary_selector),
        )
