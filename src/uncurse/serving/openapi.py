"""The OpenAPI document, with the limits of the service and the problems it answers with."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from uncurse.serving.errors import MEDIA_TYPE, Problem
from uncurse.serving.limits import ServiceLimits

_ALWAYS: Final = {
    403: "The request comes from a page of another origin.",
    421: "The service does not answer for this host.",
    431: "The headers are too large or too many.",
    500: "The service failed.",
}
_SEARCH: Final = {
    400: "The body is not valid JSON.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "A field of the body is not valid.",
    503: "Too many sentences are waiting, or the service is stopping.",
}
_PROBLEMS: Final = {
    "/translate": _SEARCH,
    "/explain": _SEARCH,
    "/health": {503: "The service is stopping."},
}
_UNAUTHORIZED: Final = {401: "The bearer token is missing or wrong."}
_OPEN: Final = ("/health",)


def openapi_schema(app: FastAPI, limits: ServiceLimits, token: bool) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        schemas = schema["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs"))
        schemas["Problem"] = problem
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                _describe_problems(operation, _ALWAYS | _PROBLEMS.get(path, {}))
                if token and path not in _OPEN:
                    _describe_problems(operation, _UNAUTHORIZED)
                    operation["security"] = [{"bearer": []}]
        if token:
            schema["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        _describe_limits(schemas, limits)
        app.openapi_schema = schema
    return app.openapi_schema


def _describe_problems(operation: dict[str, Any], problems: dict[int, str]) -> None:
    for status, meaning in problems.items():
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        response: dict[str, Any] = {"description": meaning, "content": content}
        if status == 503:
            seconds = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}, "required": True}
            response["headers"] = {"Retry-After": seconds}
        operation["responses"][str(status)] = response


def _describe_limits(schemas: dict[str, Any], limits: ServiceLimits) -> None:
    translation = schemas["TranslationRequest"]["properties"]
    explanation = schemas["ExplanationRequest"]["properties"]
    translation["sentences"]["maxItems"] = limits.sentences
    translation["n_best"]["maximum"] = limits.beam_size
    for fields in (translation, explanation):
        fields["beam_size"]["anyOf"][0]["maximum"] = limits.beam_size
        fields["deadline"]["anyOf"][0]["maximum"] = limits.deadline
