"""Imports follow the arrows of docs/architecture.md, and the core imports nothing heavier than NumPy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import uncurse

ROOT = Path(uncurse.__file__).parent

# What each package builds on. Single files at the top (errors, arrays, …) may be imported from everywhere.
ARROWS = {
    "storage": [],
    "constraints": [],
    "scoring": ["constraints"],
    "search": ["storage", "scoring"],
    "testing": ["search"],
    "lengths": ["search"],
    "text": ["storage"],
    "models": ["lengths", "text"],
    "executors": [],
    "translation": ["models", "executors"],
    "training": ["models"],
    "evaluation": [],
    "web": [],
    "study": ["translation", "evaluation", "web"],
    "serving": ["translation", "web"],
    "cli": ["study", "serving", "training"],
}


def allowed_in(package: str) -> set[str]:
    """The packages that a package may import: those it builds on, those they build on, and itself."""
    return {package}.union(*(allowed_in(each) for each in ARROWS[package]))


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == "uncurse"}


def test_every_package_imports_only_what_its_arrows_lead_to() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(ARROWS)
    top = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__", "huggingface"}
    for package in packages:
        for path in (ROOT / package).rglob("*.py"):
            for name in imported_modules(path):
                assert name != "uncurse", f"{path.name} imports from the package itself"
                assert name.split(".")[1] in allowed_in(package) | top, f"{package}: {path.name} imports {name}"


def test_files_at_the_top_import_no_package() -> None:
    for name in {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__", "huggingface", "plugins"}:
        assert not imported_modules(ROOT / f"{name}.py") - {"uncurse.errors"}, name


def test_a_class_name_occurs_once() -> None:
    names = Counter(
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert not {name for name, count in names.items() if count > 1}


def test_values_of_many_fields_are_built_by_keyword() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    values = {
        node.name
        for _, node in nodes
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    }
    by_place = {
        f"{path.name}:{node.lineno}: {node.func.id}"
        for path, node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in values
        if len(node.args) > 4 and not any(isinstance(each, ast.Starred) for each in node.args)
    }
    assert not by_place


def test_the_core_imports_nothing_heavier_than_numpy() -> None:
    code = "import sys, uncurse, uncurse.testing; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = ast.literal_eval(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    standard = sys.stdlib_module_names
    assert {name for name in loaded if name not in standard and not name.startswith("_")} <= {"numpy", "uncurse"}
