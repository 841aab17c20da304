"""The page of a study in a real browser: what is drawn, what answers to pointer and keys, what fits a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pytest
from support.browser import Window, a_browser
from support.study_page import LABELS, NASTY, RULES, SENTENCES, SIZES, data, measures, write_page

from uncurse.study.report.table import Table

pytestmark = pytest.mark.slow


@final
@dataclass
class Opened(Window):
    """The page of a study in a window."""

    def hover(self, selector: str, across: float, down: float = 0.5) -> None:
        """Point at a place of a chart, as shares of its width and height."""
        chart = self.page.locator(selector)
        chart.evaluate("element => element.scrollIntoView({block: 'center', behavior: 'instant'})")
        box = chart.bounding_box()
        self.page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])

    def lines(self, figure: str) -> list[str]:
        """The path of every line of a figure."""
        paths: list[str] = self.page.locator(f"#{figure} .series .line").evaluate_all(
            "all => all.map((line) => line.getAttribute('d'))"
        )
        return paths

    def tip(self, figure: str) -> str:
        """What the tooltip of a figure says."""
        tip = self.page.locator(f"#{figure} .tip")
        assert tip.is_visible()
        return str(tip.inner_text())

    def listed(self) -> str:
        """How many sentences there are in the list, as the page says."""
        return str(self.page.locator("#count").inner_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.html"
    columns = tuple(f"column {place}" for place in range(14))
    wide = Table(
        "wide",
        "Wide",
        columns,
        (("1.00",) * 14,) * 3,
        "nrefs:var|case:lc|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
        frozenset({(0, 1)}),
    )
    write_page(path, data(), [wide])
    return path


def opened(browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> Opened:
    found = Opened.open(browser, file.as_uri(), width, scheme)
    found.page.wait_for_selector("#detail .mark")
    return found


@pytest.fixture
def window(browser: Any, file: Path) -> Iterator[Opened]:
    found = opened(browser, file)
    yield found
    found.page.context.close()
    assert found.wrong == []


def test_what_was_not_studied_is_not_on_the_page(browser: Any, tmp_path: Path) -> None:
    none = {"gains": {}, "max_length_cells": [], "tuning": {"small": [], "large": []}}
    write_page(tmp_path / "study.html", data() | none, [])
    window = opened(browser, tmp_path / "study.html")
    assert window.page.locator("#gains, #max-lengths, #tuning").count() == 0
    assert window.page.locator("nav a").all_inner_texts()[2:4] == ["Stopping", "Tables"]
    assert window.page.locator("figure .canvas").count() == 9
    window.page.context.close()
    assert window.wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_everything_is_drawn_and_nothing_overflows(browser: Any, file: Path, width: int, scheme: str) -> None:
    window = opened(browser, file, width, scheme)
    page = window.page
    charts = page.locator("figure .canvas")
    assert charts.count() == 12
    for place in range(charts.count()):
        chart = charts.nth(place)
        name = chart.get_attribute("aria-label")
        assert chart.locator(".mark").count() >= 3, name
        assert chart.locator("text").count() >= 4, name
        assert chart.locator("svg").bounding_box()["width"] > 200, name
        assert "NaN" not in chart.inner_html(), name
    assert page.locator("#stops td").count() == len(LABELS) * len(RULES)
    assert page.locator("#tuned-gnmt td").count() == 6
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert window.wrong == []
    assert [url for url in window.asked if not url.startswith(("file:", "data:"))] == []
    page.context.close()


def test_light_and_dark_differ_and_can_both_be_read(browser: Any, file: Path) -> None:
    papers = []
    for scheme in ("light", "dark"):
        window = opened(browser, file, scheme=scheme)
        ink, paper = window.readable()
        assert abs(ink - paper) > 180
        papers.append(paper)
        window.page.context.close()
    assert papers[0] > 200
    assert papers[1] < 60


def test_sentences_are_text_and_never_markup(window: Opened) -> None:
    window.page.fill("#search", "window.hacked")
    window.page.locator("#list [role=option]").first.click()
    assert window.page.locator("#detail > .source").text_content().endswith(NASTY)
    assert window.page.evaluate("window.hacked === undefined")
    assert window.page.locator("img").count() == 0


def test_pointing_at_a_chart_tells_exact_values(window: Opened) -> None:
    window.hover("#methods .canvas", 0.97)
    tip = window.tip("methods")
    assert tip.startswith("beam size 40")
    for method, label in LABELS.items():
        assert re.search(rf"{re.escape(label)}\s+{measures(method, 40, 0)['bleu']:.2f}", tip), label
    window.page.mouse.move(0, 0)
    assert not window.page.locator("#methods .tip").is_visible()


def test_the_nearest_point_answers_where_each_has_its_own_x(window: Opened) -> None:
    mark = window.page.locator('#cost .series[data-name="bp-norm"] .mark').last
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    assert "BP-Norm, beam size 40" in window.tip("cost")
    assert f"{measures('bp-norm', 40, 0)['model_rows']:,.0f}" in window.tip("cost")


def test_a_gain_is_told_with_its_interval(window: Opened) -> None:
    mark = window.page.locator('#gains .series[data-name="bp-norm"] .mark').last
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    assert "BP-Norm, ≥ 0.9" in window.tip("gains")
    assert "−0.50" in window.tip("gains")
    assert "−2.50 to +1.25" in window.tip("gains")
    assert window.page.locator("#gains .interval").count() == 6


def test_another_metric_set_or_spacing_redraws(window: Opened) -> None:
    page = window.page
    before = window.lines("methods")
    page.select_option("#metric", "empty")
    assert window.lines("methods") != before
    window.hover("#methods .canvas", 0.97)
    assert re.search(r"raw score\s+3\.7 %", window.tip("methods"))
    page.select_option("#metric", "bleu")
    assert window.lines("methods") == before
    curse = window.lines("curse-bleu")
    page.get_by_label("dev", exact=True).check(force=True)
    window.hover("#methods .canvas", 0.97)
    assert f"{measures('log-prob', 40, 3)['bleu']:.2f}" in window.tip("methods")
    assert "dev" in page.locator("#methods .scope").inner_text()
    page.get_by_label("even", exact=True).check(force=True)
    assert window.lines("curse-bleu") != curse
    window.page.select_option("#stop-metric", "lost")
    assert "30.0 %" in page.locator("#stops td").all_inner_texts()
    before = window.lines("max-length")
    page.select_option("#length-metric", "model_rows")
    assert window.lines("max-length") != before


def test_the_legend_takes_methods_out_of_all_figures(window: Opened) -> None:
    page = window.page
    button = page.locator("#methods .legend").get_by_role("button", name="raw score")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    for figure in ("methods", "cost", "decile-bleu", "decile-ratio"):
        assert page.locator(f'#{figure} .series[data-name="log-prob"]').count() == 0
        assert page.locator(f"#{figure} .series").count() == len(LABELS) - 1
    assert (
        page.locator("#cost .legend").get_by_role("button", name="raw score").get_attribute("aria-pressed")
        == "false"
    )
    page.locator("#methods .legend").get_by_role("button", name="none", exact=True).click()
    assert page.locator("#methods .series").count() == 0
    page.locator("#methods .legend").get_by_role("button", name="all", exact=True).click()
    assert page.locator("#methods .series").count() == len(LABELS)


def test_the_numbers_of_a_chart_are_there_as_a_table(window: Opened) -> None:
    window.page.locator("#methods summary").click()
    window.page.wait_for_selector("#methods .numbers td")
    cells = window.page.locator("#methods .numbers td").all_inner_texts()
    assert len(cells) == len(SIZES) * len(LABELS)
    assert cells[-1] == f"{measures('bp-norm', 40, 0)['bleu']:.2f}"


def test_choosing_a_sentence_shows_its_candidates_and_choices(window: Opened) -> None:
    page = window.page
    page.select_option("#sort", "set")
    page.locator("#list [role=option]").nth(3).click()
    detail = page.locator("#detail")
    assert "第3号房子在山上。" in detail.inner_text()
    assert detail.locator(".references li").count() == 2
    assert detail.locator(".canvas .series .mark").count() == 7
    assert detail.locator(".choice").count() == 2
    assert detail.locator(".choice tbody tr").count() == len(LABELS)
    assert detail.locator(".choice ins").all_inner_texts() == ["the", "is on the hill"]
    assert "house number 3" in detail.locator(".reading").inner_text()
    detail.locator(".series .mark").last.click(force=True)
    assert "a candidate 3 of 3" in detail.locator(".reading").inner_text()
    page.select_option("#compared", label="reference 2")
    assert "a" in detail.locator(".choice del").all_inner_texts()
    page.locator("#list [role=option]").nth(4).click()
    assert detail.locator(".choice").count() == 1
    assert detail.locator("#compared").input_value() == "reference 1"


def test_filters_and_sorting_change_the_list(window: Opened) -> None:
    page = window.page
    first = page.locator("#list [role=option] b").first
    assert window.listed() == "150 of 150 sentences"
    page.check("#disagree")
    assert window.listed() == "50 of 150 sentences"
    page.check("#unproved")
    assert window.listed() == "10 of 150 sentences"
    page.uncheck("#disagree")
    page.uncheck("#unproved")
    page.locator("#short").fill("60")
    assert window.listed() == "50 of 150 sentences"
    page.locator("#short").fill("100")
    page.fill("#search", "NUMBER 149 IS")
    assert window.listed() == "1 of 150 sentences"
    assert first.inner_text() == "150"
    page.fill("#search", "no such words")
    assert page.locator("#list [role=option]").count() == 0
    page.fill("#search", "")
    page.select_option("#sort", "set")
    assert first.inner_text() == "1"
    page.select_option("#sort", "short")
    assert "0.50×" in page.locator("#list [role=option]").first.inner_text()


def test_the_list_is_drawn_as_it_is_read(window: Opened) -> None:
    options = window.page.locator("#list [role=option]")
    assert options.count() < SENTENCES
    window.page.locator("#list").focus()
    window.page.keyboard.press("End")
    assert options.count() == SENTENCES
    assert options.last.get_attribute("aria-selected") == "true"


def test_the_keyboard_reaches_everything(window: Opened) -> None:
    page = window.page
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"canvas", "scroll", "metric", "stop-metric", "search", "sort", "short", "list", "compared"} <= reached
    chart = page.locator("#methods .canvas")
    chart.focus()
    page.keyboard.press("End")
    assert "beam size 40" in window.tip("methods")
    page.keyboard.press("ArrowLeft")
    assert "beam size 20" in window.tip("methods")
    assert page.locator("#spoken").inner_text().startswith("beam size 20: ")
    page.keyboard.press("Escape")
    assert not page.locator("#methods .tip").is_visible()
    page.locator("#methods .legend button").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#methods .series").count() == len(LABELS) - 1
    page.locator("#bar input[value=test]").focus()
    page.keyboard.press("ArrowLeft")
    assert "dev" in page.locator("#methods .scope").inner_text()
    page.locator("#list").focus()
    before = page.locator("#detail > .source").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator("#detail > .source").inner_text() != before
    chosen = page.locator("#list [aria-selected=true]")
    assert chosen.get_attribute("id") == page.locator("#list").get_attribute("aria-activedescendant")
    page.locator("#detail .canvas").focus()
    page.keyboard.press("Home")
    reading = page.locator("#detail .reading").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#detail .reading").inner_text() != reading


def test_a_finger_that_lifts_leaves_the_tooltip(browser: Any, file: Path) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 812}, has_touch=True, reduced_motion="reduce")
    page = context.new_page()
    page.goto(file.as_uri())
    chart = page.locator("#methods .canvas")
    chart.scroll_into_view_if_needed()
    chart.tap()
    tip = page.locator("#methods .tip").bounding_box()
    assert tip is not None
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 375
    context.close()
