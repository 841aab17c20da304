"""`uncurse serve` as a user meets it, with the bundled model."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from uncurse.cli import main
from uncurse.serving.examples import CHINESE

UNCURSE = [sys.executable, "-c", "from uncurse.cli import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
PATIENCE = 120  # seconds for what should take a few
LINES = [CHINESE[0], "", CHINESE[7], "默认情况下，每个线程都有自己的缓冲区。"]


@dataclass
class ServeProcess:
    """A service in a process of its own."""

    process: subprocess.Popen[str]
    host: str
    port: int

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, host: str | None = None
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        headers = {"Content-Type": "application/json"} | ({} if host is None else {"Host": host})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text


@contextmanager
def served(*options: str) -> Iterator[ServeProcess]:
    command = [*UNCURSE, "serve", "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, encoding="utf-8"
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://(.+):(\d+)$", line.strip())
        assert address, (line, process.communicate(timeout=PATIENCE))
        yield ServeProcess(process, address[1], int(address[2]))
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


@pytest.mark.slow
def test_it_answers_like_uncurse_translate_and_stops_cleanly() -> None:
    options = ["--beam-size", "6", "--n-best", "2"]
    offline = subprocess.run(
        [*UNCURSE, "translate", "--json", *options],
        input="".join(f"{line}\n" for line in LINES),
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
        env=ENVIRONMENT,
    )
    expected = [json.loads(line) for line in offline.stdout.splitlines()]
    with served() as service:
        assert service.host == "127.0.0.1"
        status, text = service.ask("POST", "/translate", {"sentences": LINES, "beam_size": 6, "n_best": 2})
        assert status == 200
        found = json.loads(text)
        assert found["model"] == "zh-en-small"
        for one, two in zip(found["translations"], expected, strict=True):
            assert one.pop("in_time")
            assert one["tokens"] == two["tokens"]
            assert one["text"] == two["text"]
            assert one["certificate"] == two["certificate"]
            assert one["steps"] == two["steps"]
            assert one["score"] == pytest.approx(two["score"], abs=1e-4)
            assert one.keys() == two.keys() - {"line", "source", "source_truncated", "id"}  # of an input file
        status, text = service.ask("POST", "/explain", {"sentence": LINES[0], "beam_size": 6})
        assert status == 200
        assert len({outcome["text"] for outcome in json.loads(text)["outcomes"]}) > 1
        assert service.ask("GET", "/health")[0] == 200
        assert service.ask("GET", "/health", host="evil.example")[0] == 421
        assert CHINESE[0] in service.ask("GET", "/")[1]

        for request, answer in examples():
            _, text = service.ask("POST", "/translate", request)
            assert_shown(json.loads(text), answer)

        answers: list[tuple[int, str]] = []
        asking = [
            threading.Thread(
                target=lambda: answers.append(
                    service.ask("POST", "/translate", {"sentences": LINES, "beam_size": 40})
                )
            )
            for _ in range(4)
        ]
        for thread in asking:
            thread.start()
        end = time.monotonic() + PATIENCE
        while json.loads(service.ask("GET", "/health")[1])["searching"] < 3 and time.monotonic() < end:
            time.sleep(0.01)
        service.process.send_signal(signal.SIGTERM)
        for thread in asking:
            thread.join(PATIENCE)
        assert [status for status, _ in answers] == [200] * 4
        # The last digits of a log-probability depend on the batch.
        found = [[each["tokens"] for each in json.loads(text)["translations"]] for _, text in answers]
        assert all(each == found[0] for each in found)
        assert service.process.wait(PATIENCE) in (0, -signal.SIGTERM)
        with pytest.raises(OSError, match="refused"):
            service.ask("GET", "/health")


def examples() -> list[tuple[Any, Any]]:
    """The requests and responses in the documentation."""
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    requests = re.findall(r"/translate -H [^\n]* -d '\n(.*?)'\n```", page, flags=re.DOTALL)
    answers = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
    assert len(requests) == len(answers) == 2
    return [(json.loads(one), json.loads(two)) for one, two in zip(requests, answers, strict=True)]


def assert_shown(found: Any, written: Any) -> None:
    """Everything in the document is in the response; numbers as far as they are written."""
    if isinstance(written, dict):
        for key, value in written.items():
            assert_shown(found[key], value)
    elif isinstance(written, list):
        assert len(found) == len(written)
        for one, two in zip(found, written, strict=True):
            assert_shown(one, two)
    elif isinstance(written, float):
        assert found == pytest.approx(written, abs=1e-3)
    else:
        assert found == written


@pytest.mark.slow
def test_a_token_and_examples_come_from_files(tmp_path: Path) -> None:
    token, examples = tmp_path / "token", tmp_path / "examples.txt"
    token.write_text("s3cret\n", encoding="utf-8")
    examples.write_text("你好。\n\n再见。\n", encoding="utf-8")
    with served("--token-file", str(token), "--examples", str(examples), "--max-beam-size", "7") as service:
        assert service.ask("GET", "/methods")[0] == 401
        status, text = service.ask("GET", "/methods", token="s3cret")
        assert status == 200
        assert json.loads(text)["limits"]["beam_size"] == 7
        page = service.ask("GET", "/")[1]
        assert '"examples":["你好。","再见。"],"token":true' in page
        assert "s3cret" not in page
        service.process.send_signal(signal.SIGINT)
        _, errors = service.process.communicate(timeout=PATIENCE)
        ends = (130, -signal.SIGINT, 0)  # 0 if SIGINT is ignored, as after a shell's `&`
        assert service.process.returncode in ends
        assert "Traceback" not in errors


@pytest.mark.slow
def test_a_wrong_option_is_one_line_and_exit_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["serve", *options])
        assert ended.value.code == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("uncurse: ")
        assert told.err.count("\n") == 1
        return told.err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen on 127.0.0.1" in fails("--port", str(taken.getsockname()[1]))
    assert "cannot listen on 192.0.2.1:8000" in fails("--host", "192.0.2.1")
    assert "No such file" in fails("--token-file", str(tmp_path / "none"))
    for content in ("", "two words", "zwölf"):
        (tmp_path / "token").write_text(content, encoding="utf-8")
        assert "must contain one token" in fails("--token-file", str(tmp_path / "token"))
    (tmp_path / "none.txt").write_text("\n", encoding="utf-8")
    assert "has 0 sentences" in fails("--examples", str(tmp_path / "none.txt"))
    assert "no-such-model is neither a folder" in fails("--port", "0", "--model", "no-such-model")
    assert "--threads 99999999 is not allowed" in fails("--threads", "99999999")
    assert "without scheme and port" in fails("--port", "0", "--allowed-host", "http://a.example")
    assert "client_timeout = 0" in fails("--client-timeout", "0")
    assert "more sentences than the queue" in fails("--max-sentences", "10", "--max-waiting", "5")
