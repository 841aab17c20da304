"""Training that is killed at random moments ends with the same bytes as a run that was left alone.

`UNCURSE_KILLS` says how often to kill (`make soak`: often); `UNCURSE_SEED` repeats the moments of a run.
"""

from __future__ import annotations

import csv
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.kill_rounds import SEED
from support.processes import Command, StartedProcess, started, training
from support.toy_corpus import write_checkpointing_task

from uncurse.models.lstm.folder import load_folder
from uncurse.text.sentencepiece_tokenizer import SentencePieceTokenizer
from uncurse.training.checkpoint import load_checkpoint

KILLS = int(os.environ.get("UNCURSE_KILLS", "4"))
STEPS = 14
UNCOMPARED = {"tensorboard", ".lock"}  # events have timestamps


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpointing_task(tmp_path_factory.mktemp("task"))


def saved_step(folder: Path) -> int:
    """The step that a run would resume from; everything else in its folder must be intact."""
    for name in ("source.spm", "target.spm"):
        if (folder / name).exists():
            assert len(SentencePieceTokenizer((folder / name).read_bytes())) == 300
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
    return int(load_checkpoint(path).metadata["step"]) if path.exists() else -1


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a finished run; the log without its last column, the speed."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in UNCOMPARED
    }
    files["log.csv"] = b"\n".join(line.rpartition(b",")[0] for line in files["log.csv"].splitlines())
    return files


def wait_for_moment(rng: random.Random, out: Path, seconds: float, victim: StartedProcess) -> None:
    """Wait for a random time, or until a random one of the next files is half-written."""
    if rng.random() < 0.5:
        victim.process.join(rng.uniform(0.0, seconds))
        return
    count, writing = rng.randint(1, 12), False
    while count and victim.process.is_alive():
        before, writing = writing, any(half_written(out))
        count -= writing and not before


def half_written(out: Path) -> Iterator[Path]:
    for folder in (out, out / "model"):
        yield from folder.glob(".*.part")


def finish(folder: Path, work: Sequence[Command]) -> float:
    """Let processes finish undisturbed; the seconds that it takes."""
    start = time.monotonic()
    with started(folder, work) as processes:
        assert [each.wait() for each in processes] == [0] * len(work), processes[0].error.read_text()
    return time.monotonic() - start


def survive(folder: Path, work: Sequence[Command], rng: random.Random) -> None:
    """Kill one of the processes at a random moment, again and again; then let them finish."""
    out = folder / "run"
    finish(folder, work)
    expected = contents(out)
    out.rename(folder / "undisturbed")
    seconds = finish(folder, work)
    happened, saved = Counter(runs=3), STEPS
    while happened["kills"] < KILLS:
        if saved == STEPS:
            assert contents(out) == expected
            out.rename(folder / f"finished.{happened['runs']}")
            saved = -1
        victim = rng.randrange(len(work))
        with started(folder, work) as processes:
            wait_for_moment(rng, out, seconds, processes[victim])
            processes[victim].process.kill()
            statuses = [each.wait() for each in processes]
        for rank, status in enumerate(statuses):  # 0 if there was nothing left to do
            assert status in ((-9, 0) if rank == victim else (2, 0)), processes[rank].error.read_text()
        happened.update(runs=1, kills=statuses[victim] == -9, half_written=any(half_written(out)))
        before, saved = saved, saved_step(out)
        assert saved >= before, f"{before - saved} steps were lost"
        if saved == STEPS:
            finish(folder, work)
    finish(folder, work)
    assert contents(out) == expected
    print(f"{len(work)} processes, {seconds:.1f} s undisturbed: {dict(happened)}")  # noqa: T201


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_killed_training_resumes_to_the_same_bytes(recipe: Path, tmp_path: Path, count: int) -> None:
    print(f"UNCURSE_KILLS={KILLS} UNCURSE_SEED={SEED}")  # noqa: T201
    survive(tmp_path, [training(recipe, tmp_path / "run")] * count, random.Random(f"{SEED} {count}"))
