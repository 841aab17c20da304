"""The wheel, installed into a new environment: the core by itself, then with the extra `translate`.

The packages that it requires are linked from the environment of the tests, those and no others, so that nothing is
downloaded and what is not declared is missing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PLAN = shlex.quote(str(ROOT / "studies" / "zh-en-small.toml"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a wheel in it."""

    folder: Path

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python*/site-packages"))

    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, away from the sources."""
        inherited = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        return subprocess.run(
            [self.folder / "bin" / command[0], *command[1:]],
            input=text,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**inherited, "PATH": "/usr/bin:/bin", "PYTHONUTF8": "1", "COLUMNS": "200"},
            timeout=120,
        )

    def link(self, found: Distribution) -> None:
        """Make a package of the environment of the tests importable in this one."""
        tops = {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (self.packages / top).exists():
                (self.packages / top).symlink_to(str(found.locate_file(top)))


def required(declared: list[str], extra: str) -> Iterator[Distribution]:
    """What a list of requirements installs, and what that requires in turn."""
    for requirement in map(Requirement, declared):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            found = distribution(requirement.name)
            if requirement.name != "uncurse":
                yield found
            for each in ["", *requirement.extras]:
                yield from required(found.requires or [], each)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources."""
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    shutil.copytree(
        ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    )
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(sources)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with what the package itself requires."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    environment = Environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True, env=elsewhere)
    with ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        declared = re.findall(r"^Requires-Dist: (.*)$", archive.read(metadata).decode(), flags=re.MULTILINE)
    for found in required(declared, ""):
        environment.link(found)
    return environment


def test_the_core_runs_with_its_own_requirements_alone(core: Environment) -> None:
    assert core.run("python", "-c", "import torch").returncode == 1
    (example,) = (each for each in EXAMPLES if "uncurse.testing" in each)
    done = core.run("python", "-c", example)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^optimal \d+ BEAM$", done.stdout, flags=re.MULTILINE)
    listed = core.run("uncurse", "methods")
    assert listed.returncode == 0, listed.stderr
    assert "f1-norm" in listed.stdout
    assert core.run("uncurse", "--version").stdout.startswith("uncurse ")
    assert core.run("uncurse", "env").returncode == 0


@pytest.mark.parametrize("command", ["translate", "serve", f"study plan {PLAN} --data . --out out"])
def test_a_missing_extra_is_one_line_that_names_it(core: Environment, command: str) -> None:
    done = core.run("uncurse", *shlex.split(command))
    assert done.returncode == 2
    assert re.fullmatch(r".*pip install 'uncurse\[\w+\]'\n", done.stderr)


def test_translation_needs_nothing_but_its_extra(core: Environment) -> None:
    for found in required(["uncurse[translate]"], ""):
        core.link(found)
    done = core.run("uncurse", "translate", text="外面下雨了。\n")
    assert done.returncode == 0, done.stderr
    assert "rain" in done.stdout
    (example,) = (each for each in EXAMPLES if "uncurse.load" in each)
    assert core.run("python", "-c", example).returncode == 0


def test_the_sdist_holds_what_the_readme_links_to(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    skipped = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "pretrained")
    for folder in ("src", "docs"):
        shutil.copytree(ROOT / folder, sources / folder, ignore=skipped)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, sources)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(sources)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    links = set(re.findall(r"\]\((?!https:)([^)#]+)", README))
    assert len(links) > 10
    assert links <= names


def test_the_wheel_serves_every_version_of_python(wheel: Path) -> None:
    assert re.fullmatch(r"uncurse-[\d.]+-py3-none-\w+\.whl", wheel.name)
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"uncurse/py.typed", "uncurse/models/pretrained/zh-en-small/weights.safetensors"} <= names
    assert {"uncurse/serving/page/page.html", "uncurse/web/drawing.js"} <= names
    if shutil.which("c++"):
        assert "uncurse/models/transformer/native/kernels_portable.so" in names
