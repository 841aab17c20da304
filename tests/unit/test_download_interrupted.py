"""Whatever ends a download, it leaves no partial model, and two processes at once download once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.toy_registry import Registry, child

import uncurse.models.download as download_module
from uncurse.models.download import download, downloaded_folder, verify
from uncurse.models.pretrained_models import PretrainedModel


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("step", ["_fetch_archive", "unpack_model", "atomic_write", "verify"])
def test_an_interruption_leaves_nothing_behind(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    original = getattr(download_module, step)

    def cut_short(*arguments: object) -> None:
        original(*arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(download_module, step, cut_short)
        with pytest.raises(error):
            download("toy-zh-en")
    assert registry.files() == []
    verify(download("toy-zh-en"))


def test_the_model_appears_in_one_step(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", cut_short)
    with pytest.raises(KeyboardInterrupt):
        download("toy-zh-en")
    assert registry.files() == []


@pytest.mark.slow
@pytest.mark.parametrize("step", ["_fetch_archive", "unpack_model", "verify", "_install"])
def test_a_killed_process_leaves_no_partial_model_and_the_next_call_cleans_up(
    registry: Registry, tmp_path: Path, step: str
) -> None:
    log = tmp_path / "log"
    process = child(registry.models.parent, log, step, pause=60)
    try:
        deadline = time.monotonic() + 30
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert log.exists()
    complete = downloaded_folder("toy-zh-en") is not None
    assert complete == (step == "_install")
    if not complete:
        assert [name.endswith(".part") for name in registry.files()] == [True]
    verify(download("toy-zh-en"))
    assert registry.files() == ["toy-zh-en"]


@pytest.mark.slow
@pytest.mark.parametrize("request_to_end", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_files_and_no_process_behind(
    registry: Registry, tmp_path: Path, request_to_end: signal.Signals
) -> None:
    running = tmp_path / "pip"
    waiting = (
        f"import os, pathlib, time; pathlib.Path({str(running)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    code = (
        "import subprocess, sys; from uncurse.cli import main; run = subprocess.run\n"
        f"subprocess.run = lambda command, **how: run([sys.executable, '-c', {waiting!r}], **how)\n"
        "main(['models', 'get', 'opus-mt-zh-en'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "UNCURSE_CACHE": str(registry.models.parent)}
    )
    deadline = time.monotonic() + 30
    while not (running.exists() and running.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(request_to_end)
    assert process.wait(30) == 128 + request_to_end
    assert registry.files() == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(running.read_text()), 0)


def test_leftovers_are_removed_before_the_download(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    (registry.models / ".toy-zh-en.abc.part" / "archive").mkdir(parents=True)

    def fails(entry: PretrainedModel, work: Path) -> Path:
        assert registry.files() == [work.name]
        raise OSError("no network")

    monkeypatch.setattr(download_module, "_fetch_archive", fails)
    with pytest.raises(OSError, match="no network"):
        download("toy-zh-en")
    assert registry.files() == []


def test_leftovers_of_a_downloaded_model_are_removed_too(registry: Registry) -> None:
    download("toy-zh-en")
    (registry.models / ".toy-zh-en.abc.part").mkdir()
    download("toy-zh-en")
    assert registry.files() == ["toy-zh-en"]
    assert registry.downloads == 1


@pytest.mark.slow
def test_two_processes_at_once_download_once(registry: Registry, tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [child(registry.models.parent, log, "_fetch_archive", pause=0.5) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert log.read_text() == "done\n"
    assert registry.files() == ["toy-zh-en"]
