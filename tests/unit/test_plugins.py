"""Scores and rules that a file, a module or an installed package registers work in every subcommand."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from uncurse import RULES, SCORES, Decoding, Sentence, UncurseError, beam_search, plugins
from uncurse.cli import main
from uncurse.plugins import load_plugins, loaded_plugins
from uncurse.scoring.registry import source_digest
from uncurse.testing import RandomModel

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
GAUSSIAN = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)[0]


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers or imports is forgotten after it."""
    known, modules = [(registry, set(registry)) for registry in (SCORES, RULES)], set(sys.modules)
    monkeypatch.setattr(plugins, "_loaded", {})
    yield
    for registry, before in known:
        for name in set(registry) - before:
            registry.unregister(name)
    for name in set(sys.modules) - modules:
        if name.startswith(("uncurse_plugin_", "my_plugin", "declared_plugin")):
            del sys.modules[name]


@pytest.fixture
def gaussian(tmp_path: Path) -> Path:
    path = tmp_path / "gaussian.py"
    path.write_text(GAUSSIAN, encoding="utf-8")
    return path


def test_a_plug_in_takes_ten_lines() -> None:
    assert len([line for line in GAUSSIAN.splitlines() if line.strip()]) <= 10


def test_a_file_is_listed_and_translates_and_explains(
    gaussian: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = ["--plugin", str(gaussian)]
    main([*plugin, "methods"])
    assert "gaussian-length" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("外面下雨了。\n".encode())))
    main([*plugin, "translate", "--beam-size", "2", "--score", "gaussian-length:sigma=3", "--json"])
    assert "score:gaussian-length:sigma=3.0" in capsys.readouterr().out
    main([*plugin, "explain", "--beam-size", "2", "外面下雨了。"])
    assert "gaussian-length" in capsys.readouterr().out


