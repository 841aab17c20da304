"""The same work on Ray: the same bytes, and workers and drivers that are killed for real."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from support.kill_rounds import each_round
from support.small_study import SENTENCES, write_plan

MARK = "UNCURSE_TEST"
# Shards are cut in the driver: with a lower cost a small corpus has many.
COMMAND = "from uncurse.translation import shards; shards.COST = 500; from uncurse.cli import main; main()"
WAIT = 120  # seconds; nothing here takes as long
pytestmark = pytest.mark.slow

JOBS = """
import json, os, signal, sys, time
from pathlib import Path
from uncurse.errors import UncurseError
from uncurse.executors.local import JobFailure
from uncurse.executors.ray_cluster import RayExecutor

folder = Path(sys.argv[1])

class Job:
    def __init__(self, number):
        self.number = number

    def __call__(self, model):
        with (folder / f"job-{self.number}").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        if self.number == 3:
            raise RuntimeError("three is broken")
        if self.number == 5 and (folder / "job-5").read_text().count("\\n") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.number == 6:  # so that there is work for the worker that replaces the dead one
            while (folder / "setup").read_text().count("\\n") < 3:
                time.sleep(0.01)
        if self.number == 99:
            raise UncurseError("line 99 is bad")
        return self.number ** 2, model

def setup():
    with (folder / "setup").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    return "the model"

found = {}
for name, result in RayExecutor(workers=2).map(setup, [(number, Job(number)) for number in range(8)]):
    assert name not in found
    found[name] = f"failed: {result.reason}" if isinstance(result, JobFailure) else result
try:
    list(RayExecutor(workers=1).map(setup, [(99, Job(99))]))
except UncurseError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """Names the processes of a test; none of them outlives it."""
    name = uuid.uuid4().hex
    yield name
    end = time.monotonic() + WAIT
    while marked(name) and time.monotonic() < end:
        time.sleep(0.2)
    left = marked(name)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left, "processes were left behind"


def marked(name: str, what: str = "") -> list[int]:
    """The processes that were started with a mark and whose command holds some words."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment, command = (path / "environ").read_bytes(), (path / "cmdline").read_bytes()
        except OSError:
            continue
        if f"{MARK}={name}".encode() in environment and what.encode() in command and command:
            found.append(int(path.name))
    return found


def write_corpus(folder: Path) -> Path:
    corpus = folder / "corpus.zh"
    corpus.write_text("".join(f"{source}\n" for source, _ in SENTENCES * 24), encoding="utf-8")
    return corpus


def started(mark: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, MARK: mark},
    )  # fmt: skip


def translating(corpus: Path, out: Path, *options: str) -> list[str]:
    return ["translate", str(corpus), "--beam-size", "3", "--threads", "1", "--out", str(out), *options]


def completed(process: subprocess.Popen[str], status: int = 0) -> str:
    said, told = process.communicate(timeout=WAIT)
    assert process.returncode == status, told
    return said + told


def shards_done(out: Path) -> int:
    return len(list(out.with_name(out.name + ".parts").glob("[0-9]*.json")))


def wait_for_shards(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + WAIT
    while shards_done(out) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def test_jobs_are_done_elsewhere_when_a_worker_dies_and_given_up_when_they_fail(tmp_path: Path, mark: str) -> None:
    script = tmp_path / "jobs.py"
    script.write_text(JOBS, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, script, tmp_path],
        capture_output=True,
        text=True,
        timeout=WAIT,
        env={**os.environ, MARK: mark},
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout.splitlines()[-1])  # Ray speaks before it
    assert "three is broken" in found.pop("3")
    assert found.pop("error") == "line 99 is bad"
    assert found == {str(number): [number**2, "the model"] for number in (0, 1, 2, 4, 5, 6, 7)}
    tries = {number: len((tmp_path / f"job-{number}").read_text().split()) for number in (0, 3, 5, 99)}
    assert tries == {0: 1, 3: 3, 5: 2, 99: 1}
    assert (
        len((tmp_path / "setup").read_text().split()) == 4
    )  # two workers, one that replaces a dead one, one for 99


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A corpus and what one process makes of it, by the end of the file's name."""
    folder = tmp_path_factory.mktemp("alone")
    corpus = write_corpus(folder)
    for suffix in ("txt", "jsonl"):
        completed(started("none", *translating(corpus, folder / f"out.{suffix}")))
    return corpus, {suffix: (folder / f"out.{suffix}").read_bytes() for suffix in ("txt", "jsonl")}


