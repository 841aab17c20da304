"""The description of the service, kept true to what it allows and to the problems it answers with."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from uncurse.serving.options import Limits
from uncurse.serving.problems import MEDIA_TYPE, Problem

_ALWAYS: Final = {500: "A mistake of the service."}
_ASKED: Final = {
    400: "The body is not JSON.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "Some field of the body is at fault.",
    503: "Too many are waiting, or the service is being stopped.",
}
_PROBLEMS: Final = {
    "/translate": _ASKED,
    "/explain": _ASKED,
    "/health": {503: "The service takes no requests."},
}
_UNAUTHORIZED: Final = {401: "The bearer token is missing or wrong."}
_OPEN: Final = ("/health",)


def described(app: FastAPI, limits: Limits, token: bool) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        parts = schema["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            parts.pop(unused, None)
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        parts.update(problem.pop("$defs"))
        parts["Problem"] = problem
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                _describe_problems(operation, _ALWAYS | _PROBLEMS.get(path, {}))
                if token and path not in _OPEN:
                    _describe_problems(operation, _UNAUTHORIZED)
                    operation["security"] = [{"bearer": []}]
        if token:
            schema["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        _describe_limits(parts, limits)
        app.openapi_schema = schema
    return app.openapi_schema


def _describe_problems(operation: dict[str, Any], problems: dict[int, str]) -> None:
    for status, meaning in problems.items():
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        described: dict[str, Any] = {"description": meaning, "content": content}
        if status == 503:
            seconds = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}, "required": True}
            described["headers"] = {"Retry-After": seconds}
        operation["responses"][str(status)] = described


def _describe_limits(parts: dict[str, Any], limits: Limits) -> None:
    translation, explanation = parts["TranslationRequest"]["properties"], parts["ExplanationRequest"]["properties"]
    translation["sentences"]["maxItems"] = limits.sentences
    translation["n_best"]["maximum"] = limits.width
    for fields in (translation, explanation):
        fields["beam"]["anyOf"][0]["maximum"] = limits.width
        fields["deadline"]["anyOf"][0]["maximum"] = limits.deadline
