"""The /metrics and /healthz server that every process runs, on its own port and thread.

It shares nothing with the data path but the Prometheus registry, so a slow scraper cannot hold a
request back (fault D1). Loopback unless `metrics.bind` says otherwise.
"""

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

SEND_TIMEOUT_S = 10
CONNECTIONS_MAX = 32  # a scraper or two and a curious operator; more is an accident


class MetricsServer:
    """Serves `registry` at /metrics and `healthy()` at /healthz (200 or 503).

    `port` 0 takes a free port; read `.port` for the one in use. Raises OSError when the port is
    taken. `routes` adds paths: path -> function that returns (status, content type, body).
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        healthy: Callable[[], bool],
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        routes: dict[str, Callable[[], tuple[int, str, bytes]]] | None = None,
    ) -> None:
        routes = dict(routes or {})
        routes["/metrics"] = lambda: (200, CONTENT_TYPE_LATEST, generate_latest(registry))
        routes["/healthz"] = lambda: (
            (200, "text/plain", b"ok\n") if healthy() else (503, "text/plain", b"not serving\n")
        )
        self._server = _BoundedServer((bind, port), _handler_for(routes))
        self.bind = bind
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(address, handler)

    def process_request(self, request: object, client_address: object) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A scraper that went away is not an event worth a stack trace."""


def _handler_for(
    routes: dict[str, Callable[[], tuple[int, str, bytes]]],
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SEND_TIMEOUT_S
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            if route is None:
                status, content_type, body = 404, "text/plain", b"no such page\n"
            else:
                status, content_type, body = route()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not logged."""

    return Handler
