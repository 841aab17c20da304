"""Full disks, read-only folders, truncated and changed files, met by the real command.

A command says in one line what is wrong and leaves nothing false behind, or it comes to the bytes of a run that
nothing disturbed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fuzz.readers import readers
from support.toy_corpus import write_task

SECONDS = 300  # for a command; it is a bound and no expectation
LINES = "".join(f"{'ba ce di fo gu'[: 2 + index % 13]}\n" for index in range(40))
# The command itself, with shards of a few lines, so that an output has several.
COMMAND = "from uncurse.translation import shards; shards.COST = 200; from uncurse.cli import main; main()"
pytestmark = pytest.mark.slow
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


def uncurse(
    *arguments: str | Path, before: Callable[[], None] | None = None, stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=SECONDS,
        preexec_fn=before,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that could not do what it was asked."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert not done.stdout  # None if it went elsewhere
    assert done.stderr.startswith("uncurse: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, lines, what an undisturbed run makes of them, and an output that was broken off."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "model").mkdir()
    for name, content in readers()["folder of a trained model"].files.items():
        (folder / "model" / name).write_bytes(content)
    (folder / "lines").write_text(LINES, encoding="utf-8")
    done = uncurse(*translating(folder), folder / "whole")
    assert done.returncode == 0, done.stderr
    assert "File too large" in said(uncurse(*translating(folder), folder / "out", before=small_files))
    assert names(folder) == ["lines", "model", "out.parts", "whole"]
    return folder


@pytest.fixture
def here(begun: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(begun, tmp_path / "here")
    return tmp_path / "here"


def translating(folder: Path) -> list[str | Path]:
    options = ["--beam-size", "2", "--length-ratio", "1.2", "--json", "--out"]
    return ["translate", folder / "lines", "--model", folder / "model", *options]


def small_files() -> None:
    """No file may have more than 16,000 bytes; the system sends a signal, which Python turns into an error."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, 16_000))


