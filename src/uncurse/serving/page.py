"""The page of the service: one document that fetches nothing but answers of the service itself."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import Final, final

from uncurse.pages.document import frame_of, json_inside, policy, script_of, style_of
from uncurse.serving.options import Limits

PARTS: Final = Path(__file__).with_suffix("")  # page.html, page.css and page.js
_OWN: Final = "; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@final
class Page:
    """The document and the policy it is sent with."""

    def __init__(self, model: str, limits: Limits, examples: tuple[str, ...], token: bool) -> None:
        style, script = style_of(PARTS), script_of(PARTS)
        data = {"width": limits.width, "pieces": limits.pieces, "examples": examples, "token": token}
        self.policy = policy(style, script, _OWN)
        self.content = Template(frame_of(PARTS)).substitute(
            model=escape(model), style=style, script=script, data=json_inside(data)
        )
