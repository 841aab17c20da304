"""What a service makes of many clients: `python benchmarks/serving.py [--model NAME] [--minutes 10]`.

The service runs in a process of its own, at a free port of the loopback interface. First the same sentences are
translated offline, which gives the throughput to compare with and the answers that must come back. Then: clients
one at a time and many at once; thousands of requests, each with its known answer; more requests than the service
takes; and some minutes of requests of all kinds, with an eye on its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import Decoding
from uncurse.text.lines import read_lines
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import record_of
from uncurse.translation.translator import Translator, load_translator

CLIENTS = (1, 8, 64)
ROUNDS = 3
BAR = 0.8  # of the offline throughput, with 64 clients
WAITING = 256  # sentences that may wait in the service
TIE = 1e-3  # candidates whose log-probabilities are closer than this may change places in another batch
ALL_KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"beam_size": 3},
    {"score": "length-norm", "n_best": 2},
    {"stop": "beam-full"},
    {"deadline": 0.2},
)
SUBJECTS = (
    "王听见这话", "外面下雨了", "她每天早上六点起床", "如果文件不存在", "他们清早起来", "因为他行了正直的事",
    "祭司站在门口", "你的儿子从远方回来", "默认情况下", "研究人员发现",
)  # fmt: skip
CLAUSES = (
    "就打发使者往各城去", "你最好带上雨伞", "然后去公园跑步", "这个函数会返回空列表", "到河边去打水",
    "百姓都平安度日", "向众人念律法书上的话", "我的心就喜乐", "每个线程都有自己的缓冲区",
    "睡眠不足的人更容易做出错误的决定",
)  # fmt: skip
MADE_UP = [f"{one}，{two}。" for one, two in itertools.product(SUBJECTS, CLAUSES)]


@dataclass(frozen=True)
class Answer:
    """What came back for a request."""

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

    async def ask(self, method: str, path: str, content: object = None) -> Answer:
        """Send a request and read its answer."""
        began = time.perf_counter()
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        body = b"" if content is None else json.dumps(content).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        text = await self._reader.readexactly(int(headers["content-length"]))
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


@dataclass
class Tally:
    """What came back for many requests."""

    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)  # sentences that did not get their answer
    ties: int = 0
    late: int = 0

    def count(self, line: str, answer: Answer, expected: dict[str, Any] | None) -> None:
        """Note an answer and whether it is the one that was expected."""
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


async def load_with(
    port: int,
    clients: int,
    lines: Sequence[str],
    options: dict[str, Any],
    known: dict[str, dict[str, Any]],
    tally: Tally,
) -> float:
    """Send every line as a request of its own, so many at a time, and count what comes back; the seconds."""
    waiting = iter(lines)

    async def one() -> None:
        client = Client(port)
        for line in waiting:
            tally.count(
                line, await client.ask("POST", "/translate", {"sentences": [line], **options}), known.get(line)
            )
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return time.perf_counter() - began


@contextmanager
def service(options: argparse.Namespace) -> Iterator[int]:
    """A service in a process of its own; its port."""
    command = [sys.executable, "-c", "from uncurse.cli import main; main()", "serve", "--port", "0"]
    command += ["--threads", str(options.threads), "--dtype", options.dtype, "--max-waiting", str(WAITING)]
    command += ["--model", options.model] if options.model else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = re.search(r":(\d+)$", process.stdout.readline().strip())
        if address is None:
            raise SystemExit("the service did not start")
        yield int(address[1])
    finally:
        process.terminate()
        process.wait(60)


def offline(translator: Translator, lines: Sequence[str], options: TranslationOptions) -> tuple[float, float]:
    """Sentences a second without a service, and the CPU milliseconds of a sentence."""
    began, used = time.perf_counter(), time.process_time()
    for _ in translator.stream(lines, options):
        pass
    return len(lines) / (time.perf_counter() - began), 1000 * (time.process_time() - used) / len(lines)


def number(port: int, name: str) -> float:
    """A number that the service counts."""

    async def asked() -> str:
        client = Client(port)
        text = str((await client.ask("GET", "/metrics")).body)
        client.close()
        return text

    return told(asyncio.run(asked()), name)


def told(text: str, name: str) -> float:
    """A number in the text of /metrics."""
    found = re.search(rf"^{name} (\S+)", text, flags=re.MULTILINE)
    assert found is not None
    return float(found[1])


def throughput(
    console: Console,
    port: int,
    lines: list[str],
    known: dict[str, Any],
    translator: Translator,
    options: TranslationOptions,
) -> None:
    """The first table: offline and with each number of clients in turn, several times; medians."""
    speeds: dict[int, list[float]] = {clients: [] for clients in (0, *CLIENTS)}  # 0: offline
    costs: dict[int, list[float]] = {clients: [] for clients in speeds}
    tallies = {clients: Tally() for clients in CLIENTS}
    for _ in range(ROUNDS):
        speed, cost = offline(translator, lines, options)
        speeds[0].append(speed)
        costs[0].append(cost)
        for clients in CLIENTS:
            sent = lines[: max(8, len(lines) // 4)] if clients == 1 else lines
            used = number(port, "process_cpu_seconds_total")
            fields = {"beam_size": options.decoding.beam_size}
            seconds = asyncio.run(load_with(port, clients, sent, fields, known, tallies[clients]))
            used = number(port, "process_cpu_seconds_total") - used
            speeds[clients].append(len(sent) / seconds)
            costs[clients].append(1000 * used / len(sent))
    title = f"{len(lines)} sentences, beam size {options.decoding.beam_size}; medians of {ROUNDS} rounds"
    table = Table(title=title)
    columns = (
        "clients",
        "lines / s",
        "least, most",
        "of offline",
        "bar",
        "CPU ms",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "wrong",
    )
    for column in columns:
        table.add_column(column, justify="right")
    base = statistics.median(speeds[0])
    for clients, found in speeds.items():
        tally = tallies.get(clients)
        median = statistics.median(found)
        table.add_row(
            str(clients or "offline"),
            f"{median:.1f}",
            f"{min(found):.1f}, {max(found):.1f}",
            f"{median / base:.2f} ×" if clients else "",
            f"{BAR} ×" if clients == CLIENTS[-1] else "",
            f"{statistics.median(costs[clients]):.0f}",
            *(f"{1000 * tally.quantile(each):.0f}" if tally else "" for each in (0.50, 0.95, 0.99)),
            str(tally.wrong) if tally else "",
        )
    console.print(table)


def known_answers(
    console: Console, port: int, lines: list[str], known: dict[str, Any], options: argparse.Namespace
) -> bool:
    """Thousands of requests, in an order of chance: nothing is lost, nothing mixed up."""
    chosen = random.Random(1).choices(lines, k=options.requests)
    tally = Tally()
    seconds = asyncio.run(load_with(port, CLIENTS[-1], chosen, {"beam_size": options.beam_size}, known, tally))
    answered = tally.statuses.get(200, 0)
    console.print(
        f"{options.requests} requests with known answers in {seconds:.0f} s: {answered} answered, "
        f"{len(tally.different)} wrong, {tally.ties} changed places with an equal within {TIE:g}",
        highlight=False,
    )
    return answered == options.requests and not tally.different


def overload(console: Console, port: int, lines: list[str], known: dict[str, Any], beam_size: int) -> bool:
    """More at once than may wait: 503 and Retry-After for some, right answers for others; then all is well."""

    async def flood() -> tuple[list[Answer], list[Answer]]:
        clients = [Client(port) for _ in range(3 * WAITING)]
        asked = [each.ask("POST", "/translate", {"sentences": [line], "beam_size": beam_size})
                 for each, line in zip(clients, itertools.cycle(lines), strict=False)]  # fmt: skip
        answers = await asyncio.gather(*asked)
        later = Client(port)
        after = [
            await later.ask("POST", "/translate", {"sentences": [lines[0]], "beam_size": beam_size})
            for _ in range(5)
        ]
        later.close()
        for client in clients:
            client.close()
        return answers, after

    answers, after = asyncio.run(flood())
    refused = [each for each in answers if each.status == 503]
    taken = [
        (line, each) for line, each in zip(itertools.cycle(lines), answers, strict=False) if each.status == 200
    ]
    tally = Tally()
    for line, answer in taken:
        tally.count(line, answer, known[line])
    seconds = {int(each.headers["retry-after"]) for each in refused}
    waited = statistics.median(each.seconds for each in refused) if refused else float("nan")
    console.print(
        f"{len(answers)} requests at once: {len(taken)} answered, {len(tally.different)} wrong, {tally.late} too"
        f" late; {len(refused)} told within {1000 * waited:.0f} ms to come back in {sorted(seconds)} s;"
        f" after it {sum(each.status == 200 for each in after)} of {len(after)} answered",
        highlight=False,
    )
    good = len(taken) + len(refused) == len(answers) and bool(refused) and not tally.different
    return good and all(each.status == 200 for each in after)


def memory(console: Console, port: int, lines: list[str], minutes: float) -> None:
    """Requests of all kinds for some minutes; the memory of the service at each tenth of the time."""
    sizes: list[float] = []

    async def watch() -> None:
        end = time.monotonic() + 60 * minutes

        async def busy(seed: int) -> int:
            chance, own, done = random.Random(seed), Client(port), 0
            while time.monotonic() < end:
                if chance.random() < 0.05:
                    await own.ask("POST", "/explain", {"sentence": chance.choice(lines), "beam_size": 5})
                else:
                    count = chance.randint(1, 8)
                    asked = {"sentences": chance.choices(lines, k=count), **chance.choice(ALL_KINDS)}
                    await own.ask("POST", "/translate", asked)
                done += 1
            own.close()
            return done

        tasks = [asyncio.create_task(busy(seed)) for seed in range(16)]
        for _ in range(11):
            client = Client(port)  # a new one: the service hangs up on those that are silent for long
            text = (await client.ask("GET", "/metrics")).body
            client.close()
            sizes.append(told(text, "process_resident_memory_bytes") / 1e6)
            await asyncio.sleep(6 * minutes)
        done = sum(await asyncio.gather(*tasks))
        console.print(
            f"{done} requests of all kinds in {minutes:g} minutes; MB of the service at each tenth: "
            + " ".join(f"{size:.0f}" for size in sizes),
            highlight=False,
        )

    asyncio.run(watch())


def main() -> None:
    """Measure and print; the status is 1 if something was lost, mixed up or not recovered from."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a name or a folder; without, the model in the box")
    parser.add_argument("--source", type=Path, help="sentences, one on each line; without, some that are made up")
    parser.add_argument("--sentences", type=int, default=400, help="for the throughput")
    parser.add_argument("--requests", type=int, default=5000, help="with known answers")
    parser.add_argument("--minutes", type=float, default=10.0, help="with an eye on the memory")
    parser.add_argument("--beam-size", type=int, default=10)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    console = Console(width=110)
    lines = MADE_UP if options.source is None else [line for line in read_lines(options.source) if line.strip()]
    random.Random(1).shuffle(lines)
    sent = list(itertools.islice(itertools.cycle(lines), options.sentences))
    torch.set_num_threads(options.threads)
    translator = load_translator(ModelOptions(model=options.model, dtype=options.dtype))
    asked = TranslationOptions(Decoding(options.beam_size))
    known = {line: record_of(each) for line, each in zip(lines, translator.stream(lines, asked), strict=True)}
    with service(options) as port:
        throughput(console, port, sent, known, translator, asked)
        good = known_answers(console, port, lines, known, options) if options.requests else True
        good &= overload(console, port, lines, known, options.beam_size)
        if options.minutes:
            memory(console, port, lines, options.minutes)
    if not good:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