@pytest.mark.slow
def test_the_commands_that_a_study_prints_load_the_plug_in_again(
    gaussian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a study"
    folder.mkdir()
    for name in ("zh", "en"):
        (folder / name).write_text("外面下雨了。\n", encoding="utf-8")
    text = '{source = "zh", references = ["en"]}'
    plan = folder / "plan.toml"
    plan.write_text(
        'title = "One sentence"\nmodel = "zh-en-small"\nbeam_sizes = [1]\nsmall = [1]\nlarge = [1]\nexact = 0\n'
        'baseline_beam_size = 1\nmax_lengths = ["q0.8"]\nscores = ["gaussian-length:sigma=1"]\n\n'
        f'stops = ["optimal"]\ndev = {text}\ntest = {text}\n',
        encoding="utf-8",
    )
    out = tmp_path / "out"
    main(["--plugin", str(gaussian), "study", "run", str(plan), "--data", str(folder), "--out", str(out)])
    printed = capsys.readouterr().out.partition("now: ")[2]
    main(shlex.split(printed)[1:])
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "uncurse --plugin gaussian.py study run plan.toml --data DATA --out FOLDER" in page


def test_a_module_by_name_and_what_a_package_declares_are_loaded_once(
    gaussian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_plugin.py").write_text(GAUSSIAN, encoding="utf-8")
    (tmp_path / "declared_plugin.py").write_text(
        GAUSSIAN.replace("gaussian-length", "declared-length"), encoding="utf-8"
    )
    installed = tmp_path / "declared_plugin-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: declared_plugin\nVersion: 1\n", "utf-8")
    (installed / "entry_points.txt").write_text(
        "[uncurse.plugins]\ndeclared = declared_plugin:GaussianLength\n", "utf-8"
    )
    for _ in range(2):
        load_plugins(["my_plugin"])
    assert {"gaussian-length", "declared-length"} <= set(SCORES)
    assert loaded_plugins() == ("declared_plugin", "my_plugin")


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import uncurse\nuncurse.nothing", "AttributeError: module 'uncurse' has no attribute 'nothing'"),
        ("def", "SyntaxError: "),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        (GAUSSIAN.replace("gaussian-length", "bp-norm"), "score 'bp-norm' is registered already"),
        (GAUSSIAN.replace("default=2.0", "default='2'"), "the default of sigma = '2' is not allowed"),
        (
            GAUSSIAN.replace("default=2.0", "default=2.0, grid=(0.0, 1.0)"),
            "the grid of sigma = 0.0 is not",
        ),
        (GAUSSIAN + "\n1 / 0\n", "ZeroDivisionError"),
        (GAUSSIAN.replace("def score", "def scores"), "score 'gaussian-length' must define score"),
        (None, "there is no such file"),
    ],
)
def test_a_plug_in_that_fails_is_one_line_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str | None, complaint: str
) -> None:
    path, before = tmp_path / "broken.py", set(SCORES)
    if code is not None:
        path.write_text(code, encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        main(["--plugin", str(path), "methods"])
    said = capsys.readouterr().err
    assert said.startswith(f"uncurse: the plug-in {path} cannot be loaded: ")
    assert complaint in said
    assert said.count("\n") == 1
    assert set(SCORES) == before  # what it had registered before it failed is gone, too


def failed(
    gaussian: Path, change: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[object, list[str]]:
    """The exit status and the lines of a translation by a plug-in that was changed."""
    gaussian.write_text(GAUSSIAN.replace(*change), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    with pytest.raises(SystemExit) as stopped:
        main(["--plugin", str(gaussian), "translate", "--score", "gaussian-length"])
    return stopped.value.code, capsys.readouterr().err.splitlines()


def test_what_a_plug_in_raises_is_shown_as_its_own(
    gaussian: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, lines = failed(gaussian, ("paths.length", "paths.size"), capsys, monkeypatch)
    assert status == 1
    assert lines[-1].startswith(f"uncurse: the plug-in {gaussian} failed: AttributeError: 'Paths' object has no")
    assert f'File "{gaussian}", line 10, in score' in lines[0]
    assert not any("src/uncurse" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "status", "complaint"),
    [
        (
            ("(self, source, paths)", "(self, paths)"),
            1,
            "the plug-in {path} failed: TypeError: GaussianLength.score",
        ),
        (("paths.log_prob -", "float('nan') *"), 2, "{path}: GaussianLength.score is NaN for some hypotheses"),
        (("return", "return 3 #"), 2, "{path}: GaussianLength.score must return a float64 for each hypothesis"),
    ],
)
def test_a_plug_in_that_breaks_the_contract_is_one_line_that_names_it(
    gaussian: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str],
    status: int,
    complaint: str,
) -> None:
    found, (line,) = failed(gaussian, change, capsys, monkeypatch)
    assert found == status
    assert line.startswith(f"uncurse: {complaint.format(path=gaussian)}")


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(UncurseError, match="the plug-in no_such_module cannot be loaded: ModuleNotFoundError"):
        load_plugins(["no_such_module"])


def test_a_signature_tells_two_plug_ins_of_one_name_apart(gaussian: Path) -> None:
    load_plugins([str(gaussian)])
    model, sentence = RandomModel(1, vocab_size=9), Sentence((1,), max_length=5, expected_length=3.0)
    (result,) = beam_search(model, [sentence], Decoding(beam_size=2, score="gaussian-length"))
    digest = source_digest(SCORES.parse("gaussian-length"))
    assert f"|score:gaussian-length@{digest}|" in result.signature


def test_the_code_of_a_plug_in_has_a_checksum_and_that_of_this_package_a_version(gaussian: Path) -> None:
    load_plugins([str(gaussian)])
    digest = source_digest(SCORES.parse("gaussian-length"))
    assert digest is not None
    assert source_digest(SCORES.parse("bp-norm")) is None
    assert source_digest(RULES.parse("optimal")) is None
    gaussian.write_text(GAUSSIAN + "# changed\n", encoding="utf-8")
    assert source_digest(SCORES.parse("gaussian-length")) != digest
