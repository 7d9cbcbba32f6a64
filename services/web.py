"""Serves a web application on a socket until the process is told to stop.

uvicorn with what all of them want: no signal handlers of its own (the process has its own), no
access log, no headers that name the software, HTTP/1.1 alone.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.applications import Starlette

STOP_POLL_S = 0.1
SHUTDOWN_TIMEOUT_S = 2  # for answers that are under way


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
    """Answer until `stop` is set; then `when_stopping()`, and what is under way is finished.

    Above `connections_max` connections at once, the answer is status 503.
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
