"""Training is killed at random moments, and goes on to the bytes of a run that was left alone.

`UNCURSE_KILLS` says how often (`make soak`: long), `UNCURSE_SEED` repeats the moments of a run.
"""

from __future__ import annotations

import csv
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from launching import Command, started, training
from made_up import write_restless_task

from uncurse.models.directory import load_folder
from uncurse.text.subwords import Subwords
from uncurse.training.checkpoint import load_checkpoint

KILLS = int(os.environ.get("UNCURSE_KILLS", "4"))
SEED = int(os.environ.get("UNCURSE_SEED", secrets.randbelow(2**32)))
STEPS = 14
PASSING = {"tensorboard", ".lock"}  # events carry times


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_restless_task(tmp_path_factory.mktemp("task"))


def step_of(folder: Path) -> int:
    """The step a run would go on from, once everything in its folder is known to be whole."""
    for name in ("source.spm", "target.spm"):
        if (folder / name).exists():
            assert len(Subwords((folder / name).read_bytes())) == 300
    if (folder / "best.safetensors").exists():
        assert load_checkpoint(folder / "best.safetensors").tensors
    if (folder / "log.csv").exists():
        with (folder / "log.csv").open(newline="", encoding="utf-8") as file:
            assert all(None not in row.values() for row in csv.DictReader(file))
    if (folder / "perplexity.png").exists():
        assert (folder / "perplexity.png").read_bytes().endswith(b"IEND\xaeB`\x82")
    if (folder / "model" / "model.json").exists():
        load_folder(folder / "model")
    path = folder / "last.safetensors"
    return int(load_checkpoint(path).facts["step"]) if path.exists() else -1


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a finished run; the log without the speed."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in PASSING
    }
    files["log.csv"] = b"\n".join(line.rpartition(b",")[0] for line in files["log.csv"].splitlines())
    return files


def survive(folder: Path, work: Sequence[Command], chance: random.Random) -> None:
    """Kill one of the processes at a random moment, again and again, then let them finish."""
    out = folder / "run"
    begun = time.monotonic()
    with started(folder, work) as processes:
        assert [each.wait() for each in processes] == [0] * len(work), processes[0].error.read_text()
    seconds = time.monotonic() - begun
    expected = contents(out)
    out.rename(folder / "undisturbed")
    happened: Counter[str] = Counter()
    before = -1
    while happened["kills"] < KILLS:
        victim, moment = chance.randrange(len(work)), chance.uniform(0.0, seconds)
        with started(folder, work) as processes:
            time.sleep(moment)
            processes[victim].process.kill()
            statuses = [each.wait() for each in processes]
        happened["kills"] += statuses[victim] == -9
        for rank, status in enumerate(statuses):
            assert status in ((-9, 0) if rank == victim else (2, 0)), processes[rank].error.read_text()
        happened["half-written"] += any(out.rglob(".*.part"))
        step = step_of(out)
        happened["steps gained"] += max(step - max(before, 0), 0)
        assert step >= before, f"{before - step} steps were lost"
        before = step
        happened["runs"] += 1
        if statuses == [0] * len(work):  # it was through before its time
            assert contents(out) == expected
            happened["finished"] += 1
            out.rename(folder / f"finished.{happened['finished']}")
            before = -1
    with started(folder, work) as processes:
        assert [each.wait() for each in processes] == [0] * len(work), processes[0].error.read_text()
    assert contents(out) == expected
    assert step_of(out) == STEPS
    print(f"{len(work)} processes, {seconds:.1f} s undisturbed: {dict(happened)}")  # noqa: T201


@pytest.mark.parametrize("count", [1, 2])
def test_killed_training_goes_on_to_the_same_bytes(recipe: Path, tmp_path: Path, count: int) -> None:
    print(f"UNCURSE_KILLS={KILLS} UNCURSE_SEED={SEED}")  # noqa: T201
    survive(tmp_path, [training(recipe, tmp_path / "run")] * count, random.Random(f"{SEED} {count}"))
