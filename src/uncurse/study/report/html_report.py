"""The page of a study: one HTML file that needs nothing else, with interactive figures and every test sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final, final

from uncurse.scoring.scores import SCORES
from uncurse.storage.atomic import atomic_write
from uncurse.study.findings import Findings
from uncurse.study.plan import GROUPS
from uncurse.study.report.html_data import page_data
from uncurse.study.report.table import Table
from uncurse.web.document import frame_of, json_inside, policy, script_of, style_of

PARTS: Final = Path(__file__).with_suffix("")  # page.html, page.css and page.js

_NUMBER: Final = re.compile(r"[+\-−–±≤≥<>]?\s*\d[\d.,\s%×x/()\[\]+\-−–±*†‡]*")
_NOTHING: Final = frozenset(("", "-", "–", "—"))


@final
@dataclass(frozen=True)
class Page:
    """What goes into the page."""

    title: str
    facts: Mapping[str, str]  # what was studied
    headline: Sequence[str]  # what was found, in sentences
    tables: Sequence[Table]
    commands: Sequence[str]
    signatures: Table  # the spec of each method
    data: Mapping[str, Any]  # what the script draws

    def html(self) -> str:
        """The page as one document."""
        style, script = style_of(PARTS), script_of(PARTS)
        return Template(frame_of(PARTS)).substitute(
            policy=escape(policy(style, script)),
            title=escape(self.title),
            style=style,
            facts="\n".join(
                f"<div><dt>{escape(name)}</dt><dd>{escape(fact)}</dd></div>" for name, fact in self.facts.items()
            ),
            headline="\n".join(f"<p>{escape(sentence)}</p>" for sentence in self.headline),
            tables="\n".join(_table(table) for table in self.tables),
            commands=escape("\n".join(self.commands)),
            signatures=_table(self.signatures),
            data=json_inside(self.data),
            script=script,
        )


def write_page(
    path: Path, findings: Findings, headline: Sequence[str], tables: Sequence[Table], commands: Sequence[str]
) -> None:
    """Write the page of a study."""
    page = Page(
        title=findings.study.plan.title,
        facts=_facts(findings),
        headline=headline,
        tables=tables,
        commands=commands,
        signatures=_signatures(findings),
        data=page_data(findings),
    )
    atomic_write(path, page.html().encode())


def _facts(findings: Findings) -> dict[str, str]:
    """What was studied."""
    study, plan = findings.study, findings.study.plan
    sizes = plan.all_beam_sizes
    retry = "" if plan.retry_max_length is None else f", then {plan.retry_max_length}"
    facts = {}
    for name, test_set in study.test_sets.items():
        count = len(test_set.references)
        facts[name] = f"{len(test_set.lines):,} sentences, {count} reference{'s' * (count != 1)}"
    return {
        **facts,
        "beam sizes": f"{len(sizes)}, from {sizes[0]} to {sizes[-1]}",
        "maximum length R": f"{plan.max_length}{retry}",
        "slots": plan.slots,
        "fixed length ratio": f"{study.length_ratio:.3f}",
        "BLEU": "lower-cased" if plan.lowercase else "cased",
        "model": plan.model,
        "signature": study.model.signature,
    }


def _signatures(findings: Findings) -> Table:
    """What each method is called on the command line."""
    plan = findings.study.plan
    rows = tuple(
        (method.label, method.stop, *(SCORES.spec(findings.score(method, group)) for group in GROUPS))
        for method in findings.methods
    )
    groups = (f"score, beam sizes {', '.join(map(str, plan.beam_sizes_of(group)))}" for group in GROUPS)
    note = "Parameters were tuned on dev for each group; every beam size uses those of the nearer group."
    return Table(
        name="methods", title="Methods", columns=("method", "stopping rule", *groups), rows=rows, note=note
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
