"""Damage files for a while and see what their readers do: `python -m fuzz --minutes 10`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked

from fuzz.readers import Files, Reader, readers
from fuzz.sandbox import Outcome, Sandbox, Verdict
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

FOUND = Path(__file__).parent / "found"
TURN = 100  # examples of a reader before the next has its turn


@st.composite
def damaged(draw: st.DrawFn, reader: Reader) -> Files:
    """Files for a reader of which one is not as it was written."""
    return reader.damaged(draw)


def turn(reader: Reader, number: int, until: float) -> Iterator[tuple[Files, Verdict]]:
    """Some examples."""
    drawn: list[Files] = []

    @seed(number)
    @settings(
        max_examples=TURN, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(damaged(reader))
    def draw(files: Files) -> None:
        drawn.append(files)

    draw()
    with Sandbox(reader.read) as sandbox:
        for files in drawn:
            if time.monotonic() > until:
                return
            yield files, reader.verdict(sandbox, files)


def main() -> None:
    """Take turns until the time is over, and say what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("FUZZ_MINUTES", "10")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", choices=sorted(readers()))
    asked = parser.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    chosen = [reader for name, reader in readers().items() if not asked.reader or name in asked.reader]
    counts: dict[str, Counter[Outcome]] = {reader.name: Counter() for reader in chosen}
    faults: dict[tuple[str, str], int] = {}
    number = asked.seed
    while time.monotonic() < until:
        for reader in chosen:
            for files, verdict in turn(reader, number, until):
                counts[reader.name][verdict.outcome] += 1
                if verdict.outcome is Outcome.FAULT:
                    _keep(reader, files, verdict, faults)
        number += 1
    _report(counts)
    sys.exit(1 if faults else 0)


def _keep(reader: Reader, files: Files, verdict: Verdict, faults: dict[tuple[str, str], int]) -> None:
    """Write the first few files of each kind of fault where `make test` can be told to try them again."""
    lines = verdict.words.strip().splitlines() or [""]
    kind = (reader.name, lines[-1][:80])
    faults[kind] = faults.get(kind, 0) + 1
    if faults[kind] > 2:
        return
    sys.stdout.write(f"FAULT in {reader.name}:\n  " + "\n  ".join(lines[-12:]) + "\n")
    for name, content in files.items():
        if content != reader.files.get(name):
            place = FOUND / reader.name / sha256(content).hexdigest()[:12] / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            sys.stdout.write(f"  kept as {place}\n")
    sys.stdout.flush()


def _report(counts: dict[str, Counter[Outcome]]) -> None:
    sys.stdout.write(f"| reader | tried | {' | '.join(each.value for each in Outcome)} |\n")
    sys.stdout.write(f"|---|{'---:|' * (1 + len(Outcome))}\n")
    for name, found in counts.items():
        row = " | ".join(str(found[each]) for each in Outcome)
        sys.stdout.write(f"| {name} | {found.total()} | {row} |\n")
    total = sum(found.total() for found in counts.values())
    sys.stdout.write(f"{total} damaged files, {sum(found[Outcome.FAULT] for found in counts.values())} faults\n")


if __name__ == "__main__":
    main()
