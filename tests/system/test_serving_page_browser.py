"""The page of the service in a real browser: a search drawn and replayed, by pointer, keys and finger."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import Window, a_browser
from support.service import QuantilePredictor, letter_translator, serving

from uncurse import RULES, SCORES
from uncurse.serving.app import Service
from uncurse.serving.limits import ServiceLimits

pytestmark = pytest.mark.slow
NASTY = "<img src=x onerror='window.hacked = true'></script><script>window.hacked = true</script>"
EXAMPLES = ("fed cba fed", "abcabc", NASTY)
REFUSED = "the server responded with a status of 4"  # what Chromium itself writes to the console


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    limits = ServiceLimits(source_length=100, beam_size=40)
    with serving(
        Service(letter_translator(predictor=QuantilePredictor()), "letters", limits, examples=EXAMPLES)
    ) as address:
        yield address


class PageWindow(Window):
    """The page with a search in it."""

    def settle(self) -> None:
        self.page.wait_for_selector("body:not([aria-busy]) #outputs .choice")

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def move_slider(self, key: str) -> None:
        """Move the slider and wait for the search that follows."""
        with self.page.expect_response("**/explain"):
            self.page.locator("#beam-size").press(key)
        self.settle()

    def step(self) -> int:
        return int(self.text("#step-value").split(" of ")[0])


def opened(browser: Any, address: str, width: int = 1280, scheme: str = "light") -> PageWindow:
    window = PageWindow.open(browser, address, width, scheme)
    window.settle()
    return window


@pytest.fixture
def window(browser: Any, address: str) -> Iterator[PageWindow]:
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
    assert window.text("#status").startswith("9 source tokens · expected length 12.6 · max length 16")
    assert page.locator("#outputs .choice tbody tr").count() == len(SCORES)
    assert page.locator("#scatter .mark").count() > 20
    assert page.locator("#curve .series .line").count() == 2
    assert page.locator("#beam li").count() == 20
    assert page.locator("#costs td").count() == len(SCORES) * len(RULES)
    for chart in ("#scatter", "#curve"):
        assert page.locator(f"{chart} svg").first.bounding_box()["width"] > 200
        assert "NaN" not in page.locator(chart).inner_html()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = window.readable()
    assert abs(ink - paper) > 180
    assert (paper > 200) == (scheme == "light")
    assert window.wrong == []
    page.context.close()


def test_what_is_shown_is_what_the_service_answers(window: PageWindow) -> None:
    page = window.page
    answer = page.request.post(
        page.url + "translate", data={"sentences": [EXAMPLES[0]], "beam_size": 20, "score": "log-prob"}
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


def test_the_slider_searches_again_with_another_beam_size(window: PageWindow) -> None:
    before = window.text("#status")
    window.move_slider("ArrowRight")
    assert window.text("#beam-size-value") == "25"
    assert window.page.locator("#beam li").count() == 25
    assert window.text("#status") != before
    window.move_slider("Home")
    assert window.page.locator("#beam li").count() == 1
    window.move_slider("End")
    assert window.text("#beam-size-value") == "40"


def test_an_example_or_a_typed_sentence_is_searched_for(window: PageWindow) -> None:
    page = window.page
    with page.expect_response("**/explain"):
        page.select_option("#examples", "1")
    window.settle()
    assert page.locator("#sentence").input_value() == "abcabc"
    assert window.text("#status").startswith("6 source tokens")
    page.fill("#sentence", "abc")
    with page.expect_response("**/explain"):
        page.keyboard.press("Enter")
    window.settle()
    assert window.text("#status").startswith("3 source tokens")


def test_a_click_on_a_point_reads_it(window: PageWindow) -> None:
    marks = window.page.locator("#scatter .series .mark")
    texts = set()
    for place in (0, 7, 15):
        marks.nth(place).scroll_into_view_if_needed()
        marks.nth(place).click(force=True)
        texts.add(window.text("#reading .output"))
        assert re.match(r"\d+ tokens?, log-probability −\d", window.text("#reading .note"))
    assert len(texts) > 1
    assert window.page.locator("#scatter .expected-length").count() == 1


def test_another_rule_stops_elsewhere(window: PageWindow) -> None:
    window.page.select_option("#rule", "exhaustive")
    steps = window.page.locator("#outputs tbody tr td:nth-child(3)").all_inner_texts()
    assert set(steps) == {"16"}
    assert window.text("#rule-note").startswith("exhaustive: at length R")


def test_the_search_is_replayed_to_the_moment_of_proof(window: PageWindow) -> None:
    page = window.page
    page.select_option("#score", "log-prob")
    proof = window.step()
    assert f"proved at step {proof} of 16" in window.text("#curve .scope")
    assert window.text("#told").startswith("Proved at this step.")
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
    before = page.locator("#curve .now").get_attribute("transform")
    page.locator("#curve .canvas").click(position={"x": 120, "y": 100})
    assert window.step() < proof
    assert page.locator("#curve .now").get_attribute("transform") != before
    page.locator("#step").press("End")
    assert window.text("#told").startswith("Already proved.")


def test_it_plays_by_itself_and_ends_at_the_proof(window: PageWindow) -> None:
    page = window.page
    proof = window.step()
    page.locator("#step").fill(str(proof - 2))
    page.click("#play")
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    page.wait_for_selector("#play[aria-label=Play]")
    assert window.step() == proof


def test_the_beam_shows_the_way_to_the_choice(window: PageWindow) -> None:
    page = window.page
    choice = page.locator("#ended .best .text").inner_text().removesuffix("■").strip()
    for step in (1, 3, 5):
        page.locator("#step").fill(str(step))
        way = page.locator("#beam .way .text").inner_text()
        assert choice.startswith(way.strip())


def test_the_table_tells_what_rules_cost_and_lose(window: PageWindow) -> None:
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
    assert window.text("#problem") == "The sentence is empty."
    assert not page.locator("#found").is_visible()
    page.fill("#sentence", "a" * 101)
    page.click("#search")
    page.wait_for_selector("#sentence[aria-invalid=true]")
    page.get_by_text("The sentence has 101 tokens; the maximum is 100.").wait_for()
    assert page.locator("#problem").get_attribute("role") == "alert"
    assert not page.locator("#found").is_visible()
    page.fill("#sentence", "abc")
    page.click("#search")
    page.wait_for_selector("#problem", state="hidden")
    assert page.locator("#found").is_visible()
    assert page.locator("[aria-invalid]").count() == 0
    assert len(window.wrong) == 1
    assert REFUSED in window.wrong[0]
    page.context.close()


def test_a_service_that_has_gone_is_a_clear_error(browser: Any) -> None:
    with serving(Service(letter_translator(), "letters", examples=("abc",))) as address:
        window = opened(browser, address)
    window.page.click("#search")
    window.page.get_by_text("The service is not responding").wait_for()
    window.page.context.close()


def test_a_search_in_which_nothing_ends_can_be_seen(browser: Any) -> None:
    with serving(Service(letter_translator(ending=-math.inf), "letters", examples=("abc",))) as address:
        window = opened(browser, address)
        page = window.page
        assert "0 finished in 16 steps" in window.text("#status")
        assert page.locator("#outputs .certificate.truncated").count() == len(SCORES)
        assert window.text("#reading") == "Nothing finished within the maximum length."
        assert window.text("#curve .scope") == "never proved within the maximum length"
        page.click("#proof")
        assert window.text("#told") == "Nothing has finished yet."
        assert window.text("#ended") == "Nothing yet."
        assert window.wrong == []
        page.context.close()


def test_a_model_without_length_predictor_can_be_seen(browser: Any) -> None:
    with serving(Service(letter_translator(predictor=None), "letters", examples=("abcdef",))) as address:
        window = opened(browser, address)
        page = window.page
        assert "expected length" not in window.text("#status")
        rows = page.locator("#outputs .choice tbody tr").count()
        assert 0 < rows < len(SCORES)
        assert page.locator("#costs tbody tr").count() == rows
        assert page.locator("#scatter .expected-length").count() == 0
        assert "of at most 22" in page.locator("#outputs .long").first.inner_text()
        for place in range(rows):
            page.locator("#score").select_option(index=place)
        assert window.wrong == []
        page.context.close()


def test_a_token_is_asked_for_and_sent(browser: Any) -> None:
    with serving(Service(letter_translator(), "letters", token="s3cret", examples=("abc",))) as address:
        window = PageWindow.open(browser, address)
        assert not [url for url in window.asked if "explain" in url]
        window.page.click("#search")
        window.page.get_by_text("This service requires a bearer token.").wait_for()
        window.page.fill("#token", "s3cret")
        window.page.click("#search")
        window.settle()
        window.page.context.close()


def test_the_commands_repeat_what_is_shown(window: PageWindow) -> None:
    window.page.select_option("#score", "length-norm")
    window.page.select_option("#rule", "beam-full")
    curl, explain = window.text("#commands").splitlines()
    body = json.loads(curl.partition(" -d ")[2].strip("'"))
    assert body == {"sentences": [EXAMPLES[0]], "beam_size": 20, "score": "length-norm", "stop": "beam-full"}
    assert explain == f"uncurse explain --model 'letters' --beam-size 20 '{EXAMPLES[0]}'"


def test_the_commands_name_how_the_model_runs(browser: Any) -> None:
    service = Service(letter_translator(), "letters", examples=("abc",), model_flags="--dtype int8")
    with serving(service) as address:
        window = opened(browser, address)
        explain = window.text("#commands").splitlines()[1]
        assert explain == "uncurse explain --model 'letters' --dtype int8 --beam-size 20 'abc'"
        window.page.context.close()


def test_sentences_are_text_and_never_markup(window: PageWindow) -> None:
    page = window.page
    with page.expect_response("**/explain"):
        page.select_option("#examples", "2")
    window.settle()
    assert page.locator("#sentence").input_value() == NASTY
    assert "onerror" in window.text("#commands")
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("img").count() == 0


def test_the_keyboard_reaches_everything(window: PageWindow) -> None:
    page = window.page
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    controls = {"sentence", "examples", "beam-size", "search", "rule", "compared", "score"}
    assert controls | {"first", "back", "play", "forward", "proof", "step", "beam", "ended", "costs"} <= reached
    page.locator("#scatter .canvas").focus()
    page.keyboard.press("Home")
    reading = window.text("#reading .output")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert window.text("#reading .output") != reading
    page.locator("#curve .canvas").focus()
    page.keyboard.press("Home")
    assert window.step() == 1
    page.keyboard.press("ArrowRight")
    assert window.step() == 2
    assert window.text("#spoken").startswith("step 2: ")


def test_everything_that_is_used_has_a_name(window: PageWindow) -> None:
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
