"""The report of a study on disk: tables, figures and the page."""

from __future__ import annotations

from pathlib import Path

from uncurse.storage.atomic import atomic_write
from uncurse.study.findings import Findings
from uncurse.study.report import extra_tables, paper_tables, quality_tables
from uncurse.study.report.figures import draw_figures
from uncurse.study.report.headline import headline
from uncurse.study.report.html_report import write_page
from uncurse.study.report.table import Table
from uncurse.study.test_set import SETS


def all_tables(findings: Findings) -> list[Table]:
    """Every table, the main one first."""
    found = [
        paper_tables.main_table(findings),
        *_with_lengths(findings),
        *(paper_tables.differences_table(findings, name) for name in SETS),
        *(paper_tables.widening_table(findings, name) for name in SETS),
        paper_tables.curse_table(findings),
        *(paper_tables.beam_sizes_table(findings, name) for name in SETS),
        paper_tables.eos_positions_table(findings),
        paper_tables.deciles_table(findings),
        extra_tables.degenerate_table(findings),
        extra_tables.stopping_table(findings),
        extra_tables.max_lengths_table(findings),
        extra_tables.errors_table(findings),
        extra_tables.lengths_table(findings),
        extra_tables.true_lengths_table(findings),
        extra_tables.tuning_table(findings),
        quality_tables.chrf_table(findings),
        quality_tables.similarity_table(findings),
        extra_tables.costs_table(findings),
    ]
    return [table for table in found if table.rows]


def _with_lengths(findings: Findings) -> list[Table]:
    """Tables that need expected lengths."""
    if not findings.study.knows_length:
        return []
    return [
        paper_tables.paper_setting_table(findings),
        paper_tables.horizon_table(findings),
        *(extra_tables.gains_table(findings, name) for name in SETS),
    ]


def write_report(findings: Findings, folder: Path, commands: list[str]) -> list[Path]:
    """Write every table, figure and the page; the same traces give the same bytes."""
    tables = all_tables(findings)
    table_folder, figure_folder = folder / "tables", folder / "figures"
    for each in (table_folder, figure_folder):
        each.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        for suffix, content in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
            written.append(table_folder / f"{table.name}.{suffix}")
            atomic_write(written[-1], content.encode())
    written += draw_figures(findings, figure_folder)
    written.append(folder / "report.html")
    write_page(written[-1], findings, headline(findings), tables, commands)
    return written
