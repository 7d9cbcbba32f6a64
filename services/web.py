"""Serves a web application on a socket until the process is stopped.

uvicorn with the settings that all services use: no signal handlers (the process has its own), no
access log, no headers that name the software, HTTP/1.1 only.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.applications import Starlette

STOP_POLL_S = 0.1
SHUTDOWN_TIMEOUT_S = 2  # for responses in progress


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
            http="h11",
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
