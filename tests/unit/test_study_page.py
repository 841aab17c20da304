"""The page of a study: one file, the same for the same arguments, and safe whatever the sentences contain."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.tiny_study import shared_findings

from uncurse import SCORES
from uncurse.study.report.html_report import PARTS, Page, write_page
from uncurse.study.report.table import Table
from uncurse.study.report.write import all_tables
from uncurse.web.document import SHARED

NASTY = "</script><script>alert(1)</script> <!-- <b> & \"double\" 'single' \\ \u2028 \u2029 ${x} $title 中文"


def data(text: str = NASTY) -> dict[str, Any]:
    """Something for the script, with `text` wherever text may stand."""
    return {
        "methods": [{"label": text}],
        "sentences": [{"source": text, "references": [text, "http://example.org/"]}],
    }


def table(text: str = NASTY) -> Table:
    rows = (("raw", "23.30"), (text, "+24.1 ± 0.5"))
    return Table("name", text, ("method", text), rows, text, frozenset({(1, 0), (1, 1)}))


def page(text: str = NASTY) -> Page:
    return Page(
        title=text,
        facts={"model": text},
        headline=[text, text],
        tables=[table(text)],
        commands=[f"uncurse study '{text}'", "second"],
        signatures=Table("methods", "Methods", ("method",), ((text,),)),
        data=data(text),
    )


class Reader(HTMLParser):
    """What a browser would make of the page: elements with their attributes, and the text of each kind."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = [("", "")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self.texts.append(("", ""))

    def handle_data(self, text: str) -> None:
        tag, before = self.texts[-1]
        self.texts[-1] = (tag, before + text)

    def of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_no_text_can_leave_its_place() -> None:
    plain, nasty = (read(page(text).html()) for text in ("plain", NASTY))
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in plain.elements]
    assert nasty.of("title") == nasty.of("h1") == [NASTY]
    for tag, count in (("p", 3), ("dd", 1), ("h3", 1), ("th", 1), ("td", 1), ("strong", 1)):
        assert nasty.of(tag).count(NASTY) == count, tag
    assert nasty.of("pre") == [f"uncurse study '{NASTY}'\nsecond"]


def test_the_data_come_back_as_they_were() -> None:
    found = read(page().html())
    places = [attributes.get("id") for tag, attributes in found.elements if tag == "script"]
    assert json.loads(found.of("script")[places.index("data")]) == data()


def test_nothing_inside_the_data_can_end_the_script() -> None:
    inside = page().html().split('id="data">')[1].split("</script>")[0]
    assert inside.endswith("}")
    assert not set("<>&\u2028\u2029") & set(inside)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(page(), data={"extra": float("nan")}).html()


def test_the_page_asks_for_nothing_outside_itself() -> None:
    content = page("plain").html()
    for tag, attributes in read(content).elements:
        assert "src" not in attributes, tag
        assert "style" not in attributes, f"{tag}: the policy forbids style attributes"
        if "href" in attributes:
            assert str(attributes["href"]).startswith(("#", "data:")), tag
    own_parts = [PARTS / "page.html", PARTS / "page.css", PARTS / "page.js"]
    for name in (*own_parts, SHARED / "look.css", SHARED / "drawing.js"):
        own = name.read_text(encoding="utf-8")
        assert not re.search(r"//\w+\.|https?:|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", own), name
    assert "default-src &#x27;none&#x27;" in content


def test_only_the_script_of_the_package_may_run() -> None:
    first, second = (page(text).html() for text in ("plain", NASTY))
    policies = [re.search(r'Content-Security-Policy" content="([^"]*)"', each) for each in (first, second)]
    assert policies[0] is not None
    assert policies[1] is not None
    assert policies[0][1] == policies[1][1]
    assert "unsafe" not in policies[0][1]


def test_the_order_of_bold_cells_changes_nothing() -> None:
    cells = [(row, column) for row in range(20) for column in range(5)]
    rows = tuple(tuple(str(row * column) for column in range(5)) for row in range(20))
    tables = [
        Table("t", "t", ("a", "b", "c", "d", "e"), rows, "", frozenset(strong)) for strong in (cells, cells[::-1])
    ]
    first, second = (replace(page(), tables=[each]).html() for each in tables)
    assert first == second


def test_tables_have_bold_cells_and_numbers_to_the_right() -> None:
    content = page("plain").html()
    assert '<td class="number"><strong>+24.1 ± 0.5</strong></td>' in content
    assert '<td class="number">23.30</td>' in content
    assert "<td>raw</td>" in content


def test_a_table_with_a_short_row_is_refused() -> None:
    with pytest.raises(ValueError, match="does not have one cell for each of"):
        Table("main", "Main", ("a", "b", "c"), (("1", "2"),))


def test_the_page_of_a_study_says_without_its_script_what_was_studied(tmp_path: Path) -> None:
    findings = shared_findings()
    for name in ("one.html", "other.html"):
        write_page(tmp_path / name, findings, ["BLEU falls."], all_tables(findings), ["uncurse study run"])
    one, other = ((tmp_path / name).read_text(encoding="utf-8") for name in ("one.html", "other.html"))
    assert one == other
    assert str(tmp_path) not in one
    found = read(one)
    facts = dict(zip(found.of("dt"), found.of("dd"), strict=True))
    assert facts["dev"] == "40 sentences, 2 references"
    assert facts["beam sizes"] == "6, from 1 to 7"
    assert facts["maximum length R"] == "2x+3"
    assert facts["model"] == "random"
    specs = {SCORES.spec(findings.score(method, "large")) for method in findings.methods}
    assert specs <= set(found.of("td"))
