"""The page of the service: one document that fetches nothing but responses of the service itself."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import Final, final

from uncurse.scoring.decoding import Decoding
from uncurse.scoring.scores import SCORES
from uncurse.scoring.stopping import RULES
from uncurse.serving.limits import ServiceLimits
from uncurse.web.document import frame_of, json_inside, policy, script_of, style_of

PARTS: Final = Path(__file__).with_suffix("")  # page.html, page.css and page.js
_OWN_POLICY: Final = "; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@final
class ServicePage:
    """The document, and the content security policy it is sent with."""

    def __init__(
        self,
        model: str,
        model_flags: str,
        limits: ServiceLimits,
        defaults: Decoding,
        examples: tuple[str, ...],
        token: bool,
    ) -> None:
        style, script = style_of(PARTS), script_of(PARTS)
        data = {
            "model": model,
            "model_flags": model_flags,
            "beam_size": limits.beam_size,
            "scores": list(SCORES),  # each is drawn in the same way whichever of them an explanation has
            "score": SCORES.name(defaults.rescorer),
            "stop": RULES.name(defaults.stop),
            "examples": examples,
            "token": token,
        }
        self.policy = policy(style, script, _OWN_POLICY)
        self.content = Template(frame_of(PARTS)).substitute(
            model=escape(model), style=style, script=script, data=json_inside(data)
        )