@each_round
def test_a_cluster_gives_the_bytes_of_one_process_though_its_workers_are_killed(
    alone: tuple[Path, dict[str, bytes]], tmp_path: Path, mark: str, chance: Random
) -> None:
    corpus, expected = alone
    out = tmp_path / "out.jsonl"
    process = started(mark, *translating(corpus, out, "--engine", "ray", "--workers", "2"))
    for count in sorted(chance.sample(range(6), 2)):
        wait_for_shards(out, count, process)
        while not (workers := marked(mark, "ray::_RayWorker")):
            time.sleep(0.01)
        os.kill(chance.choice(workers), signal.SIGKILL)
    completed(process)
    assert out.read_bytes() == expected["jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


@each_round
def test_what_a_killed_driver_left_can_be_resumed_by_any_engine(
    alone: tuple[Path, dict[str, bytes]], tmp_path: Path, mark: str, chance: Random
) -> None:
    corpus, expected = alone
    out = tmp_path / "out.txt"
    process = started(mark, *translating(corpus, out, "--engine", "ray", "--workers", "1"))
    wait_for_shards(out, chance.randrange(1, 6), process)
    process.kill()
    process.communicate(timeout=WAIT)
    assert not out.exists()
    assert "resume it, or remove the folder" in completed(started(mark, *translating(corpus, out)), status=2)
    completed(started(mark, *translating(corpus, out, "--resume")))
    assert out.read_bytes() == expected["txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_workers_know_the_scores_of_the_plug_ins_of_the_driver(
    alone: tuple[Path, dict[str, bytes]], tmp_path: Path, mark: str
) -> None:
    corpus, _ = alone
    page = Path(__file__).parents[2] / "docs" / "plugins.md"
    plugin = tmp_path / "gaussian.py"
    plugin.write_text(page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0], encoding="utf-8")
    for name, engine in (("one", []), ("cluster", ["--engine", "ray", "--workers", "1"])):
        call = translating(corpus, tmp_path / name, "--score", "gaussian-length:sigma=3", *engine)
        completed(started(mark, "--plugin", plugin, *call))
    assert (tmp_path / "cluster").read_bytes() == (tmp_path / "one").read_bytes()


@each_round
def test_one_process_that_is_killed_again_and_again_ends_with_the_same_bytes(
    alone: tuple[Path, dict[str, bytes]], tmp_path: Path, chance: Random
) -> None:
    corpus, expected = alone
    out = tmp_path / "out.jsonl"
    for _ in range(4):
        process = started("none", *translating(corpus, out, "--resume"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=chance.uniform(0.5, 4))
        process.kill()
        process.communicate(timeout=WAIT)
        if out.exists():
            assert out.read_bytes() == expected["jsonl"]
            out.unlink()
    completed(started("none", *translating(corpus, out, "--resume")))
    assert out.read_bytes() == expected["jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.fixture
def running_cluster(mark: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster that someone else has started, and that knows its users by a token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", mark)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["ray", "start", "--head", f"--port={port}", "--num-cpus=2", "--include-dashboard=false", "--block"]
    head = subprocess.Popen(
        [Path(sys.executable).with_name(command[0]), *command[1:]],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, MARK: mark},
    )  # fmt: skip
    end = time.monotonic() + WAIT
    while not marked(mark, "raylet/raylet"):
        assert head.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    head.terminate()
    head.wait(timeout=WAIT)


def test_a_study_on_a_cluster_has_the_bytes_of_one_process(
    tmp_path: Path, mark: str, running_cluster: str
) -> None:
    write_plan(tmp_path)
    run = ["study", "run", str(tmp_path / "plan.toml"), "--data", str(tmp_path), "--out"]
    completed(started(mark, *run, tmp_path / "alone"))
    completed(started(mark, *run, tmp_path / "cluster", "--engine", f"ray:{running_cluster}"))

    def contents(name: str) -> dict[str, bytes]:
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        seconds = [path for path in files if path.with_suffix(".npz").exists() and path.suffix == ".json"]
        return {str(path.relative_to(tmp_path / name)): untimed(path) for path in {*files} - {*seconds}}

    def untimed(path: Path) -> bytes:
        """All but the seconds that a question to the model took, and the checksum over them."""
        return path.read_bytes().partition(b'"seconds"')[0] if path.suffix == ".json" else path.read_bytes()

    found = contents("cluster")
    assert len(found) > 20
    assert found == contents("alone")
