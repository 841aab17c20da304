"""What every request passes first: headers, host, token and size are checked, and its body has a time limit."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Collection
from http import HTTPStatus
from typing import Final, final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uncurse.serving.errors import ProblemError, headers_problem, problem_of, problem_response
from uncurse.serving.hosts import HostPolicy
from uncurse.serving.limits import MAX_HEADER_BYTES, MAX_HEADERS, ServiceLimits
from uncurse.serving.metrics import Metrics

LOG: Final = logging.getLogger("uncurse.serving")
CLIENT_CLOSED_REQUEST: Final = 499  # nginx's status for it; only in the metrics
SECURITY_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@final
class RequestMiddleware:
    """ASGI middleware around the service."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: ServiceLimits,
        hosts: HostPolicy | None,
        token: str | None,
        open_paths: Collection[str],
        metrics: Metrics,
    ) -> None:
        self._app = app
        self._limits = limits
        self._hosts = hosts
        self._token = None if token is None else token.encode()
        self._open = frozenset(open_paths)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._refusal(scope)
        try:
            if problem is None:
                await self._app(scope, self._limited(receive), send_with_headers)
        except ClientDisconnect:
            status = CLIENT_CLOSED_REQUEST
        except Exception as error:
            LOG.error("a request failed", exc_info=error)
            problem = problem_of(error)
        if problem is not None and not status:
            await problem_response(problem)(scope, receive, send_with_headers)
        route = scope.get("route")  # only known paths: unknown ones would make metrics without number
        self._metrics.observe_request(getattr(route, "path", "other"), status, time.monotonic() - began)

    def _refusal(self, scope: Scope) -> ProblemError | None:
        """Why a request is not even looked at; None if it is."""
        fields = scope["headers"]
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in fields)  # 4 for ": " and the line end
        if len(fields) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            return headers_problem()
        headers = Headers(scope=scope)
        return self._foreign(headers) or self._unauthorized(headers, scope["path"]) or self._too_large(headers)

    def _foreign(self, headers: Headers) -> ProblemError | None:
        if self._hosts is None:
            return None
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._hosts.allows_host(host):
            return ProblemError(HTTPStatus.MISDIRECTED_REQUEST, "this service does not answer for this host")
        if origin is not None and not self._hosts.allows_origin(origin, host):
            return ProblemError(HTTPStatus.FORBIDDEN, "pages of other origins may not use this service")
        return None

    def _unauthorized(self, headers: Headers, path: str) -> ProblemError | None:
        if self._token is None or path in self._open:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(given.strip().encode(), self._token)
        if matches and scheme.lower() == "bearer":
            return None
        detail = "this service requires a bearer token"
        return ProblemError(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": "Bearer"})

    def _too_large(self, headers: Headers) -> ProblemError | None:
        length = headers.get("content-length", "")
        too_large = length.isdecimal() and (len(length) > 18 or int(length) > self._limits.body)
        return self._body_problem() if too_large else None

    def _limited(self, receive: Receive) -> Receive:
        """Limit the bytes of the body, for bodies that do not say how long they are, and the time it takes."""
        received, complete = 0, False
        end = asyncio.get_running_loop().time() + self._limits.client_timeout

        async def limited_receive() -> Message:
            nonlocal received, complete
            try:
                async with asyncio.timeout_at(None if complete else end):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, headers={"Connection": "close"}) from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > self._limits.body:
                problem = self._body_problem()
                raise HTTPException(problem.status.value, problem.detail)
            return message

        return limited_receive

    def _body_problem(self) -> ProblemError:
        return ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large: the maximum is {self._limits.body} bytes"
        )
