"""Pages in a real browser; without one the tests that need it are skipped and say how to install it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
sync_api = pytest.importorskip(
    "playwright.sync_api", reason="needs Playwright: pip install playwright (no browser download is needed)"
)
if not CHROMIUM.exists():
    pytest.skip(f"needs {CHROMIUM}: apt-get install chromium fonts-noto-cjk", allow_module_level=True)


@contextmanager
def a_browser() -> Iterator[Any]:
    """Run Chromium."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Window:
    """A page in a window, with its console errors and the URLs it requested."""

    page: Any  # playwright's Page; the package may be missing where types are checked
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, browser: Any, address: str, width: int = 1280, scheme: str = "light") -> Self:
        """Open a page."""
        context = browser.new_context(
            viewport={"width": width, "height": 860}, color_scheme=scheme, reduced_motion="reduce"
        )
        window = cls(context.new_page())
        window.page.on(
            "console",
            lambda message: window.wrong.append(message.text) if message.type in ("error", "warning") else None,
        )
        window.page.on("pageerror", lambda error: window.wrong.append(str(error)))
        window.page.on("request", lambda request: window.asked.append(request.url))
        window.page.goto(address)
        return window

    def readable(self) -> tuple[float, float]:
        """The brightness of text and background, 0 to 255."""
        found = self.page.evaluate(
            "['color', 'backgroundColor'].map((name) => getComputedStyle(document.body)[name].match(/\\d+/g))"
        )
        ink, paper = (sum(map(int, colour[:3])) / 3 for colour in found)
        return ink, paper
