"""Serves a web application on a socket until the process is stopped.

uvicorn with the settings that all services use: no signal handlers (the process has its own), no
access log, no headers that name the software, HTTP/1.1 only. A connection whose request does not
come within REQUEST_READ_S is closed. `AccessGuard` refuses what a foreign web page may have sent.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from kafka2011.runtime.http_access import REFUSED, HttpAccess

STOP_POLL_S = 0.1
REQUEST_READ_S = 30.0  # from the connection, or the answer before, to a request's last byte
SHUTDOWN_TIMEOUT_S = 2  # for responses in progress


class AccessGuard:
    """Middleware: answers 421 to requests that `access` refuses."""

    def __init__(self, application: ASGIApp, access: HttpAccess) -> None:
        self._application = application
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            reason = self._access.refusal(headers.get("host"), headers.get("origin"))
            if reason:
                refused = PlainTextResponse(f"{reason}\n", REFUSED)
                await refused(scope, receive, send)
                return
        await self._application(scope, receive, send)


class _Protocol(H11Protocol):
    """uvicorn's, with a deadline for each request: it has none before the first answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_READ_S, self._close_unread)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_unread:
            self._deadline.cancel()

    def on_response_complete(self) -> None:
        self._deadline.cancel()
        self._deadline = self.loop.call_later(REQUEST_READ_S, self._close_unread)
        super().on_response_complete()  # the next request may have come already
        if not self._is_unread:
            self._deadline.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def _is_unread(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _close_unread(self) -> None:
        self.transport.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_until(
    stop: threading.Event,
    application: Starlette,
    listener: socket.socket,
    *,
    connections_max: int | None = None,
    when_stopping: Callable[[], object] = lambda: None,
) -> None:
    """Serve until `stop` is set; then call `when_stopping()` and finish requests in progress.

    Above `connections_max` open connections the response is status 503.
    """
    server = _Server(
        uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="on",
            loop="asyncio",
            http=_Protocol,
            ws="none",
            server_header=False,
            date_header=False,
            limit_concurrency=connections_max,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
    )

    async def watch() -> None:
        while not stop.is_set():
            await asyncio.sleep(STOP_POLL_S)
        when_stopping()
        server.should_exit = True

    watching = asyncio.create_task(watch())
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
