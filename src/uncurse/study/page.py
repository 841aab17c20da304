"""The page of a study: one HTML file that needs nothing else, with figures to handle and every test sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from uncurse.files import write_whole
from uncurse.pages.document import frame_of, json_inside, policy, script_of, style_of
from uncurse.study.table import Table

PARTS: Final = Path(__file__).with_suffix("")  # page.html, page.css and page.js

_NUMBER: Final = re.compile(r"[+\-−–±≤≥<>]?\s*\d[\d.,\s%×x/()\[\]+\-−–±*†‡]*")
_NOTHING: Final = frozenset(("", "-", "–", "—"))


def write_page(
    path: Path,
    data: Mapping[str, Any],
    headline: Sequence[str],
    tables: Sequence[Table],
    commands: Sequence[str],
) -> None:
    """Write the page; `data` is what `page_data` gives, `headline` what was found, in sentences."""
    style, script = style_of(PARTS), script_of(PARTS)
    page = Template(frame_of(PARTS)).substitute(
        policy=escape(policy(style, script)),
        title=escape(str(data["title"])),
        style=style,
        facts="\n".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in _facts(data)
        ),
        headline="\n".join(f"<p>{escape(sentence)}</p>" for sentence in headline),
        tables="\n".join(_table(table) for table in tables),
        commands=escape("\n".join(commands)),
        signatures=_table(_signatures(data)),
        data=json_inside(data),
        script=script,
    )
    write_whole(path, page.encode())


def _facts(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was studied."""
    widths = data["widths"]
    return [
        *(
            (name, f"{each['lines']:,} sentences, {each['references']} reference{'s' * (each['references'] != 1)}")
            for name, each in data["sets"].items()
        ),
        ("beam widths", f"{len(widths)}, from {widths[0]} to {widths[-1]}"),
        ("limit R", data["limit"]),
        ("slots", data["slots"]),
        ("fixed ratio gr", f"{data['ratio']:.3f}"),
        ("BLEU", "lower-cased" if data["lowercase"] else "case counts"),
        ("model", data["model"]),
    ]


def _signatures(data: Mapping[str, Any]) -> Table:
    """What each method is called on the command line."""
    groups = data["groups"]
    return Table(
        "methods",
        "Methods",
        ("method", "stopping rule", *(f"score, widths {', '.join(map(str, groups[group]))}" for group in groups)),
        tuple(
            (method["label"], method["stop"], *(method["score"][group] for group in groups))
            for method in data["methods"]
        ),
        "Numbers were tuned on dev for each group of widths; every width uses those of the nearer group.",
    )


def _table(table: Table) -> str:
    numeric = [
        any(_NUMBER.fullmatch(row[column].strip()) for row in table.rows)
        and all(_is_number(row[column]) for row in table.rows)
        for column in range(len(table.columns))
    ]

    def cell(tag: str, column: int, text: str, strong: bool = False) -> str:
        kind = ' class="number"' if numeric[column] else ""
        scope = ' scope="col"' if tag == "th" else ""
        inner = f"<strong>{escape(text)}</strong>" if strong else escape(text)
        return f"<{tag}{kind}{scope}>{inner}</{tag}>"

    head = "".join(cell("th", column, text) for column, text in enumerate(table.columns))
    body = "\n".join(
        "<tr>"
        + "".join(cell("td", column, text, (place, column) in table.strong) for column, text in enumerate(row))
        + "</tr>"
        for place, row in enumerate(table.rows)
    )
    title = escape(table.title)
    note = f'<p class="note">{escape(table.note)}</p>\n' if table.note else ""
    # A region that scrolls must be reachable with the keyboard, and so needs a name.
    return (
        f'<section class="table">\n<h3>{title}</h3>\n{note}'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>\n</section>"
    )


def _is_number(text: str) -> bool:
    return text.strip() in _NOTHING or _NUMBER.fullmatch(text.strip()) is not None
