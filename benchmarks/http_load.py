"""What the benchmarks of the service share: clients, counts of what came back, and the service as a process."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

TIE = 1e-3  # candidates whose log-probabilities are closer than this may change places in another batch
SUBJECTS = (
    "王听见这话", "外面下雨了", "她每天早上六点起床", "如果文件不存在", "他们清早起来", "因为他行了正直的事",
    "祭司站在门口", "你的儿子从远方回来", "默认情况下", "研究人员发现",
)  # fmt: skip
CLAUSES = (
    "就打发使者往各城去", "你最好带上雨伞", "然后去公园跑步", "这个函数会返回空列表", "到河边去打水",
    "百姓都平安度日", "向众人念律法书上的话", "我的心就喜乐", "每个线程都有自己的缓冲区",
    "睡眠不足的人更容易做出错误的决定",
)  # fmt: skip
SENTENCES = [f"{one}，{two}。" for one, two in itertools.product(SUBJECTS, CLAUSES)]

Known = dict[str, dict[str, Any]]  # the record that each line must get


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    headers: dict[str, str]
    body: Any
    seconds: float


class Client:
    """One connection that is kept alive; plain HTTP/1.1 on a socket, so that the client costs little."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, method: str, path: str, content: object = None) -> None:
        """Send a request."""
        if self._reader is None or self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        body = b"" if content is None else json.dumps(content).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def ask(self, method: str, path: str, content: object = None) -> Answer:
        """Send a request and read the response."""
        began = time.perf_counter()
        await self.send(method, path, content)
        assert self._reader is not None
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        text = await self._reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        is_json = "json" in headers["content-type"]
        return Answer(
            int(status.split()[1]),
            headers,
            json.loads(text) if is_json else text.decode(),
            time.perf_counter() - began,
        )

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


@dataclass
class Tally:
    """What came back for many requests."""

    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)  # sentences that got another answer
    ties: int = 0
    late: int = 0

    def count(self, line: str, answer: Answer, expected: dict[str, Any] | None) -> None:
        """Note an answer, and whether it is the expected one."""
        self.latencies.append(answer.seconds)
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        if expected is None or answer.status != 200:
            return
        (found,) = answer.body["translations"]
        if found["tokens"] == expected["tokens"]:
            return
        if not found["in_time"]:
            self.late += 1
        elif found["score"] is not None and abs(found["score"] - expected["score"]) < TIE:
            self.ties += 1
        else:
            self.different.append(line)

    @property
    def wrong(self) -> int:
        """How many did not get their answer."""
        return len(self.different) + sum(count for status, count in self.statuses.items() if status != 200)

    def quantile(self, share: float) -> float:
        """The seconds within which a share of the requests were answered."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def send_all(
    port: int, clients: int, lines: Sequence[str], options: dict[str, Any], known: Known, tally: Tally
) -> float:
    """Send every line as a request of its own, so many at a time, and count what comes back; the seconds."""
    waiting = iter(lines)

    async def one() -> None:
        client = Client(port)
        for line in waiting:
            answer = await client.ask("POST", "/translate", {"sentences": [line], **options})
            tally.count(line, answer, known.get(line))
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return time.perf_counter() - began


def serve_command(*options: str) -> list[str]:
    """How our service is started, at any port that is free."""
    return [sys.executable, "-m", "uncurse", "serve", "--port", "0", *options]


@dataclass(frozen=True)
class ServiceProcess:
    """A service in a process of its own, at a free port of the loopback interface."""

    process: subprocess.Popen[str]
    port: int

    @classmethod
    @contextmanager
    def running(cls, command: Sequence[str]) -> Iterator[Self]:
        """Start a service, which prints its address, and stop it."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            address = re.search(r":(\d+)$", process.stdout.readline().strip())
            if address is None:
                raise SystemExit("the service did not start")
            yield cls(process, int(address[1]))
        finally:
            process.terminate()
            process.wait(120)


async def metric(port: int, name: str) -> float:
    """A number from /metrics."""
    client = Client(port)
    text = str((await client.ask("GET", "/metrics")).body)
    client.close()
    found = re.search(rf"^{name} (\S+)", text, flags=re.MULTILINE)
    assert found is not None
    return float(found[1])


async def slow_client(port: int, end: float, seed: int) -> None:
    """Trickle the headers or the body of a request, or do not read its response, again and again."""
    chance = random.Random(seed)
    body = json.dumps({"sentences": [SENTENCES[0]]}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    whole = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    page = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    while time.monotonic() < end:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.2)
            continue
        cut = chance.choice((20, len(head) + 25, 0))  # within the headers, within the body, or nothing
        try:
            writer.write(whole[:cut] if cut else page * 20)
            for place in range(cut or len(whole), len(whole)):
                if time.monotonic() > end or writer.is_closing():
                    break
                writer.write(whole[place : place + 1])
                await asyncio.sleep(0.5)
            if not cut:
                await asyncio.sleep(min(5.0, max(0.0, end - time.monotonic())))
        except OSError:
            pass
        writer.transport.abort()
