"""Plug-ins: files and modules that register scores and stopping rules of their own.

A package declares its plug-ins in the entry-point group `uncurse.plugins`; a user names files or modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Final

from uncurse.errors import UncurseError
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES

GROUP: Final = "uncurse.plugins"
_loaded: Final[dict[str, str]] = {}  # by name or absolute path, in the order of import: the module


def load_plugins(names: Iterable[str] = ()) -> None:
    """Import what installed packages declare, and files (`*.py`) and modules by name; each is imported once."""
    for entry in entry_points(group=GROUP):
        _load(entry.module)
    for name in names:
        _load(str(Path(name).resolve()) if name.endswith(".py") else name)


def loaded_plugins() -> tuple[str, ...]:
    """What another process must load to know the same scores and rules."""
    return tuple(_loaded)


def plugin_at_fault(error: BaseException) -> tuple[str, TracebackType | None] | None:
    """The plug-in whose code raised an error or was called wrongly, with its own part of the traceback."""
    trace, last = error.__traceback__, error.__traceback__
    while trace is not None:
        if (name := _plugin_of(trace.tb_frame.f_globals.get("__name__"))) is not None:
            return name, trace
        last, trace = trace, trace.tb_next
    for value in (
        last.tb_frame.f_locals.values() if last is not None else ()
    ):  # a call with arguments it does not take
        if (name := _plugin_of(type(value).__module__)) is not None:
            return name, None
    return None


def _plugin_of(module: str | None) -> str | None:
    return next((name for name, loaded in _loaded.items() if f"{module}.".startswith(f"{loaded}.")), None)


def _load(name: str) -> None:
    if name in _loaded:
        return
    known = [(registry, set(registry)) for registry in (SCORES, RULES)]
    try:
        module = _import_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a stranger's code does
        for registry, before in known:
            for added in set(registry) - before:
                registry.unregister(added)
        raise UncurseError(f"the plug-in {name} cannot be loaded: {_described(error)}") from error
    _loaded[name] = module.__name__


def _import_file(path: Path) -> ModuleType:
    # Values of its classes are pickled by the name of the module: it has to be the same in every process.
    name = f"uncurse_plugin_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UncurseError("there is no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, UncurseError) else f"{type(error).__name__}: {error}"
