"""The tables of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from uncurse.study.findings import GROUPS, Findings
from uncurse.study.measures import mean_bleu, mean_ratio
from uncurse.study.methods import NORM, RAW, Method
from uncurse.study.opened import SETS
from uncurse.study.pagedata import decile_rows, shown_methods
from uncurse.study.table import Table, frozen, pair, share

SURE: Final = 0.05  # p below which a difference is marked


def main_table(findings: Findings, table: str, methods: Sequence[Method], how: str) -> Table:
    """BLEU and length ratio for small and large beams, on dev and test."""
    plan = findings.study.plan
    columns = ["", *(f"{name} {group} {what}" for name in SETS for group in GROUPS for what in ("BLEU", "ratio"))]
    rows: list[list[str]] = []
    values: list[list[float]] = []
    if table == "main":
        for system, sets in findings.systems.items():
            numbers = [
                value
                for name in SETS
                for value in (mean_bleu([sets[name]]), mean_ratio([sets[name]])) * len(GROUPS)
            ]
            rows.append([system, *_numbers(numbers)])
            values.append(numbers)
        numbers = [
            value
            for name in SETS
            for value in mean_of(findings, name, RAW.name, (plan.baseline_width,)) * len(GROUPS)
        ]
        rows.append([f"{RAW.label}, b = {plan.baseline_width}", *_numbers(numbers)])
        values.append(numbers)
    for method in methods:
        if method.name not in findings.at["dev"][plan.focus].judged:
            continue
        cells, numbers = [method.label], []
        for name in SETS:
            for group in GROUPS:
                bleu, ratio = mean_of(findings, name, method.name, findings.widths(group))
                mark = _mark(findings, name, method, group)
                cells += [f"{bleu:.2f}{mark}", f"{ratio:.3f}"]
                numbers += [bleu, ratio]
        rows.append(cells)
        values.append(numbers)
    strong = set()
    for column in range(0, 2 * len(SETS) * len(GROUPS), 2):
        bleus = [numbers[column] for numbers in values]
        strong |= {(row, column + 1) for row, bleu in enumerate(bleus) if bleu == max(bleus)}
    small, large = (", ".join(map(str, findings.widths(group))) for group in GROUPS)
    again = "" if plan.again is None else f", {plan.again} where nothing ends within it"
    note = (
        f"Small beams: mean of b = {small}; large: mean of b = {large}. * better, † worse than {NORM.label} with"
        f" beam-full on the same set and beams (paired bootstrap, p < {SURE:g}). Limit R: {plan.limit}{again};"
        f" slots: {plan.slots}. Numbers of a method were chosen on dev, apart for small and large beams."
    )
    return Table(table, f"BLEU and length ratio {how}", tuple(columns), frozen(rows), note, frozenset(strong))


def differences_table(findings: Findings, name: str) -> Table:
    """Each method against length norm and against the raw score."""
    rows = []
    for method in shown_methods(findings):
        for group in GROUPS:
            cells = [method.label, group]
            for other in (NORM, RAW):
                if other.name == method.name or not _known(findings, other):
                    cells += ["", ""]
                    continue
                widths = findings.widths(group)
                found = findings.difference(name, (other.name, widths), (method.name, widths))
                cells += [f"{found.bleu:+.2f} ({found.low:+.2f} … {found.high:+.2f})", f"{found.p:.3f}"]
            rows.append(cells)
    columns = ("", "beams", f"BLEU against {NORM.label}", "p", f"BLEU against {RAW.label}", "p ")
    note = "Paired bootstrap, 1,000 samples; in brackets 95 % of them. Both sides have the same widths."
    return Table(f"differences-{name}", f"Differences on {name}", columns, frozen(rows), note)


def widening_table(findings: Findings, name: str) -> Table:
    """What the widest beam gains or loses against a usual one."""
    plan = findings.study.plan
    first, last = plan.baseline_width, plan.all_widths[-1]
    rows = []
    for method in shown_methods(findings):
        found = findings.difference(name, (method.name, [first]), (method.name, [last]))
        rows.append(
            [method.label, f"{found.bleu:+.2f}", f"{found.low:+.2f} … {found.high:+.2f}", f"{found.p:.3f}"]
        )
    columns = ("", "BLEU", "95 %", "p")
    return Table(f"widening-{name}", f"From b = {first} to b = {last} on {name}", columns, frozen(rows))


def curse_table(findings: Findings) -> Table:
    """The raw score against the width."""
    columns = ("b", *(f"{name} {what}" for name in SETS for what in ("BLEU", "BP", "ratio", "empty")))
    rows = []
    for width in findings.study.plan.all_widths:
        cells = [str(width)]
        for name in SETS:
            found = findings.at[name][width].measures[RAW.name]
            cells += [
                f"{found.bleu:.2f}",
                f"{found.brevity_penalty:.3f}",
                f"{found.ratio:.3f}",
                share(found.empty),
            ]
        rows.append(cells)
    return Table("curse", "The raw score against beam width (first-finished)", columns, frozen(rows))


def widths_table(findings: Findings, name: str) -> Table:
    """BLEU and length ratio of every method at every width."""
    methods = shown_methods(findings)
    rows = [
        [str(width), *(pair(at.measures[method.name].bleu, at.measures[method.name].ratio) for method in methods)]
        for width, at in findings.at[name].items()
    ]
    columns = ("b", *(method.label for method in methods))
    return Table(f"widths-{name}", f"BLEU (length ratio) on {name}", columns, frozen(rows))


def ends_table(findings: Findings) -> Table:
    """Where hypotheses end."""
    ends = findings.ends
    widths = ends["dev"].widths
    columns = ("b", *(f"{name} {which}" for name in SETS for which in ("first", "second", "third")))
    rows = [
        [str(width), *(f"{step:.1f}" for name in SETS for step in ends[name].positions[place])]
        for place, width in enumerate(widths)
    ]
    counts = ", ".join(
        f"{name} {ends[name].sentences} of {len(findings.study.materials[name].lines)}" for name in SETS
    )
    note = f"Mean step over the sentences that finish three hypotheses at every one of these widths: {counts}."
    return Table("ends", "The first, second and third </s>", columns, frozen(rows), note)


def deciles_table(findings: Findings) -> Table:
    """Short and long sources."""
    methods = shown_methods(findings)
    found = {method.name: decile_rows(findings, method) for method in methods}
    count = len(found[methods[0].name])
    rows = [
        [
            f"{found[methods[0].name][part]['source_length']:.1f}",
            *(pair(found[each.name][part]["bleu"], found[each.name][part]["ratio"]) for each in methods),
        ]
        for part in range(count)
    ]
    columns = ("mean |x|", *(method.label for method in methods))
    title = f"BLEU (length ratio) over tenths of source length, test, b = {findings.study.plan.focus}"
    return Table("deciles", title, columns, frozen(rows))


def _mark(findings: Findings, name: str, method: Method, group: str) -> str:
    if method.name == NORM.name or not _known(findings, NORM):
        return ""
    widths = findings.widths(group)
    found = findings.difference(name, (NORM.name, widths), (method.name, widths))
    return "" if found.p >= SURE else "*" if found.bleu > 0 else "†"


def _known(findings: Findings, method: Method) -> bool:
    return method.name in findings.at["dev"][findings.study.plan.focus].judged


class Means(NamedTuple):
    """Means over some widths."""

    bleu: float
    ratio: float


def mean_of(findings: Findings, name: str, method: str, widths: Sequence[int]) -> Means:
    """BLEU and length ratio of a method."""
    statistics = findings.statistics(name, method, widths)
    return Means(mean_bleu(statistics), mean_ratio(statistics))


def _numbers(values: Sequence[float]) -> list[str]:
    """BLEU and length ratio in turn."""
    return [f"{value:.3f}" if place % 2 else f"{value:.2f}" for place, value in enumerate(values)]
