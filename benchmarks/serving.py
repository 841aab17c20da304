"""What the service makes of many clients: `python benchmarks/serving.py [SCENARIO …] [--model NAME]`.

The service runs in a process of its own. The sentences are translated offline first, which gives the throughput to
compare with and the answers that must come back. The scenarios, all of them unless some are named:

throughput  clients one at a time and many at once, beside the offline translator
answers     thousands of requests of mixed options, a tenth of which hang up, with SIGTERM in the middle
slow        fast clients beside slow ones
overload    more requests than the service takes
memory      requests of all kinds for --minutes, with an eye on memory; a day's soak is `memory --minutes 1440`

The exit status is 1 if an answer was lost or wrong, or if the service did not recover.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from http_load import (
    SENTENCES,
    TIE,
    Answer,
    Client,
    Known,
    ServiceProcess,
    Tally,
    metric,
    send_all,
    serve_command,
    slow_client,
)
from rich.console import Console
from rich.table import Table

from uncurse.lengths.limits import parse_max_length
from uncurse.models.loaded_model import ModelOptions
from uncurse.scoring.decoding import Decoding
from uncurse.text.lines import read_lines
from uncurse.translation.options import TranslationOptions
from uncurse.translation.records import record_of
from uncurse.translation.translator import Translator, load_translator

CLIENTS = (1, 8, 64)
ROUNDS = 5
BAR = 0.9  # of the offline throughput, with 64 clients
WAITING = 256  # sentences in the queue of the service
HANG_UPS = 0.1  # share of the requests whose client goes away
SLOW_CLIENTS = 100
MAX_SLOWDOWN = 1.5  # of the fast clients' p95 beside slow ones
MAX_GROWTH = 0.1  # of memory, in the last fifths of a soak
MIXED: tuple[tuple[dict[str, Any], TranslationOptions], ...] = (
    ({"beam_size": 5}, TranslationOptions(Decoding(5))),
    ({"beam_size": 3, "score": "bp-norm", "n_best": 2}, TranslationOptions(Decoding(3, "bp-norm", n_best=2))),
    ({"beam_size": 4, "score": "length-norm"}, TranslationOptions(Decoding(4, "length-norm"))),
    ({"beam_size": 4, "stop": "beam-full"}, TranslationOptions(Decoding(4, stop="beam-full"))),
    ({"beam_size": 4, "slots": "refill"}, TranslationOptions(Decoding(4, slots="refill"))),
    ({"beam_size": 5, "max_length": 12}, TranslationOptions(Decoding(5), parse_max_length(12))),
    ({"beam_size": 5, "length_ratio": 1.5}, TranslationOptions(Decoding(5), length_ratio=1.5)),
    (
        {"beam_size": 5, "min_length": 9, "target_prefix": "The"},
        TranslationOptions(Decoding(5), min_length=9, target_prefix="The"),
    ),
)
SOAK: tuple[dict[str, Any], ...] = (
    *(fields for fields, _ in MIXED),
    {"deadline": 0.2},
    {"score": "no-such-score"},
)


@dataclass(frozen=True)
class Bench:
    """What all scenarios share."""

    console: Console
    options: argparse.Namespace
    translator: Translator
    lines: list[str]

    def running(self) -> AbstractContextManager[ServiceProcess]:
        """The service in a process of its own."""
        arguments = ["--threads", str(self.options.threads), "--dtype", self.options.dtype]
        arguments += ["--max-waiting", str(WAITING)]
        arguments += ["--model", self.options.model] if self.options.model else []
        return ServiceProcess.running(serve_command(*arguments))

    def known(self, options: TranslationOptions) -> Known:
        """The answer for every line."""
        found = self.translator.stream(self.lines, options)
        return {line: record_of(each) for line, each in zip(self.lines, found, strict=True)}

    def say(self, words: str) -> None:
        """Print a line."""
        self.console.print(words, highlight=False)


def throughput(bench: Bench) -> bool:
    """Offline and with each number of clients in turn, several times; medians."""
    asked = TranslationOptions(Decoding(bench.options.beam_size))
    known = bench.known(asked)
    lines = list(itertools.islice(itertools.cycle(bench.lines), bench.options.sentences))
    speeds: dict[int, list[float]] = {clients: [] for clients in (0, *CLIENTS)}  # 0: offline
    costs: dict[int, list[float]] = {clients: [] for clients in speeds}
    tallies = {clients: Tally() for clients in CLIENTS}
    fields = {"beam_size": bench.options.beam_size}
    with bench.running() as service:
        for _ in range(ROUNDS):
            began, used = time.perf_counter(), time.process_time()
            for _ in bench.translator.stream(lines, asked):
                pass
            speeds[0].append(len(lines) / (time.perf_counter() - began))
            costs[0].append(1000 * (time.process_time() - used) / len(lines))
            for clients in CLIENTS:
                sent = lines[: max(8, len(lines) // 4)] if clients == 1 else lines
                used = asyncio.run(metric(service.port, "process_cpu_seconds_total"))
                seconds = asyncio.run(send_all(service.port, clients, sent, fields, known, tallies[clients]))
                used = asyncio.run(metric(service.port, "process_cpu_seconds_total")) - used
                speeds[clients].append(len(sent) / seconds)
                costs[clients].append(1000 * used / len(sent))
    title = f"{len(lines)} sentences, beam size {bench.options.beam_size}; medians of {ROUNDS} rounds"
    bench.console.print(_throughput_table(title, speeds, costs, tallies))
    return not any(tally.wrong for tally in tallies.values())


def _throughput_table(
    title: str, speeds: dict[int, list[float]], costs: dict[int, list[float]], tallies: dict[int, Tally]
) -> Table:
    table = Table(title=title)
    columns = "clients", "lines / s", "least, most", "of offline", "bar", "CPU ms", "p50 ms", "p95 ms", "p99 ms"
    for column in (*columns, "wrong"):
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
    return table


def answers(bench: Bench) -> bool:
    """Requests of mixed options with hang-ups; in the middle the service is stopped, and another goes on."""
    known = [bench.known(options) for _, options in MIXED]
    chance = random.Random(1)
    requests = [(chance.randrange(len(MIXED)), chance.choice(bench.lines)) for _ in range(bench.options.requests)]
    waiting, half = iter(requests), len(requests) // 2
    too_late: list[tuple[int, str]] = []  # sent to a service that took no more
    tally, lost, hung_up, sent = Tally(), 0, 0, 0
    began = time.perf_counter()

    async def one(service: ServiceProcess, seed: int) -> None:
        nonlocal lost, hung_up, sent
        own, client = random.Random(seed), Client(service.port)
        for kind, line in waiting:
            body = {"sentences": [line], **MIXED[kind][0]}
            sent += 1
            if sent == half:
                service.process.send_signal(signal.SIGTERM)
            stopping = sent >= half and service.process is first
            try:
                if own.random() < HANG_UPS:
                    await client.send("POST", "/translate", body)
                    await asyncio.sleep(own.random() * 0.3)
                    client.close()
                    hung_up += 1
                else:
                    tally.count(line, await client.ask("POST", "/translate", body), known[kind][line])
            except (OSError, asyncio.IncompleteReadError):
                client.close()
                if stopping:
                    too_late.append((kind, line))
                else:
                    lost += 1
            if stopping:
                break
        client.close()

    async def through(service: ServiceProcess) -> None:
        await asyncio.gather(*(one(service, seed) for seed in range(CLIENTS[-1])))

    with bench.running() as service:
        first = service.process
        asyncio.run(through(service))
        status = service.process.wait(60)
    waiting = itertools.chain(too_late, waiting)
    with bench.running() as service:
        asyncio.run(through(service))
        still_there = service.process.poll() is None
    answered = tally.statuses.get(200, 0)
    bench.say(
        f"{len(requests)} requests of {len(MIXED)} kinds in {time.perf_counter() - began:.0f} s: {answered}"
        f" answered, {hung_up} hung up, {lost} lost, {len(tally.different)} wrong, {tally.ties} changed places"
        f" with an equal within {TIE:g}; stopped in the middle with status {status}, {len(too_late)} sent again"
    )
    complete = answered + hung_up == len(requests) and not tally.wrong
    return complete and status in (0, -signal.SIGTERM) and still_there


def slow(bench: Bench) -> bool:
    """The latencies of fast clients, alone and beside slow ones, in turn."""
    fields = {"beam_size": bench.options.beam_size}
    known = bench.known(TranslationOptions(Decoding(bench.options.beam_size)))
    lines = list(itertools.islice(itertools.cycle(bench.lines), bench.options.sentences))
    tallies = {0: Tally(), SLOW_CLIENTS: Tally()}

    async def measure(port: int, count: int) -> None:
        end = time.monotonic() + 600
        others = [asyncio.create_task(slow_client(port, end, seed)) for seed in range(count)]
        await asyncio.sleep(1.0 if count else 0.0)
        await send_all(port, CLIENTS[1], lines, fields, known, tallies[count])
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    with bench.running() as service:
        for count in (0, SLOW_CLIENTS) * ROUNDS:
            asyncio.run(measure(service.port, count))
    alone, beside = (tally.quantile(0.95) for tally in tallies.values())
    bench.say(
        f"{CLIENTS[1]} fast clients: p95 {1000 * alone:.0f} ms alone, {1000 * beside:.0f} ms beside {SLOW_CLIENTS}"
        f" slow ones ({beside / alone:.2f} ×); {sum(tally.wrong for tally in tallies.values())} wrong"
    )
    return beside < MAX_SLOWDOWN * alone and not any(tally.wrong for tally in tallies.values())


def overload(bench: Bench) -> bool:
    """More at once than the queue takes: 503 and Retry-After for some, right answers for the others."""
    fields = {"beam_size": bench.options.beam_size}
    known = bench.known(TranslationOptions(Decoding(bench.options.beam_size)))
    lines = list(itertools.islice(itertools.cycle(bench.lines), 3 * WAITING))

    async def flood(port: int) -> tuple[list[Answer], list[Answer]]:
        clients = [Client(port) for _ in lines]
        asked = (
            each.ask("POST", "/translate", {"sentences": [line], **fields})
            for each, line in zip(clients, lines, strict=True)
        )
        found = await asyncio.gather(*asked)
        for client in clients:
            client.close()
        await asyncio.sleep(1.0)  # the least that Retry-After asks for; closed connections are noticed by then
        later = Client(port)
        after = [await later.ask("POST", "/translate", {"sentences": [lines[0]], **fields}) for _ in range(5)]
        later.close()
        return found, after

    with bench.running() as service:
        found, after = asyncio.run(flood(service.port))
    refused = [each for each in found if each.status == 503]
    tally = Tally()
    for line, answer in zip(lines, found, strict=True):
        if answer.status == 200:
            tally.count(line, answer, known[line])
    seconds = sorted({int(each.headers["retry-after"]) for each in refused})
    waited = statistics.median(each.seconds for each in refused) if refused else float("nan")
    bench.say(
        f"{len(found)} requests at once: {len(tally.latencies)} answered, {len(tally.different)} wrong,"
        f" {tally.late} too late; {len(refused)} told within {1000 * waited:.0f} ms to retry in {seconds} s;"
        f" a second later {sum(each.status == 200 for each in after)} of {len(after)} answered"
    )
    complete = len(tally.latencies) + len(refused) == len(found)
    return complete and bool(refused) and not tally.different and all(each.status == 200 for each in after)


def memory(bench: Bench) -> bool:
    """Requests of all kinds, hang-ups and slow clients for some minutes; memory at each tenth of the time."""
    minutes = bench.options.minutes
    sizes: list[float] = []

    async def busy(port: int, end: float, seed: int) -> int:
        chance, client, done = random.Random(seed), Client(port), 0
        while time.monotonic() < end:
            if chance.random() < 0.05:
                path, body = "/explain", {"sentence": chance.choice(bench.lines), "beam_size": 5}
            else:
                sentences = chance.choices(bench.lines, k=chance.randint(1, 8))
                path, body = "/translate", {"sentences": sentences, **chance.choice(SOAK)}
            if chance.random() < HANG_UPS:
                await client.send("POST", path, body)
                await asyncio.sleep(chance.random() * 0.3)
                client.close()
            else:
                await client.ask("POST", path, body)
            done += 1
        client.close()
        return done

    async def watch(port: int) -> int:
        end = time.monotonic() + 60 * minutes
        tasks = [asyncio.create_task(busy(port, end, seed)) for seed in range(16)]
        slow_ones = [asyncio.create_task(slow_client(port, end, seed)) for seed in range(16)]
        for place in range(11):
            sizes.append(await metric(port, "process_resident_memory_bytes") / 1e6)
            bench.say(f"after {place * minutes / 10:.1f} minutes: {sizes[-1]:.0f} MB")
            await asyncio.sleep(6 * minutes if place < 10 else 0)
        await asyncio.gather(*slow_ones)
        return sum(await asyncio.gather(*tasks))

    with bench.running() as service:
        done = asyncio.run(watch(service.port))
    early, late = statistics.median(sizes[3:6]), statistics.median(sizes[8:])
    bench.say(f"{done} requests of all kinds in {minutes:g} minutes; memory grew by {late / early - 1:+.1%}")
    return late < (1 + MAX_GROWTH) * early


SCENARIOS: dict[str, Callable[[Bench], bool]] = {
    each.__name__: each for each in (throughput, answers, slow, overload, memory)
}


def main() -> None:
    """Run scenarios and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="default: all")
    parser.add_argument("--model", help="a name or a folder; the bundled model by default")
    parser.add_argument("--source", type=Path, help="sentences, one on each line; invented ones by default")
    parser.add_argument("--sentences", type=int, default=400, help="of throughput and slow")
    parser.add_argument("--requests", type=int, default=5000, help="of answers")
    parser.add_argument("--minutes", type=float, default=10.0, help="of memory")
    parser.add_argument("--beam-size", type=int, default=10)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    lines = SENTENCES if options.source is None else [line for line in read_lines(options.source) if line.strip()]
    lines = list(dict.fromkeys(lines))
    random.Random(1).shuffle(lines)
    torch.set_num_threads(options.threads)
    translator = load_translator(ModelOptions(model=options.model, dtype=options.dtype))
    bench = Bench(Console(width=110), options, translator, lines)
    failed = [name for name in options.scenario or SCENARIOS if not SCENARIOS[name](bench)]
    if failed:
        bench.say(f"failed: {', '.join(failed)}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
