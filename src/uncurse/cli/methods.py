"""`uncurse methods`: the scores and stopping rules, as they are registered."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from uncurse.scoring.coverage import COVERAGE_FLOOR
from uncurse.scoring.registry import Entry, Registry, parameters_of
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES


def methods() -> None:
    """List every score and stopping rule with its formula, parameters and source."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=260)  # a pipe has no width; rows that are not folded are easier to search
    console.print(_table("Scores", SCORES))
    console.print(_table("Stopping rules", RULES))
    console.print(
        "S log-probability · n length with </s> · L expected length · R maximum length · b beam size\n"
        f"|x| source tokens · c_i attention that token i received · ε = {COVERAGE_FLOOR:g}\n"
        "r_t mean cost of the b best tokens of step t\n"
        "bound: the highest score that any completion of a prefix could still reach\n"
        "Parameters are written after the name: --score gnmt:alpha=0.2,beta=0.2 --stop beam-full:patience=2",
        highlight=False,
    )


def _table(title: str, registry: Registry[Any]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "formula", "parameters", "source"):
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    for entry in registry.values():
        table.add_row(entry.name, Text(entry.formula), Text(_parameters(entry)), Text(entry.source))
    return table


def _parameters(entry: Entry[Any]) -> str:
    return "\n".join(
        f"{field.name}: {parameter.meaning}; {parameter.range}{_default(field)}"
        for field, parameter in parameters_of(entry.method)
    )


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return ", required"
    return "" if field.default is None else f", default {field.default:g}"
