"""The report of a study on disk: tables, figures and the page."""

from __future__ import annotations

from pathlib import Path

from uncurse.evaluation.bootstrap import Difference
from uncurse.files import write_whole
from uncurse.study import beyond, tables
from uncurse.study.figures import draw_figures
from uncurse.study.findings import Findings
from uncurse.study.methods import HORIZON, METHODS, NORM, RAW
from uncurse.study.opened import SETS
from uncurse.study.page import write_page
from uncurse.study.pagedata import page_data, shown_methods
from uncurse.study.table import Table, share


def all_tables(findings: Findings) -> list[Table]:
    """Every table, the main one first."""
    return [
        tables.main_table(findings, "main", METHODS, "with the stopping rule of each"),
        tables.main_table(findings, "horizon", HORIZON, "with predicted-horizon, as in the paper's own runs"),
        *(tables.differences_table(findings, name) for name in SETS),
        *(tables.widening_table(findings, name) for name in SETS),
        tables.curse_table(findings),
        *(tables.widths_table(findings, name) for name in SETS),
        tables.ends_table(findings),
        tables.deciles_table(findings),
        beyond.faults_table(findings),
        beyond.grid_table(findings),
        *([beyond.limits_table(findings)] if findings.limits else []),
        beyond.errors_table(findings),
        beyond.lengths_table(findings),
        beyond.true_lengths_table(findings),
        beyond.tuning_table(findings),
        beyond.characters_table(findings),
        beyond.costs_table(findings),
    ]


def write_report(findings: Findings, folder: Path, commands: list[str]) -> list[Path]:
    """Write every table, figure and the page; the same traces give the same bytes."""
    found = all_tables(findings)
    data = page_data(findings)
    table_folder, figure_folder = folder / "tables", folder / "figures"
    for each in (table_folder, figure_folder):
        each.mkdir(parents=True, exist_ok=True)
    written = []
    for table in found:
        for suffix, content in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
            written.append(table_folder / f"{table.name}.{suffix}")
            write_whole(written[-1], content.encode())
    written += draw_figures(data, figure_folder)
    written.append(folder / "report.html")
    write_page(written[-1], data, headline(findings), found, commands)
    return written


def headline(findings: Findings) -> list[str]:
    """What the study says, in words and numbers."""
    plan = findings.study.plan
    first, last = plan.baseline_width, plan.all_widths[-1]
    raw = findings.at["test"]
    before, after = raw[first].measures[RAW.name], raw[last].measures[RAW.name]
    change = findings.difference("test", (RAW.name, [first]), (RAW.name, [last]))
    found = [
        f"From a beam of {first} to one of {last} the raw score goes from BLEU {before.bleu:.1f} (length ratio"
        f" {before.ratio:.2f}) to {after.bleu:.1f} ({after.ratio:.2f}), with {share(after.empty)} of its outputs"
        f" empty. {_verdict(change)}"
    ]
    free = [method for method in shown_methods(findings) if method.predicts and not method.tuned]
    if not free or NORM not in shown_methods(findings):
        return found
    large = findings.widths("large")
    best = max(free, key=lambda method: tables.mean_of(findings, "dev", method.name, large).bleu)
    kept = findings.difference("test", (best.name, [first]), (best.name, [last]))
    against = findings.difference("test", (NORM.name, large), (best.name, large))
    wide = raw[last].measures[best.name]
    found.append(
        f"{best.label[:1].upper()}{best.label[1:]} has nothing to tune and is the best of its kind on dev: BLEU"
        f" {wide.bleu:.1f} ({wide.ratio:.2f}) at {last}, {kept.bleu:+.1f} from {first}. {_verdict(kept)}"
    )
    found.append(
        f"With large beams it is {against.bleu:+.2f} BLEU from {NORM.label} as toolkits stop it (95 % interval"
        f" {against.low:+.2f} to {against.high:+.2f}, p = {against.p:.3f}). {share(wide.proved)} of its outputs"
        " are proved to be the best that the search could have found."
    )
    return found


def _verdict(change: Difference) -> str:
    if change.p >= tables.SURE:
        return f"The difference could be chance (p = {change.p:.2f})."
    return (
        f"That is {'a gain' if change.bleu > 0 else 'a loss'} that chance does not explain (p = {change.p:.3f})."
    )
