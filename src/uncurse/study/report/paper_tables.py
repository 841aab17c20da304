"""The tables of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from uncurse.arrays import Ints
from uncurse.evaluation.bootstrap import Difference, paired_bootstrap
from uncurse.study.findings import Findings
from uncurse.study.measures import mean_bleu, mean_ratio
from uncurse.study.methods import NORM, RAW, StudyMethod
from uncurse.study.plan import GROUPS
from uncurse.study.report.table import Table, interval, pair, rows_of, share
from uncurse.study.test_set import SETS

SIGNIFICANT: Final = 0.05  # p below which a difference is marked
Statistics = Callable[[str, str, Sequence[int]], list[Ints]]  # of a set and a method at some beam sizes


class Means(NamedTuple):
    """Means over some beam sizes."""

    bleu: float
    ratio: float


def mean_of(findings: Findings, name: str, method: str, beam_sizes: Sequence[int]) -> Means:
    """BLEU and length ratio of a method."""
    return _means(findings.statistics(name, method, beam_sizes))


def _means(statistics: Sequence[Ints]) -> Means:
    return Means(mean_bleu(statistics), mean_ratio(statistics))


def main_table(findings: Findings) -> Table:
    """Every method with its usual stopping rule, and other systems."""
    title = "BLEU and length ratio with the stopping rule of each"
    table = _means_table(findings, "main", title, _baselines(findings, findings.statistics), findings.methods)
    plan = findings.study.plan
    retry = "" if plan.retry_max_length is None else f", {plan.retry_max_length} where nothing ends within it"
    return replace(table, note=f"{table.note} Maximum length R: {plan.max_length}{retry}; slots: {plan.slots}.")


def paper_setting_table(findings: Findings) -> Table:
    """The same with the expected length as the maximum length, as in the paper's own runs."""
    title = "BLEU and length ratio in the paper's own setting, R = ⌈L⌉"
    rows = _baselines(findings, findings.paper_statistics)
    table = _means_table(findings, "paper-setting", title, rows, findings.methods, findings.paper_statistics)
    note = "R = ⌈L⌉ caps the search and is in the bound that stops it; nothing is searched again."
    shorter: dict[str, int] = {}
    for name, test_set in findings.study.test_sets.items():
        recorded = (sentence.max_length for sentence in test_set.recorded)
        pairs = zip(recorded, test_set.expected_lengths, strict=True)
        shorter[name] = sum(length is not None and most < length for most, length in pairs)
    if any(shorter.values()):
        sizes = {name: len(findings.study.test_sets[name].lines) for name in shorter}
        counts = " and ".join(f"{count} of {sizes[name]} {name}" for name, count in shorter.items())
        note += f" {counts} sentences were recorded to a shorter maximum length, which is their R here."
    return replace(table, note=f"{table.note} {note} Parameters are those of the main table.")


def _baselines(findings: Findings, statistics: Statistics) -> list[tuple[str, list[Means]]]:
    """Rows above the methods: other systems, and the raw score with a usual beam."""
    rows: list[tuple[str, list[Means]]] = []
    for system, sets in findings.systems.items():
        means = {name: Means(mean_bleu([sets[name]]), mean_ratio([sets[name]])) for name in SETS}
        rows.append((system, [means[name] for name in SETS for _ in GROUPS]))
    size = findings.study.plan.baseline_beam_size
    means = {name: _means(statistics(name, RAW, (size,))) for name in SETS}
    rows.append((f"{findings.label(RAW)}, b = {size}", [means[name] for name in SETS for _ in GROUPS]))
    return rows


def horizon_table(findings: Findings) -> Table:
    """Methods that aim at a length, with the rule of the paper's own runs."""
    title = "BLEU and length ratio with predicted-horizon: R as in the main table, ⌈L⌉ in the bound"
    return _means_table(findings, "horizon", title, [], findings.study.horizon_methods)


def _means_table(
    findings: Findings,
    table: str,
    title: str,
    rows: Sequence[tuple[str, Sequence[Means]]],
    methods: Sequence[StudyMethod],
    statistics: Statistics | None = None,
) -> Table:
    """BLEU and length ratio for small and large beams, on dev and test."""
    statistics = statistics or findings.statistics
    plan = findings.study.plan
    cells = [[label, *(text for each in means for text in _texts(each))] for label, means in rows]
    bleus = [[each.bleu for each in means] for _, means in rows]
    for method in methods:
        cells.append([method.label])
        bleus.append([])
        for name in SETS:
            for group in GROUPS:
                sizes = plan.beam_sizes_of(group)
                found = statistics(name, method.name, sizes)
                means = _means(found)
                bleu, ratio = _texts(means)
                cells[-1] += [bleu + _mark(paired_bootstrap(statistics(name, NORM, sizes), found)), ratio]
                bleus[-1].append(means.bleu)
    strong = frozenset(
        (row, 2 * place + 1)
        for place, column in enumerate(zip(*bleus, strict=True))
        for row, bleu in enumerate(column)
        if bleu == max(column)
    )
    columns = ("", *(f"{name} {group} {what}" for name in SETS for group in GROUPS for what in ("BLEU", "ratio")))
    small, large = (", ".join(map(str, plan.beam_sizes_of(group))) for group in GROUPS)
    note = (
        f"Small beams: mean of b = {small}; large: mean of b = {large}. * better, † worse than"
        f" {findings.label(NORM)} with beam-full on the same set and beams (paired bootstrap,"
        f" p < {SIGNIFICANT:g}). Parameters were chosen on dev, separately for small and large beams."
    )
    return Table(name=table, title=title, columns=columns, rows=rows_of(cells), note=note, strong=strong)


