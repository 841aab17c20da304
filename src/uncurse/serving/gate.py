"""What every request passes before it is looked at: its token, its size; and what every answer is sent with."""

from __future__ import annotations

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

from uncurse.serving.faults import problem_of
from uncurse.serving.metrics import Metrics
from uncurse.serving.problems import ProblemError, response

LOG: Final = logging.getLogger("uncurse.serving")
GONE: Final = 499  # in the metrics: whoever asked did not wait for the answer
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@final
class Gate:
    """ASGI around the service."""

    def __init__(
        self, app: ASGIApp, *, body: int, token: str | None, open_paths: Collection[str], metrics: Metrics
    ) -> None:
        self._app = app
        self._body = body
        self._token = None if token is None else token.encode()
        self._open = frozenset(open_paths)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._refused(scope)
        try:
            if problem is None:
                await self._app(scope, self._limited(receive), sent)
        except ClientDisconnect:
            status = GONE
        except Exception as error:
            LOG.error("a request failed", exc_info=error)
            problem = problem_of(error)
        if problem is not None and not status:
            await response(problem)(scope, receive, sent)
        route = scope.get("route")  # known only for what the service has; others would be without number
        self._metrics.answered(getattr(route, "path", "other"), status, time.monotonic() - began)

    def _refused(self, scope: Scope) -> ProblemError | None:
        headers = Headers(scope=scope)
        if self._token is not None and scope["path"] not in self._open:
            kind, _, given = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(given.strip().encode(), self._token)
            if kind.lower() != "bearer" or not right:
                return ProblemError(
                    HTTPStatus.UNAUTHORIZED,
                    "this service wants a bearer token",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        length = headers.get("content-length", "")
        too_large = length.isdecimal() and (len(length) > 18 or int(length) > self._body)
        return self._too_large() if too_large else None

    def _limited(self, receive: Receive) -> Receive:
        """The same, counted, for bodies that do not say how long they are."""
        so_far = 0

        async def received() -> Message:
            nonlocal so_far
            message = await receive()
            so_far += len(message.get("body", b""))
            if so_far > self._body:
                problem = self._too_large()
                raise HTTPException(problem.status.value, problem.detail)
            return message

        return received

    def _too_large(self) -> ProblemError:
        return ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have {self._body} bytes, and this has more"
        )
