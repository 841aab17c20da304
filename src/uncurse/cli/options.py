"""Options that several subcommands have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any, Final

import typer

from uncurse.errors import UncurseError, needs_extra
from uncurse.models.loaded_model import ModelOptions


class InterruptedRun(Exception):  # noqa: N818  (nothing went wrong)
    """The user has interrupted a command, which says what is left of its work."""


def in_utf8(text: str) -> str:
    """Refuse a text that the shell gave in another encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("it is not in UTF-8") from None
    return text


Model = Annotated[
    str | None,
    typer.Option(
        help="A model listed by `uncurse models`, a folder, or owner/name on the hub; default: the bundled model."
    ),
]
Device = Annotated[str, typer.Option(help="Device: cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[
    str, typer.Option(help="Compute type: float32, int8, bfloat16 or float16; an LSTM runs in float32.")
]
Language = Annotated[str | None, typer.Option(help="Language code, for multilingual models.")]


def _with_line_breaks(prompt: str | None) -> str | None:
    """A shell has no easy way to write a line break."""
    return None if prompt is None else in_utf8(prompt).replace("\\n", "\n")


Prompt = Annotated[
    str | None,
    typer.Option(callback=_with_line_breaks, help="For decoder-only models: the text around a line, {text}."),
]
WithoutScript = Annotated[
    str | None, typer.Option(help="Leave out target tokens of a script (cjk, cyrillic, …), for speed.")
]
VocabularySelection = Annotated[
    bool,
    typer.Option("--vocabulary-selection", help="Compute only tokens that the source makes likely; faster."),
]
VocabularySelector = Annotated[str | None, typer.Option(help="A file that `uncurse fit-vocabulary --out` wrote.")]
LengthPredictor = Annotated[str | None, typer.Option(help="Length predictor, from `uncurse fit-length --out`.")]
BeamSize = Annotated[int, typer.Option("--beam-size", "-b", min=1, help="Number of hypotheses kept at each step.")]
MaxLength = Annotated[
    str | None,
    typer.Option(help="Maximum output tokens: 100, 2x+10, q0.95 or predicted. Default: q0.8, then 2x+10."),
]
LengthRatio = Annotated[
    float | None, typer.Option(help="Expected target tokens per source token, instead of a predicted length.")
]
Reward = Annotated[float, typer.Option(help="Reward per token, for the scores that use one.")]
BatchTokens = Annotated[int, typer.Option(min=1, help="Source tokens per batch.")]
MAX_THREADS: Final = 1024  # PyTorch crashes where it cannot start as many as it was told
Threads = Annotated[int, typer.Option(min=0, max=MAX_THREADS, help="Number of CPU threads; 0: PyTorch's default.")]
Engine = Annotated[
    str | None, typer.Option(help="Run on Ray: ray starts a cluster here, ray:ADDRESS uses a running one.")
]
Workers = Annotated[int, typer.Option(min=0, help="Number of Ray workers; 0: as many as fit.")]

# The flag of each field of `ModelOptions`.
MODEL_FLAGS: Final[Mapping[str, object]] = {
    "model": Model,
    "device": Device,
    "dtype": Dtype,
    "source_lang": Language,
    "target_lang": Language,
    "prompt": Prompt,
    "without_script": WithoutScript,
    "vocabulary_selection": VocabularySelection,
    "vocabulary_selector": VocabularySelector,
    "length_predictor": LengthPredictor,
}
MODEL: Final = "model_options"  # the parameter of a command that stands for them


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags that choose a model; its parameter `model_options` receives them as one value.

    Typer makes flags of the parameters of a function, so this writes the parameters down, once for all commands.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    flags = [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=MODEL_FLAGS[field.name])
        for field in fields(ModelOptions)
    ]
    parameters = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        parameters += flags if name == MODEL else [parameter.replace(kind=keyword)]

    @wraps(command)
    def called(**given: Any) -> None:  # noqa: ANN401  (what Typer has parsed)
        from uncurse.models.load import extra_of

        chosen = ModelOptions(**{field.name: given.pop(field.name) for field in fields(ModelOptions)})
        with needs_extra(extra_of(chosen.model)):
            command(**given, **{MODEL: chosen})

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def needs_extra_of_model(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command with the flag --model say at once all that is missing for it."""

    @wraps(command)
    def called(**given: Any) -> None:  # noqa: ANN401  (what Typer has parsed)
        from uncurse.models.load import extra_of

        with needs_extra(extra_of(given["model"])):
            command(**given)

    return called


def use_threads(threads: int) -> int:
    """Let PyTorch use so many threads, or as many as it likes; how many they are."""
    import torch

    if not 0 <= threads <= MAX_THREADS:
        raise UncurseError(f"threads = {threads} is not allowed: it must be in 0 … {MAX_THREADS}")
    if threads:
        torch.set_num_threads(threads)
    return torch.get_num_threads()
