"""Pages of one file each: style, script and data are inline, and a policy lets nothing else run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SHARED: Final = Path(__file__).parent  # look.css and drawing.js

# Inside <script> only these could end the element or, in old JavaScript engines, a line.
_UNSAFE: Final = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def style_of(parts: Path) -> str:
    """The shared style followed by that of a page."""
    return _read(SHARED / "look.css") + _read(parts / "page.css")


def script_of(parts: Path) -> str:
    """The shared script followed by that of a page."""
    return _read(SHARED / "drawing.js") + _read(parts / "page.js")


def frame_of(parts: Path) -> str:
    """The HTML of a page, with `$names` to be filled in."""
    return _read(parts / "page.html")


def policy(style: str, script: str, more: str = "") -> str:
    """A content security policy: nothing is fetched, and only the scripts of this package run."""
    return f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'{more}"


def json_inside(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element; NaN and infinity, which browsers cannot parse, are refused."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
