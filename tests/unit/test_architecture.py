"""Imports point one way, and the core imports nothing heavier than NumPy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import uncurse

ROOT = Path(uncurse.__file__).parent

# Each module may import those above it.
ORDER = [
    "arrays",
    "version",
    "files",
    "signals",
    "bar",
    "jsonfile",
    "pages",
    "registry",
    "settings",
    "catalogue",
    "coverage",
    "rescoring",
    "stopping",
    "model",
    "length",
    "decoding",
    "result",
    "certificate",
    "trace",
    "tracefile",
    "judging",
    "ranking",
    "ledger",
    "batch",
    "beam",
    "search",
    "exact",
    "forced",
    "explaining",
    "testing",
    "shards",
    "translator",
    "records",
    "text",
    "parts",
    "engines",
    "models",
    "generate_call",
    "generating",
    "loading",
    "corpus",
    "training",
    "evaluation",
    "study",
    "serving",
    "cli",
    "__main__",
]


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert "uncurse" not in names, f"{path.name} imports from the package itself"
        rooms |= {name.split(".")[1] for name in names if name.startswith("uncurse.")}
    return rooms


def test_imports_point_one_way() -> None:
    modules = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]
    assert {room_of(path) for path in modules} == set(ORDER)
    for path in modules:
        room = room_of(path)
        allowed = {*ORDER[: ORDER.index(room)], room}
        assert imported_rooms(path) <= allowed, f"{path.name} imports {imported_rooms(path) - allowed}"


def test_the_core_imports_nothing_heavier_than_numpy() -> None:
    code = "import sys, uncurse, uncurse.testing; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = ast.literal_eval(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    standard = sys.stdlib_module_names
    assert {name for name in loaded if name not in standard and not name.startswith("_")} <= {"numpy", "uncurse"}
