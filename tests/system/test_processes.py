"""Several processes train as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file
from support.gradients import SaveGradients, gradients
from support.processes import SECONDS, Command, StartedProcess, run, started, training, wait_for_step
from support.toy_corpus import write_checkpointing_task

from uncurse.errors import UncurseError
from uncurse.models.lstm.folder import load_folder
from uncurse.training.checkpoint import load_checkpoint
from uncurse.training.distributed import SINGLE_PROCESS, _failed_first
from uncurse.training.loop import Trainer, dropout_seed
from uncurse.training.recipe import read_recipe

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second of training, with dropout, so that random numbers matter."""
    return write_checkpointing_task(tmp_path_factory.mktemp("task"))


@pytest.fixture(scope="module")
def pair(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes that were given different folders."""
    folder = tmp_path_factory.mktemp("pair")
    statuses = run(folder, [training(recipe, folder / name) for name in ("run", "other")])
    assert statuses == [0, 0], (folder / "error.0").read_text() + (folder / "error.1").read_text()
    return folder


def lines_of(*processes: StartedProcess) -> list[str]:
    """The error lines of processes."""
    said = "".join(each.error.read_text(encoding="utf-8") for each in processes)
    return [line for line in said.splitlines() if line.startswith("uncurse: ") or "Error" in line]


def test_gradients_and_perplexity_are_those_of_one_process(tmp_path: Path) -> None:
    recipe = write_checkpointing_task(tmp_path, dropout=0.0)
    assert run(tmp_path, [SaveGradients(recipe, tmp_path)] * 2) == [0, 0], (tmp_path / "error.0").read_text()
    one, two = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    single = gradients(recipe, tmp_path / "single", SINGLE_PROCESS)
    assert one.keys() == two.keys() == single.keys()
    for name, expected in single.items():
        if name not in ("seed", "dev"):
            assert one[name].equal(two[name]), name
            assert (one[name] - expected).abs().max() <= 1e-5, name
            assert expected.abs().max() > 1e-3 or "attention" in name, name
    assert one["dev"].item() == two["dev"].item() == single["dev"].item()


def test_dropout_differs_by_process_and_step_and_can_be_repeated(tmp_path: Path, recipe: Path) -> None:
    assert run(tmp_path, [SaveGradients(recipe, tmp_path)] * 2) == [0, 0]
    seeds = [int(load_file(tmp_path / f"{rank}.safetensors")["seed"]) for rank in range(2)]
    assert seeds == [dropout_seed(3, 0, 0), dropout_seed(3, 0, 1)]
    assert (
        len({dropout_seed(seed, step, rank) for seed in range(5) for step in range(40) for rank in range(5)})
        == 1000
    )


def test_only_rank_zero_writes(pair: Path) -> None:
    assert not (pair / "other").exists()
    assert load_folder(pair / "run" / "model").predictor is not None
    assert len(list((pair / "run" / "tensorboard").iterdir())) == 1
    rows = (pair / "run" / "log.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "7", "14"]
    assert "the model is in" in (pair / "out.0").read_text(encoding="utf-8")
    assert (pair / "out.1").read_text(encoding="utf-8") == ""
    assert (pair / "error.1").read_text(encoding="utf-8") == ""


def test_two_processes_asked_to_stop_resume_to_the_same_weights(recipe: Path, pair: Path, tmp_path: Path) -> None:
    """The signal reaches only one of them, and both stop at the same step."""
    work = [training(recipe, tmp_path / "run")] * 2
    with started(tmp_path, work) as processes:
        wait_for_step(tmp_path / "run", 3)
        os.kill(processes[1].process.pid or 0, signal.SIGTERM)
        assert [each.wait() for each in processes] == [130, 130]
        assert set(lines_of(*processes)) == {"uncurse: interrupted"}
    assert 3 <= load_checkpoint(tmp_path / "run" / "last.safetensors").metadata["step"] < 14
    assert run(tmp_path, work) == [0, 0]
    for name in ("last.safetensors", "best.safetensors", "model/weights.safetensors", "model/length.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (pair / "run" / name).read_bytes(), name


def test_a_run_cannot_change_its_number_of_processes(recipe: Path, pair: Path) -> None:
    with pytest.raises(UncurseError, match="was trained by 2 processes, not 1"):
        Trainer(read_recipe(recipe), recipe.parent, pair / "run")


def test_an_error_of_all_processes_is_one_line(recipe: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(recipe.read_text(encoding="utf-8").replace("epochs", "epoch"), encoding="utf-8")
    with started(tmp_path, [training(bad, tmp_path / "run", recipe.parent)] * 2) as processes:
        assert [each.wait() for each in processes] == [2, 2]
        (line,) = lines_of(*processes)
        assert "unknown key 'training.epoch'; did you mean 'epochs'?" in line
    assert not (tmp_path / "run").exists()


def test_an_error_of_one_process_ends_all_with_one_line(recipe: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    work = [training(recipe, tmp_path / "run"), training(recipe, tmp_path / "run", elsewhere)]
    with started(tmp_path, work) as processes:
        assert [each.wait() for each in processes] == [2, 2]
        (line,) = lines_of(*processes)
        assert str(elsewhere / "train.source") in line


def test_a_process_with_other_text_is_refused(recipe: Path, tmp_path: Path) -> None:
    write_checkpointing_task(tmp_path, lines=201)
    work = [training(recipe, tmp_path / "run"), training(recipe, tmp_path / "run", tmp_path)]
    with started(tmp_path, work) as processes:
        assert [each.wait() for each in processes] == [2, 2]
        (line,) = lines_of(*processes)
        assert "process 1 and process 0 must have the same text and recipe" in line


def test_a_process_with_another_precision_is_refused(recipe: Path, tmp_path: Path) -> None:
    one = training(recipe, tmp_path / "run")
    other = Command((*one.arguments, "--precision", "bfloat16"))
    with started(tmp_path, [one, other]) as processes:
        assert [each.wait() for each in processes] == [2, 2]
        (line,) = lines_of(*processes)
        assert "process 1 and process 0 must have the same versions, kind of CPU and precision" in line


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_process_is_not_waited_for_forever(recipe: Path, tmp_path: Path, frozen: int) -> None:
    with started(tmp_path, [training(recipe, tmp_path / "run")] * 2, timeout=10.0) as processes:
        wait_for_step(tmp_path / "run", 3)
        os.kill(processes[frozen].process.pid or 0, signal.SIGSTOP)
        other = processes[1 - frozen]
        assert other.wait() == 2
        (line,) = lines_of(other)
        assert "another process of this run has ended or does not answer" in line


def test_an_error_is_printed_if_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that has the store is frozen, or it is gone."""
    monkeypatch.setattr("uncurse.training.distributed.STORE_SECONDS", 0.1)
    answers = Event()
    for add in (lambda name, count: answers.wait(), gone):
        store = SimpleNamespace(add=add)
        before = signal.getsignal(signal.SIGTERM)
        try:
            assert _failed_first(store)  # type: ignore[arg-type]
        finally:
            signal.signal(signal.SIGTERM, before)
    answers.set()


def gone(name: str, count: int) -> int:
    raise RuntimeError("Broken pipe")


def test_torchrun_restarts_the_processes_when_one_is_killed(recipe: Path, pair: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "uncurse", *training(recipe, tmp_path / "run").arguments]
    with (tmp_path / "error").open("wb") as said:
        run = subprocess.Popen([*launcher, "--max-restarts", "1", *command], stdout=said, stderr=said)
    try:
        wait_for_step(tmp_path / "run", 1)
        os.kill(child_of(run.pid, "RANK=1"), signal.SIGKILL)
        assert run.wait(SECONDS) == 0, (tmp_path / "error").read_text(encoding="utf-8")
    finally:
        run.terminate()  # and its processes with it
        run.wait(SECONDS)
    assert (tmp_path / "run" / "last.safetensors").read_bytes() == (pair / "run" / "last.safetensors").read_bytes()
    assert (tmp_path / "error").read_text(encoding="utf-8").count("the model is in") == 1


def child_of(parent: int, variable: str) -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, variables = (folder / "stat").read_text(), (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if int(status.rpartition(")")[2].split()[1]) == parent and variable.encode() in variables:
            return int(folder.name)
    raise AssertionError(f"{parent} has no child with {variable}")
