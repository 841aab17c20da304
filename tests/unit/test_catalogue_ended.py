"""Whatever ends a fetch, it leaves no half model, and two at once fetch but one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_registry import Registry, child

import uncurse.catalogue as catalogue
from uncurse.catalogue import Entry


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("step", ["_unpack", "_copy", "write_whole", "verify"])
def test_an_interruption_leaves_nothing_behind(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    right = getattr(catalogue, step)

    def cut_short(*arguments: object) -> None:
        right(*arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(catalogue, step, cut_short)
        with pytest.raises(error):
            catalogue.get("toy-zh-en")
    assert registry.left() == []
    catalogue.verify(catalogue.get("toy-zh-en"))


def test_the_model_appears_in_one_step(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_short(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", cut_short)
    with pytest.raises(KeyboardInterrupt):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


@pytest.mark.parametrize("step", ["_download", "_unpack", "verify", "_fetch"])
def test_a_killed_process_leaves_no_half_model_and_the_next_call_cleans_up(
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
    fetched = catalogue.folder_of("toy-zh-en") is not None
    assert fetched == (step == "_fetch")
    if not fetched:
        assert [name.endswith(".part") for name in registry.left()] == [True]
    catalogue.verify(catalogue.get("toy-zh-en"))
    assert registry.left() == ["toy-zh-en"]


@pytest.mark.parametrize("request_to_end", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_asked_to_end_leaves_nothing_behind_and_nobody_running(
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
    assert registry.left() == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(running.read_text()), 0)


def test_leftovers_make_room_before_the_download(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    (registry.models / ".toy-zh-en.abc.part" / "archive").mkdir(parents=True)

    def fails(entry: Entry, work: Path) -> Path:
        assert registry.left() == [work.name]
        raise OSError("no network")

    monkeypatch.setattr(catalogue, "_download", fails)
    with pytest.raises(OSError, match="no network"):
        catalogue.get("toy-zh-en")
    assert registry.left() == []


def test_leftovers_beside_a_fetched_model_are_cleaned_too(registry: Registry) -> None:
    catalogue.get("toy-zh-en")
    (registry.models / ".toy-zh-en.abc.part").mkdir()
    catalogue.get("toy-zh-en")
    assert registry.left() == ["toy-zh-en"]
    assert registry.downloads == 1


def test_two_processes_at_once_download_once(registry: Registry, tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [child(registry.models.parent, log, "_download", pause=0.5) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert log.read_text() == "done\n"
    assert registry.left() == ["toy-zh-en"]
