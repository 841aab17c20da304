"""The page of a study: one file, the same for the same arguments, and safe whatever the sentences contain."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from uncurse.pages.document import SHARED
from uncurse.study.page import PARTS, write_page
from uncurse.study.table import Table

NASTY = "</script><script>alert(1)</script> <!-- <b> & \"double\" 'single' \\ \u2028 \u2029 ${x} $title 中文"


def data(text: str = NASTY) -> dict[str, Any]:
    """What the page needs before its script runs, with `text` wherever text may stand."""
    return {
        "title": text,
        "model": text,
        "limit": "q0.9",
        "slots": "occupy",
        "ratio": 1.25,
        "lowercase": True,
        "widths": [1, 5, 40],
        "groups": {"small": [5], "large": [40]},
        "methods": [
            {"name": "raw", "label": text, "stop": "optimal", "score": {"small": "log-prob", "large": text}}
        ],
        "sets": {"dev": {"lines": 1200, "references": 4}, "test": {"lines": 1300, "references": 1}},
        "sentences": [{"source": text, "references": [text, "http://example.org/"]}],
    }


def table(text: str = NASTY) -> Table:
    rows = (("raw", "23.30"), (text, "+24.1 ± 0.5"))
    return Table("name", text, ("method", text), rows, text, frozenset({(1, 0), (1, 1)}))


def written(tmp_path: Path, text: str = NASTY, **more: float) -> str:
    path = tmp_path / "study.html"
    write_page(path, data(text) | more, [text, text], [table(text)], [f"uncurse study '{text}'", "second"])
    return path.read_bytes().decode()


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


def test_no_text_can_leave_its_place(tmp_path: Path) -> None:
    plain, nasty = (read(written(tmp_path, text)) for text in ("plain", NASTY))
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in plain.elements]
    assert nasty.of("title") == nasty.of("h1") == [NASTY]
    for tag, count in (("p", 3), ("dd", 1), ("h3", 1), ("th", 1), ("td", 2), ("strong", 1)):
        assert nasty.of(tag).count(NASTY) == count, tag
    assert nasty.of("pre") == [f"uncurse study '{NASTY}'\nsecond"]


def test_the_data_come_back_as_they_were(tmp_path: Path) -> None:
    page = read(written(tmp_path))
    places = [attributes.get("id") for tag, attributes in page.elements if tag == "script"]
    assert json.loads(page.of("script")[places.index("data")]) == data()


def test_nothing_inside_the_data_can_end_the_script(tmp_path: Path) -> None:
    inside = written(tmp_path).split('id="data">')[1].split("</script>")[0]
    assert inside.endswith("}")
    assert not set("<>&\u2028\u2029") & set(inside)


def test_nan_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        written(tmp_path, extra=float("nan"))
    assert not list(tmp_path.iterdir())


def test_the_page_asks_for_nothing_outside_itself(tmp_path: Path) -> None:
    page = written(tmp_path, "plain")
    for tag, attributes in read(page).elements:
        assert "src" not in attributes, tag
        assert "style" not in attributes, f"{tag}: the policy forbids style attributes"
        if "href" in attributes:
            assert str(attributes["href"]).startswith(("#", "data:")), tag
    own_parts = [PARTS / "page.html", PARTS / "page.css", PARTS / "page.js"]
    for name in (*own_parts, SHARED / "look.css", SHARED / "drawing.js"):
        own = name.read_text(encoding="utf-8")
        assert not re.search(r"//\w+\.|https?:|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", own), name
    assert "default-src &#x27;none&#x27;" in page


def test_only_the_script_of_the_package_may_run(tmp_path: Path) -> None:
    first, second = (written(tmp_path, text) for text in ("plain", NASTY))
    policies = [re.search(r'Content-Security-Policy" content="([^"]*)"', page) for page in (first, second)]
    assert policies[0] is not None
    assert policies[1] is not None
    assert policies[0][1] == policies[1][1]
    assert "unsafe" not in policies[0][1]


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path)
    assert written(tmp_path) == first
    assert str(tmp_path) not in first
    assert [path.name for path in tmp_path.iterdir()] == ["study.html"]


def test_the_order_of_bold_cells_changes_nothing(tmp_path: Path) -> None:
    cells = [(row, column) for row in range(20) for column in range(5)]
    rows = tuple(tuple(str(row * column) for column in range(5)) for row in range(20))
    pages = []
    for strong in (frozenset(cells), frozenset(reversed(cells))):
        each = Table("t", "t", ("a", "b", "c", "d", "e"), rows, "", strong)
        write_page(tmp_path / "study.html", data(), [], [each], [])
        pages.append((tmp_path / "study.html").read_bytes())
    assert pages[0] == pages[1]


def test_tables_have_bold_cells_and_numbers_to_the_right(tmp_path: Path) -> None:
    page = written(tmp_path, "plain")
    assert '<td class="number"><strong>+24.1 ± 0.5</strong></td>' in page
    assert '<td class="number">23.30</td>' in page
    assert "<td>raw</td>" in page


def test_a_table_with_a_short_row_is_refused() -> None:
    with pytest.raises(ValueError, match="has not one cell for each of"):
        Table("main", "Main", ("a", "b", "c"), (("1", "2"),))


def test_what_was_studied_is_told_without_the_script(tmp_path: Path) -> None:
    page = read(written(tmp_path, "plain"))
    facts = dict(zip(page.of("dt"), page.of("dd"), strict=True))
    assert facts["dev"] == "1,200 sentences, 4 references"
    assert facts["test"] == "1,300 sentences, 1 reference"
    assert facts["beam widths"] == "3, from 1 to 40"
    assert facts["limit R"] == "q0.9"
