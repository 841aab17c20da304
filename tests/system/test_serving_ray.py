"""The service on Ray Serve, with two replicas of the bundled model."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import uncurse
from uncurse.serving.examples import CHINESE

pytest.importorskip("ray.serve", reason="needs Ray Serve: pip install 'uncurse[ray,serve]'")

PATIENCE = 180  # seconds; two replicas are there after some twenty
RUN = """
import sys
import ray
from ray import serve
from uncurse.serving.ray_app import app
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
serve.run(app({"replicas": "2", "allowed_hosts": "translate.example"}))
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def asked(port: int, method: str, path: str, body: object = None, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json", "Host": host})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


@pytest.mark.slow
def test_two_replicas_share_the_work_and_answer_alike() -> None:
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line.strip() == "ready" for line in lines), process.communicate(timeout=PATIENCE)
        with ThreadPoolExecutor(8) as clients:
            answers = list(
                clients.map(
                    lambda line: asked(port, "POST", "/translate", {"sentences": [line], "beam_size": 5}),
                    CHINESE * 6,
                )
            )
        assert {status for status, _ in answers} == {200}
        expected = [each.texts[0] for each in uncurse.load().translate(CHINESE, beam_size=5)] * 6
        assert [json.loads(text)["translations"][0]["text"] for _, text in answers] == expected
        assert asked(port, "POST", "/translate", {"sentences": ["a"], "bem_size": 1})[0] == 422
        assert asked(port, "GET", "/methods", host="evil.example")[0] == 421
        assert asked(port, "GET", "/methods", host="translate.example")[0] == 200
        for _ in range(4):  # a replica that is quick enough may have answered everything alone
            if busy_replicas(port) == 2:
                break
            with ThreadPoolExecutor(16) as clients:
                bodies = [{"sentences": CHINESE, "beam_size": 40}] * 16
                list(clients.map(lambda body: asked(port, "POST", "/translate", body), bodies))
        assert busy_replicas(port) == 2
    finally:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors


def busy_replicas(port: int) -> int:
    """How many replicas have translated something; each request for metrics reaches one of them at random."""
    busy: set[str] = set()
    end = time.monotonic() + 15
    while len(busy) < 2 and time.monotonic() < end:
        text = asked(port, "GET", "/metrics")[1]
        started = re.search(r"^process_start_time_seconds (\S+)", text, flags=re.MULTILINE)
        done = re.search(
            r'^uncurse_requests_total\{path="/translate",status="200"\} (\S+)', text, flags=re.MULTILINE
        )
        if started and done and float(done[1]) > 0:
            busy.add(started[1])
    return len(busy)
