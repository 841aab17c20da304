"""Errors of the service, and the problem details (RFC 9457) that clients get for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, final
from urllib.parse import quote

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from uncurse.errors import UncurseError, nearest, plain_reason

MEDIA_TYPE: Final = "application/problem+json"
MAX_FIELD_ERRORS: Final = 20  # in one response

FieldPath = tuple[str | int, ...]  # from the top of a request's body to a field


@final
class InvalidFieldError(UncurseError):
    """A field of a request has a value that the model or the service cannot accept."""

    def __init__(self, field: FieldPath, reason: str) -> None:
        UncurseError.__init__(self, reason)
        self.field = field


@final
class BusyError(Exception):
    """Too many sentences are waiting; the client may retry after so many seconds."""

    def __init__(self, retry_after: int) -> None:
        Exception.__init__(self, f"retry in {retry_after} s")
        self.retry_after = retry_after


@final
class DeadlineError(Exception):
    """The deadline passed before there was anything to answer with."""


@final
class ClosedError(Exception):
    """The service takes no more requests."""


@final
class SearchFailedError(Exception):
    """The search failed through no fault of the request; the log says why."""


@final
class ProblemError(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        fields: Sequence[tuple[FieldPath, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        Exception.__init__(self, detail)
        self.status = status
        self.detail = detail
        self.fields = tuple(fields)  # the path of each invalid field, and what is wrong with it
        self.headers = dict(headers or {})


HANDLED: Final = (
    ProblemError,
    RequestValidationError,
    HTTPException,
    InvalidFieldError,
    BusyError,
    DeadlineError,
    ClosedError,
    SearchFailedError,
)


@final
class FieldProblem(BaseModel):
    """An invalid field of a request."""

    model_config = ConfigDict(extra="forbid")

    pointer: str = Field(description="The field as the fragment of a JSON pointer; # is the whole body.")
    detail: str


@final
class Problem(BaseModel):
    """What is wrong with a request, or with the service."""

    model_config = ConfigDict(extra="forbid", title="Problem")

    type: str = Field(description="Always about:blank: the status says what kind of problem it is.")
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(description="The invalid fields, if there are any.")


def problem_of(error: Exception, known_fields: Iterable[str] = ()) -> ProblemError:
    """What a client is told of an error; `known_fields` are those that the request may have."""
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            return _validation_problem(error, list(known_fields))
        case HTTPException():
            return _status_problem(error)
        case InvalidFieldError():
            return field_problem([(error.field, str(error))])
        case BusyError():
            return unavailable("too many sentences are waiting", error.retry_after)
        case DeadlineError():
            return unavailable("the deadline passed before the search could begin", 1)
        case ClosedError():
            return unavailable("the service is stopping", 5)
    return ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, "the service failed; see its log")


def field_problem(fields: Sequence[tuple[FieldPath, str]]) -> ProblemError:
    """A request that cannot be served because of some of its fields."""
    shown = fields[:MAX_FIELD_ERRORS]
    pointers = ", ".join(dict.fromkeys(pointer(path) for path, _ in shown))
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"the request is not valid: see {pointers}", shown)


def unavailable(detail: str, retry_after: int) -> ProblemError:
    """A request that may be retried after so many seconds."""
    return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": str(retry_after)})


def headers_problem() -> ProblemError:
    """Headers that are too large or too many."""
    return ProblemError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large or too many")


def problem_response(problem: ProblemError) -> JSONResponse:
    """A problem as it is sent."""
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "detail": problem.detail,
        "errors": [{"pointer": pointer(path), "detail": detail} for path, detail in problem.fields],
    }
    return JSONResponse(content, problem.status.value, problem.headers, MEDIA_TYPE)


def pointer(path: FieldPath) -> str:
    """The path of a field as a JSON pointer (RFC 6901), in the form of a fragment."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "#" + "".join("/" + quote(part, errors="replace") for part in parts)


def _validation_problem(error: RequestValidationError, known_fields: list[str]) -> ProblemError:
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        return ProblemError(HTTPStatus.BAD_REQUEST, f"the body is not valid JSON: {found[0]['ctx']['error']}")
    return field_problem([_field_error(each, known_fields) for each in found])


def _status_problem(error: HTTPException) -> ProblemError:
    status = HTTPStatus(error.status_code)
    detail = error.detail if error.detail != status.phrase else status.description
    return ProblemError(status, detail, headers=error.headers)


def _field_error(error: Mapping[str, Any], known_fields: list[str]) -> tuple[FieldPath, str]:
    """A field and what is wrong with it; the value that was sent is not repeated."""
    path = tuple(error["loc"][1:])  # after "body"
    if error["type"] == "extra_forbidden":
        return path, f"there is no such field{nearest(str(path[-1]), known_fields)}"
    return path, plain_reason(error)
