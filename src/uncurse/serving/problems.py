"""Errors as problem details (RFC 9457): what is wrong, with which field, and nothing of the inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, final
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

MEDIA_TYPE: Final = "application/problem+json"
MOST: Final = 20  # faults that are told

Way = tuple[str | int, ...]  # to a field, from the top of a request's body


@final
class Fault(BaseModel):
    """A field that is at fault."""

    model_config = ConfigDict(extra="forbid")

    pointer: str = Field(description="Where in the body it is, as the fragment of a JSON pointer; # is all of it.")
    detail: str


@final
class Problem(BaseModel):
    """What is wrong with a request, or with the service."""

    model_config = ConfigDict(extra="forbid", title="Problem")

    type: str = Field(description="Always about:blank: the status says what kind of problem it is.")
    title: str
    status: int
    detail: str
    errors: list[Fault] = Field(description="The fields at fault, if it is fields.")


@final
class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        faults: Sequence[tuple[Way, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        Exception.__init__(self, detail)
        self.status = status
        self.detail = detail
        self.faults = tuple(faults)  # the way to each field at fault, and what is wrong with it
        self.headers = dict(headers or {})


def at_fault(faults: Sequence[tuple[Way, str]]) -> ProblemError:
    """A request that cannot be done because of some of its fields, of which a few are named."""
    named = faults[:MOST]
    pointers = ", ".join(dict.fromkeys(pointer(way) for way, _ in named))
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"this cannot be done: see {pointers}", named)


def response(problem: ProblemError) -> JSONResponse:
    """A problem as it is sent."""
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "detail": problem.detail,
        "errors": [{"pointer": pointer(way), "detail": detail} for way, detail in problem.faults],
    }
    return JSONResponse(content, problem.status.value, problem.headers, MEDIA_TYPE)


def pointer(way: Way) -> str:
    """The way to a field as a JSON pointer (RFC 6901) in the form of a fragment."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in way)
    return "#" + "".join("/" + quote(part, errors="replace") for part in parts)