def differences_table(findings: Findings, name: str) -> Table:
    """Each method against length norm and against the raw score."""
    rows = []
    for method in findings.methods:
        for group in GROUPS:
            cells = [method.label, group]
            sizes = findings.study.plan.beam_sizes_of(group)
            for other in (NORM, RAW):
                if other == method.name:
                    cells += ["", ""]
                    continue
                found = findings.difference(name, (other, sizes), (method.name, sizes))
                cells += [interval(found), f"{found.p:.3f}"]
            rows.append(cells)
    columns = ("", "beams", *(text for other in (NORM, RAW) for text in (f"against {findings.label(other)}", "p")))
    note = "BLEU; paired bootstrap, 1,000 samples; in brackets the 95 % interval. Both sides have the same beams."
    return Table(
        name=f"differences-{name}", title=f"Differences on {name}", columns=columns, rows=rows_of(rows), note=note
    )


def widening_table(findings: Findings, name: str) -> Table:
    """What the largest beam gains or loses against a usual one."""
    first, last = findings.widening or (0, 0)
    rows = []
    for method in findings.methods if findings.widening else ():
        found = findings.difference(name, (method.name, [first]), (method.name, [last]))
        between = f"{found.low:+.2f} … {found.high:+.2f}"
        rows.append([method.label, f"{found.bleu:+.2f}", between, f"{found.p:.3f}"])
    title = f"From b = {first} to b = {last} on {name}"
    return Table(f"widening-{name}", title, ("", "BLEU", "95 % interval", "p"), rows_of(rows))


def curse_table(findings: Findings) -> Table:
    """The raw score against the beam size."""
    columns = ("b", *(f"{name} {what}" for name in SETS for what in ("BLEU", "BP", "ratio", "empty")))
    rows = []
    for size in findings.study.plan.all_beam_sizes:
        cells = [str(size)]
        for name in SETS:
            found = findings.at[name][size].measures[RAW]
            cells += [f"{found.bleu:.2f}", f"{found.brevity_penalty:.3f}", f"{found.ratio:.3f}"]
            cells.append(share(found.empty))
        rows.append(cells)
    return Table("curse", "The raw score against the beam size (first-finished)", columns, rows_of(rows))


def beam_sizes_table(findings: Findings, name: str) -> Table:
    """BLEU and length ratio of every method at every beam size."""
    rows = []
    for size, at in findings.at[name].items():
        measures = [at.measures[method.name] for method in findings.methods]
        rows.append([str(size), *(pair(each.bleu, each.ratio) for each in measures)])
    columns = ("b", *(method.label for method in findings.methods))
    return Table(f"beam-sizes-{name}", f"BLEU (length ratio) on {name}", columns, rows_of(rows))


def eos_positions_table(findings: Findings) -> Table:
    """Where hypotheses end."""
    found = findings.eos_positions
    columns = ("b", *(f"{name} {which}" for name in SETS for which in ("first", "second", "third")))
    rows = [
        [str(size), *(f"{step:.1f}" for name in SETS for step in found[name].positions[place])]
        for place, size in enumerate(found["dev"].beam_sizes)
    ]
    counts = ", ".join(
        f"{name} {found[name].sentences} of {len(findings.study.test_sets[name].lines)}" for name in SETS
    )
    note = f"Mean step over the sentences that finish three hypotheses at every one of these beam sizes: {counts}."
    return Table(
        name="eos-positions",
        title="The first, second and third </s>",
        columns=columns,
        rows=rows_of(rows),
        note=note,
    )


def deciles_table(findings: Findings) -> Table:
    """Short and long sources."""
    columns = [findings.deciles(method) for method in findings.methods]
    rows = [
        [f"{tenths[0].source_length:.1f}", *(pair(each.bleu, each.ratio) for each in tenths)]
        for tenths in zip(*columns, strict=True)
    ]
    heads = ("mean |x|", *(method.label for method in findings.methods))
    title = f"BLEU (length ratio) by tenths of source length, test, b = {findings.study.plan.display_beam_size}"
    return Table("deciles", title, heads, rows_of(rows))


def _mark(found: Difference) -> str:
    return "" if found.p >= SIGNIFICANT else "*" if found.bleu > 0 else "†"


def _texts(means: Means) -> tuple[str, str]:
    return f"{means.bleu:.2f}", f"{means.ratio:.3f}"
