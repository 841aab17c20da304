"""The page of the service in a real browser: a search drawn and replayed, by pointer, keys and finger."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Window, a_browser
from served import Quantiles, letters, serving

from uncurse import RULES, SCORES
from uncurse.serving.app import Service
from uncurse.serving.options import Limits

NASTY = "<img src=x onerror='window.hacked = true'></script><script>window.hacked = true</script>"
EXAMPLES = ("fed cba fed", "abcabc", NASTY)
REFUSED = "the server responded with a status of 4"  # what Chromium writes into the console of its own accord


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    limits = Limits(pieces=100, width=40)
    with serving(Service(letters(predictor=Quantiles()), "letters", limits, examples=EXAMPLES)) as address:
        yield address


class Seen(Window):
    """The page with a search in it."""

    def settle(self) -> None:
        self.page.wait_for_selector("body:not([aria-busy]) #outputs .choice")

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def widen(self, key: str) -> None:
        """Move the slider and wait for the search that follows."""
        with self.page.expect_response("**/explain"):
            self.page.locator("#width").press(key)
        self.settle()

    def step(self) -> int:
        return int(self.text("#step-value").split(" of ")[0])


def opened(browser: Any, address: str, width: int = 1280, scheme: str = "light") -> Seen:
    window = Seen.open(browser, address, width, scheme)
    window.settle()
    return window


@pytest.fixture
def window(browser: Any, address: str) -> Iterator[Seen]:
    found = opened(browser, address)
    yield found
    found.page.context.close()
    assert found.wrong == []
    assert all(url.startswith((address, "data:")) for url in found.asked)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_a_search_is_drawn_at_once_and_fits(browser: Any, address: str, width: int, scheme: str) -> None:
    window = opened(browser, address, width, scheme)
    page = window.page
    assert window.text("#status").startswith("9 source pieces · predicted length 12.6 · limit 16")
    assert page.locator("#outputs .choice tbody tr").count() == len(list(SCORES))
    assert page.locator("#scatter .mark").count() > 20
    assert page.locator("#course .series .line").count() == 2
    assert page.locator("#beam li").count() == 20
    assert page.locator("#costs td").count() == len(list(SCORES)) * len(list(RULES))
    for chart in ("#scatter", "#course"):
        assert page.locator(f"{chart} svg").first.bounding_box()["width"] > 200
        assert "NaN" not in page.locator(chart).inner_html()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = window.readable()
    assert abs(ink - paper) > 180
    assert (paper > 200) == (scheme == "light")
    assert window.wrong == []
    page.context.close()


def test_what_is_shown_is_what_the_service_answers(window: Seen) -> None:
    page = window.page
    answer = page.request.post(
        page.url + "translate", data={"sentences": [EXAMPLES[0]], "beam": 20, "score": "log-prob"}
    ).json()
    (raw,) = answer["translations"]
    first = page.locator("#outputs .choice").first
    assert first.locator(".output").inner_text() == raw["text"]
    assert f"{raw['length']} tokens, " in first.locator(".long").inner_text()
    cells = first.locator("tbody tr").first.locator("td").all_inner_texts()
    assert cells[1:3] == [str(raw["steps"]), str(raw["model_rows"])]
    assert first.locator(".certificate").first.inner_text() == raw["certificate"].lower()
    assert first.locator("ins, del").count() == 0
    assert page.locator("#outputs .choice ins").count() > 0
    page.select_option("#compared", "")
    assert page.locator("#outputs .choice ins").count() == 0


def test_the_slider_searches_again_with_another_width(window: Seen) -> None:
    before = window.text("#status")
    window.widen("ArrowRight")
    assert window.text("#width-value") == "25"
    assert window.page.locator("#beam li").count() == 25
    assert window.text("#status") != before
    window.widen("Home")
    assert window.page.locator("#beam li").count() == 1
    window.widen("End")
    assert window.text("#width-value") == "40"


def test_an_example_or_a_typed_sentence_is_searched_for(window: Seen) -> None:
    page = window.page
    with page.expect_response("**/explain"):
        page.select_option("#examples", "1")
    window.settle()
    assert page.locator("#sentence").input_value() == "abcabc"
    assert window.text("#status").startswith("6 source pieces")
    page.fill("#sentence", "abc")
    with page.expect_response("**/explain"):
        page.keyboard.press("Enter")
    window.settle()
    assert window.text("#status").startswith("3 source pieces")


def test_a_click_on_a_point_reads_it(window: Seen) -> None:
    marks = window.page.locator("#scatter .series .mark")
    texts = set()
    for place in (0, 7, 15):
        marks.nth(place).scroll_into_view_if_needed()
        marks.nth(place).click(force=True)
        texts.add(window.text("#reading .output"))
        assert re.match(r"\d+ tokens?, log-probability −\d", window.text("#reading .note"))
    assert len(texts) > 1
    assert window.page.locator("#scatter .predicted").count() == 1


def test_another_rule_stops_elsewhere(window: Seen) -> None:
    window.page.select_option("#rule", "exhaustive")
    steps = window.page.locator("#outputs tbody tr td:nth-child(3)").all_inner_texts()
    assert set(steps) == {"16"}
    assert window.text("#rule-note").startswith("exhaustive: at length R")


def test_the_search_is_replayed_to_the_moment_of_proof(window: Seen) -> None:
    page = window.page
    page.select_option("#score", "log-prob")
    proof = window.step()
    assert f"proved at step {proof} of 16" in window.text("#course .scope")
    assert window.text("#told").startswith("The moment of proof.")
    assert "of which 0 could still win" in window.text("#beam-scope")
    page.click("#back")
    assert window.step() == proof - 1
    assert re.search(r"up to −[\d.]+ could still come: a gap of [\d.]+", window.text("#told"))
    page.click("#first")
    assert window.step() == 1
    assert window.text("#told") == "Nothing has finished yet." or "ended here" in window.text("#told")
    assert set(page.locator("#beam .text").all_inner_texts()) == {*"abcdef", "nothing"}
    page.click("#forward")
    assert window.step() == 2
    page.click("#proof")
    assert window.step() == proof
    before = page.locator("#course .now").get_attribute("transform")
    page.locator("#course .canvas").click(position={"x": 120, "y": 100})
    assert window.step() < proof
    assert page.locator("#course .now").get_attribute("transform") != before
    page.locator("#step").press("End")
    assert window.text("#told").startswith("After the proof.")


def test_it_plays_by_itself_and_ends_at_the_proof(window: Seen) -> None:
    page = window.page
    proof = window.step()
    page.locator("#step").fill(str(proof - 2))
    page.click("#play")
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    page.wait_for_selector("#play[aria-label=Play]")
    assert window.step() == proof


def test_the_beam_shows_the_way_to_the_choice(window: Seen) -> None:
    page = window.page
    choice = page.locator("#ended .best .text").inner_text().removesuffix("■").strip()
    for step in (1, 3, 5):
        page.locator("#step").fill(str(step))
        way = page.locator("#beam .way .text").inner_text()
        assert choice.startswith(way.strip())


def test_the_table_tells_what_rules_cost_and_lose(window: Seen) -> None:
    lost = window.page.locator("#costs .lost")
    assert lost.count() > 0
    assert re.fullmatch(r"loses \d+\.\d\d", lost.first.inner_text())
    rows = window.page.locator("#costs tbody tr").first.locator("b").all_inner_texts()
    assert int(rows[0]) <= int(rows[-1])  # optimal and exhaustive


def test_errors_are_shown_where_they_belong_and_go_away(browser: Any, address: str) -> None:
    window = opened(browser, address)
    page = window.page
    page.fill("#sentence", "   ")
    page.click("#search")
    assert window.text("#problem") == "There is nothing to search for."
    page.fill("#sentence", "a" * 101)
    page.click("#search")
    page.wait_for_selector("#sentence[aria-invalid=true]")
    page.get_by_text("This sentence has 101 pieces; the most is 100.").wait_for()
    assert page.locator("#problem").get_attribute("role") == "alert"
    page.fill("#sentence", "abc")
    page.click("#search")
    page.wait_for_selector("#problem", state="hidden")
    assert page.locator("[aria-invalid]").count() == 0
    assert len(window.wrong) == 1
    assert REFUSED in window.wrong[0]
    page.context.close()


def test_a_service_that_has_gone_is_an_error_and_no_riddle(browser: Any) -> None:
    with serving(Service(letters(), "letters", examples=("abc",))) as address:
        window = opened(browser, address)
    window.page.click("#search")
    window.page.get_by_text("The service does not answer").wait_for()
    window.page.context.close()


def test_a_search_in_which_nothing_ends_can_be_seen(browser: Any) -> None:
    with serving(Service(letters(ending=-math.inf), "letters", examples=("abc",))) as address:
        window = opened(browser, address)
        page = window.page
        assert "0 finished in 16 steps" in window.text("#status")
        assert page.locator("#outputs .certificate.truncated").count() == len(list(SCORES))
        assert window.text("#reading") == "Nothing finished within the limit."
        assert window.text("#course .scope") == "never proved within the limit"
        page.click("#proof")
        assert window.text("#told") == "Nothing has finished yet."
        assert window.text("#ended") == "Nothing yet."
        assert window.wrong == []
        page.context.close()


def test_a_token_is_asked_for_and_sent(browser: Any) -> None:
    with serving(Service(letters(), "letters", token="s3cret", examples=("abc",))) as address:
        window = Seen.open(browser, address)
        assert not [url for url in window.asked if "explain" in url]
        window.page.click("#search")
        window.page.get_by_text("This service wants a bearer token.").wait_for()
        window.page.fill("#token", "s3cret")
        window.page.click("#search")
        window.settle()
        window.page.context.close()


def test_sentences_are_text_and_never_markup(window: Seen) -> None:
    page = window.page
    with page.expect_response("**/explain"):
        page.select_option("#examples", "2")
    window.settle()
    assert page.locator("#sentence").input_value() == NASTY
    assert "onerror" in window.text("#commands")
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("img").count() == 0


def test_the_keyboard_reaches_everything(window: Seen) -> None:
    page = window.page
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    controls = {"sentence", "examples", "width", "search", "rule", "compared", "score"}
    assert controls | {"first", "back", "play", "forward", "proof", "step", "beam", "ended", "costs"} <= reached
    page.locator("#scatter .canvas").focus()
    page.keyboard.press("Home")
    reading = window.text("#reading .output")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert window.text("#reading .output") != reading
    page.locator("#course .canvas").focus()
    page.keyboard.press("Home")
    assert window.step() == 1
    page.keyboard.press("ArrowRight")
    assert window.step() == 2
    assert window.text("#spoken").startswith("step 2: ")


def test_everything_that_is_used_has_a_name(window: Seen) -> None:
    for control in window.page.locator("button, select, input:visible, textarea, [tabindex='0']").all():
        name = control.evaluate(
            "each => each.getAttribute('aria-label') || each.labels?.[0]?.textContent || each.textContent"
        )
        assert name.strip(), control.evaluate("each => each.outerHTML")
    headings = window.page.locator("h1, h2").all_inner_texts()
    assert len(headings) == 6
    assert all(headings)


def test_a_finger_reads_a_point(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 812}, has_touch=True, reduced_motion="reduce")
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#outputs .choice")
    chart = page.locator("#scatter .canvas")
    chart.scroll_into_view_if_needed()
    before = page.locator("#reading .output").inner_text()
    chart.tap(position={"x": 60, "y": 250})
    assert page.locator("#reading .output").inner_text() != before
    tip = page.locator("#scatter .tip").bounding_box()
    assert tip is not None
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 375
    context.close()
