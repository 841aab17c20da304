"""Which problem each error is."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from uncurse.registry import nearest
from uncurse.serving.asking import ExplanationRequest, TranslationRequest
from uncurse.serving.orders import Refused, TooLate
from uncurse.serving.problems import ProblemError, Way, at_fault
from uncurse.serving.worker import Busy, Closed, Failed

KNOWN: Final = (ProblemError, RequestValidationError, HTTPException, Refused, Busy, TooLate, Closed, Failed)
BROKEN: Final = "this is a mistake of the service; its log says more"
FIELDS: Final = [*dict.fromkeys([*TranslationRequest.model_fields, *ExplanationRequest.model_fields])]


def problem_of(error: Exception) -> ProblemError:
    """What is told of an error."""
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _of_status(error)
        case Refused():
            return at_fault([(error.field, str(error))])
        case Busy():
            return unavailable("too many sentences are waiting", error.retry_after)
        case TooLate():
            return unavailable("the deadline has passed before the search could begin", 1)
        case Closed():
            return unavailable("the service takes no requests", 5)
    return ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, BROKEN)


def unavailable(detail: str, seconds: int) -> ProblemError:
    """Something that may be tried again."""
    return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": str(seconds)})


def _invalid(error: RequestValidationError) -> ProblemError:
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        return ProblemError(HTTPStatus.BAD_REQUEST, f"this is not JSON: {found[0]['ctx']['error']}")
    return at_fault([_fault(each) for each in found])


def _of_status(error: HTTPException) -> ProblemError:
    known = HTTPStatus(error.status_code)
    detail = error.detail if error.detail != known.phrase else known.description
    return ProblemError(known, detail, headers=error.headers)


def _fault(error: Mapping[str, Any]) -> tuple[Way, str]:
    """The way to a field and what is wrong with it; what was given is not repeated."""
    way = tuple(error["loc"][1:])  # after "body"
    if error["type"] == "extra_forbidden":
        return way, f"there is no such field{nearest(str(way[-1]), FIELDS)}"
    return way, str(error["msg"]).removeprefix("Value error, ")