def like_anybody() -> None:
    """Without the privilege of the superuser to write where nobody may; it is lost with the next program."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) and os.geteuid() == 0:
            raise OSError(ctypes.get_errno(), "the superuser's privilege cannot be dropped")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir()
    (folder / "there").write_text("as it was", encoding="utf-8")
    folder.chmod(0o555)
    probe = ["sh", "-c", f"touch '{folder}/probe'"]
    try:
        allowed = subprocess.run(probe, preexec_fn=like_anybody, capture_output=True, check=False).returncode == 0
    except subprocess.SubprocessError:
        allowed = True
    if allowed:
        folder.chmod(0o755)
        pytest.skip("this user may write into a read-only folder")
    yield folder
    folder.chmod(0o755)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small disk; RLIMIT_FSIZE stands for it")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


# Translations.


def test_a_full_disk_is_one_line_and_the_run_is_resumed_to_the_same_bytes(begun: Path, small_disk: Path) -> None:
    whole = (begun / "whole").read_bytes()
    assert len(whole) > 16_384
    assert "No space left on device" in said(uncurse(*translating(begun), small_disk / "out"))
    assert names(small_disk) == ["out.parts"]
    assert "000000.json" in names(small_disk / "out.parts")
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    done = uncurse(*translating(begun), small_disk / "out", "--resume")
    assert done.returncode == 0, done.stderr
    assert (small_disk / "out").read_bytes() == whole
    assert names(small_disk) == ["out"]


def test_a_file_that_could_not_grow_is_resumed_to_the_same_bytes(here: Path) -> None:
    done = uncurse(*translating(here), here / "out", "--resume")
    assert done.returncode == 0, done.stderr
    assert (here / "out").read_bytes() == (here / "whole").read_bytes()
    assert names(here) == ["lines", "model", "out", "whole"]


def test_a_read_only_folder_is_one_line(begun: Path, read_only: Path) -> None:
    assert "Permission denied" in said(uncurse(*translating(begun), read_only / "out", before=like_anybody))
    assert names(read_only) == ["there"]


def test_an_output_that_takes_no_more_is_one_line(begun: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = uncurse(*translating(begun)[:-1], stdout=full)
    finally:
        os.close(full)
    assert "No space left on device" in said(done)


def flipped(at: int) -> Callable[[bytes], bytes]:
    """One bit, of a byte that is counted from either end."""

    def change(old: bytes) -> bytes:
        new = bytearray(old)
        new[at] ^= 1
        return bytes(new)

    return change


@pytest.mark.parametrize("change", [flipped(100), lambda old: old[:100], None])
def test_a_damaged_or_missing_shard_is_made_again(here: Path, change: Callable[[bytes], bytes] | None) -> None:
    shard = here / "out.parts" / "000001"
    if change is None:
        shard.unlink()
    else:
        shard.write_bytes(change(shard.read_bytes()))
    done = uncurse(*translating(here), here / "out", "--resume")
    assert done.returncode == 0, done.stderr
    assert (here / "out").read_bytes() == (here / "whole").read_bytes()
    assert names(here) == ["lines", "model", "out", "whole"]


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("lines", lambda old: old.replace(b"ba", b"mu", 1), "the input has changed"),
        ("lines", lambda old: old[:20], "the input has changed"),
        ("lines", lambda old: old + b"mu\n", "the input has changed"),
        ("out.parts/000001.json", lambda old: old.replace(b'"lines": ', b'"lines": 1'), "000001.json is damaged"),
        ("model/weights.safetensors", flipped(-3), "weights.safetensors is damaged"),
        ("model/model.json", flipped(50), "model.json is not valid JSON"),
    ],
)
def test_nothing_is_resumed_with_what_was_changed(
    here: Path, name: str, change: Callable[[bytes], bytes], complaint: str
) -> None:
    content = (here / name).read_bytes()
    (here / name).write_bytes(change(content))
    assert (here / name).read_bytes() != content
    assert complaint in said(uncurse(*translating(here), here / "out", "--resume"))
    assert not (here / "out").exists()


# Training.


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    write_task(folder, lines=120, epochs=1)
    return folder


def training(task: Path, out: Path) -> list[str | Path]:
    return ["train", task / "recipe.toml", "--data", task, "--out", out, "--threads", "1"]


@pytest.fixture(scope="module")
def run(task: Path) -> Path:
    done = uncurse(*training(task, task / "run"))
    assert done.returncode == 0, done.stderr
    return task / "run"


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("last.safetensors", lambda old: old[: len(old) // 2], "last.safetensors is not a whole checkpoint"),
        ("last.safetensors", flipped(-9), "it is damaged"),
        ("best.safetensors", flipped(-9), "it is damaged"),
    ],
)
def test_a_damaged_run_is_one_line(
    task: Path, run: Path, tmp_path: Path, name: str, change: Callable[[bytes], bytes], complaint: str
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("model", "tensorboard"))
    (copy / name).write_bytes(change((copy / name).read_bytes()))
    assert complaint in said(uncurse(*training(task, copy)))
    assert not (copy / "model").exists()


def test_other_text_is_not_learnt_with_an_old_checkpoint(task: Path, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "task"
    shutil.copytree(task, other)
    text = (other / "train.target").read_text(encoding="utf-8")
    (other / "train.target").write_text(text.replace("ba", "mu", 1), encoding="utf-8")
    assert "was trained on other text or tokenizers" in said(uncurse(*training(other, other / "run")))


def test_a_run_that_has_no_room_is_one_line_and_comes_to_the_same_weights(
    task: Path, run: Path, tmp_path: Path
) -> None:
    def some_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))  # for subwords, and for no checkpoint

    out = tmp_path / "run"
    done = uncurse(*training(task, out), before=some_room)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("uncurse: ")
    assert "File too large" in done.stderr
    assert not [name for name in names(out) if name.endswith(("safetensors", ".part"))]
    done = uncurse(*training(task, out))
    assert done.returncode == 0, done.stderr
    for name in ("weights.safetensors", "length.safetensors", "model.json"):
        assert (out / "model" / name).read_bytes() == (run / "model" / name).read_bytes()


def test_a_run_in_a_read_only_folder_is_one_line(task: Path, read_only: Path) -> None:
    said(uncurse(*training(task, read_only / "run"), before=like_anybody))
    said(uncurse(*training(task, read_only), before=like_anybody))
    assert names(read_only) == ["there"]


# Studies.

PLAN = """
title = "A small study"
model = "{model}"
beam_sizes = [1]
small = [2]
large = [3]
baseline_beam_size = 1
max_length = "2x+10"
max_lengths = ["2x+10"]
exact = 1
exact_budget = 5
length_ratio = 1.2
dev = {{ source = "dev.source", references = ["dev.target"], lines = 4 }}
test = {{ source = "dev.source", references = ["dev.target"], lines = 4 }}
[tuning.word-reward]
reward = [0.0]
"""


@pytest.fixture(scope="module")
def study(task: Path, run: Path) -> Path:
    (task / "plan.toml").write_text(PLAN.format(model=run / "model"), encoding="utf-8")
    done = uncurse("study", "run", task / "plan.toml", "--data", task, "--out", task / "study")
    assert done.returncode == 0, done.stderr
    return task / "study"


@pytest.mark.parametrize(
    ("pattern", "change", "complaint"),
    [
        ("traces/*/0000.npz", flipped(99), "is not a whole trace file"),
        ("traces/*/0000.npz", None, "have not been decoded"),
        ("reference-scores/references-*.json", lambda old: old.replace(b".", b".1", 1), "remove it and run"),
    ],
)
def test_a_damaged_study_is_one_line(
    task: Path, study: Path, tmp_path: Path, pattern: str, change: Callable[[bytes], bytes] | None, complaint: str
) -> None:
    copy = tmp_path / "study"
    shutil.copytree(study, copy)
    for path in copy.glob(pattern):
        content = path.read_bytes()
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(content))
            assert path.read_bytes() != content
    report = uncurse("study", "report", task / "plan.toml", "--data", task, "--out", copy)
    assert complaint in said(report)
    assert not (copy / "report.html").exists()
    assert not (copy / "tables").exists()
