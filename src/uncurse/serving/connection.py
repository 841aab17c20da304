"""Connections with limits: what a client can hold on to before its request is even looked at."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast, final

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from uncurse.serving.errors import ProblemError, headers_problem, problem_response, unavailable
from uncurse.serving.limits import MAX_HEADER_BYTES, ServiceLimits

LINGER: Final = 1.0  # seconds that a refused client has to read why …
MAX_DISCARDED: Final = 1 << 18  # … if it sends no more bytes than this


@final
class GuardedProtocol(asyncio.Protocol):
    """uvicorn's HTTP/1.1 protocol, with limits on connections and on the time that a client takes.

    A client has `client_timeout` seconds for its headers, from the first byte, and for taking a response. The time
    for its body is limited by the middleware. The parser is always h11, whose buffer has a limit.
    """

    def __init__(
        self,
        limits: ServiceLimits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._limits = limits
        self._loop = _loop or asyncio.get_running_loop()
        self._connections = server_state.connections
        self._inner = H11Protocol(config, server_state, app_state, _loop)
        self._app = self._inner.app
        self._inner.app = self._run
        self._inner.send_400_response = self._refuse_syntax  # type: ignore[method-assign]
        self._transport: asyncio.Transport | None = None
        self._is_made = False  # the inner protocol knows of the connection
        self._is_refused = False
        self._discarded = 0  # bytes that came after a refusal
        self._running = 0  # requests that the application has begun and not ended
        self._arriving = False  # bytes have come since the last request began
        self._waiting: asyncio.TimerHandle | None = None  # for the client to send a request
        self._stalled: asyncio.TimerHandle | None = None  # for the client to take a response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or refuse it if there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        if len(self._connections) >= self._limits.connections:
            self._refuse(unavailable("too many connections", 1))
            return
        self._inner.connection_made(self._transport)
        self._is_made = True
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; the first ones of a request start its time."""
        if self._is_refused:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED:
                self._abort()
            return
        if not self._running and not self._arriving:
            self._arriving = True
            self._wait()
        self._inner.data_received(data)

    def eof_received(self) -> None:
        """Nothing more comes."""
        if self._is_made:
            self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        for timer in (self._waiting, self._stalled):
            if timer is not None:
                timer.cancel()
        if self._is_made:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take its response as fast as it is written."""
        self._stalled = self._loop.call_later(self._limits.client_timeout, self._abort)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        if self._stalled is not None:
            self._stalled.cancel()
        self._inner.resume_writing()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._running += 1
        self._arriving = False
        if self._waiting is not None:
            self._waiting.cancel()
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
            if self._transport is not None and self._transport.get_write_buffer_size() and not self._arriving:
                self._wait()  # here for the response to be taken

    def _wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self._loop.call_later(self._limits.client_timeout, self._give_up)

    def _give_up(self) -> None:
        """Close the connection; a client that has sent a part of a request is told why."""
        conn, cycle = self._inner.conn, self._inner.cycle
        under_way = self._running or (cycle is not None and not cycle.response_complete)
        if under_way or self._transport is None:
            return
        if self._transport.get_write_buffer_size() == 0 and conn.their_state is h11.IDLE and conn.trailing_data[0]:
            self._refuse(ProblemError(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to arrive"))
        else:
            self._abort()

    def _refuse_syntax(self, msg: str) -> None:
        """Called by the inner protocol where the parser fails."""
        if len(self._inner.conn.trailing_data[0]) > MAX_HEADER_BYTES:
            self._refuse(headers_problem())
        else:
            self._refuse(ProblemError(HTTPStatus.BAD_REQUEST, "this is not a valid HTTP/1.1 request"))

    def _refuse(self, problem: ProblemError) -> None:
        """Answer without the application and close the connection, once the client could read the answer.

        To close a socket with unread bytes resets the connection, which can destroy the answer on its way.
        """
        assert self._transport is not None
        self._is_refused = True
        cycle = self._inner.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # the application has nothing more to say here
            cycle.message_event.set()
            if cycle.response_started:
                self._abort()
                return
        response = problem_response(problem)
        headers = b"".join(b"%s: %s\r\n" % header for header in response.raw_headers)
        line = f"HTTP/1.1 {problem.status.value} {problem.status.phrase}\r\n".encode()
        self._transport.write(line + headers + b"connection: close\r\n\r\n" + bytes(response.body))
        self._transport.write_eof()
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self._loop.call_later(LINGER, self._abort)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def guarded_protocol(limits: ServiceLimits) -> type[asyncio.Protocol]:
    """What uvicorn makes its connections with."""
    return cast(type[asyncio.Protocol], partial(GuardedProtocol, limits))
