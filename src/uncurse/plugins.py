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
from typing import Final

from uncurse.errors import UncurseError
from uncurse.scoring.rescorer import Rescorer
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES, StoppingRule

GROUP: Final = "uncurse.plugins"
_loaded: Final[list[str]] = []  # modules and absolute paths, in the order in which they were imported


def load_plugins(names: Iterable[str] = ()) -> None:
    """Import what installed packages declare, and files (`*.py`) and modules by name; each is imported once."""
    for entry in entry_points(group=GROUP):
        _load(entry.module)
    for name in names:
        _load(str(Path(name).resolve()) if name.endswith(".py") else name)


def loaded_plugins() -> tuple[str, ...]:
    """What another process must load to know the same scores and rules."""
    return tuple(_loaded)


def source_digest(method: Rescorer | StoppingRule) -> str | None:
    """A checksum of the file that defines a score or rule; None for those of this package, which has a version."""
    module = type(method).__module__
    path = getattr(sys.modules.get(module), "__file__", None)
    if module.split(".")[0] == "uncurse" or path is None:
        return None
    return sha256(Path(path).read_bytes()).hexdigest()[:16]


def _load(name: str) -> None:
    if name in _loaded:
        return
    known = [(registry, set(registry)) for registry in (SCORES, RULES)]
    try:
        if name.endswith(".py"):
            _import_file(Path(name))
        else:
            importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a stranger's code does
        for registry, before in known:
            for added in set(registry) - before:
                registry.unregister(added)
        raise UncurseError(f"the plug-in {name} cannot be loaded: {_described(error)}") from error
    _loaded.append(name)


def _import_file(path: Path) -> None:
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


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, UncurseError) else f"{type(error).__name__}: {error}"
