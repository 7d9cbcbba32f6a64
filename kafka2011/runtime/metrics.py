"""The /metrics, /healthz and /usage server that every process runs, on its own port and thread.

The first two say when a worker of the process failed (`runtime.workers`), the third what the
process uses (`runtime.usage`). The server shares nothing with the data path but the Prometheus
registry, so a slow scraper delays no request. Loopback unless `metrics.bind` says otherwise. Each
answer says in Server-Timing how long it took here. When all connections are taken, the one whose
request has been awaited longest makes way for a new one: slow and idle clients keep out no other.
"""

import contextlib
import errno
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.runtime import workers
from kafka2011.runtime.http_access import REFUSED, HttpAccess
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import listening_on
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.runtime.usage import usage
from kafka2011.runtime.workers import Worker

SEND_TIMEOUT_S = 10
CONNECTIONS_MAX = 32  # enough for several scrapers and browsers
MAKE_WAY_S = 1.0  # longest wait for the end of a connection that makes way
ACCEPT_PAUSE_S = 0.2  # after running out of descriptors
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
WILDCARDS = ("", "0.0.0.0", "::")
BODY_BYTES_MAX = 65536  # of a POST, which is a short JSON document
FIELDS_MAX = 50  # of a query

Answer = tuple[int, str, bytes]  # status, content type, body
NOT_FOUND: Answer = (404, "text/plain", b"no such page\n")

log = get_logger(__name__)


class WorkerCollector(Collector):
    """How often each worker of this process failed, and how many do now, read at each scrape."""

    def collect(self) -> Iterator[Metric]:
        found = CounterMetricFamily(
            "kafka2011_worker_failures", "threads that an exception ended", labels=("worker",)
        )
        for name, count in workers.failure_counts().items():
            found.add_metric((name,), count)
        yield found
        failing = len(workers.failing())
        yield GaugeMetricFamily(
            "kafka2011_workers_failing", "workers that are failing now", value=failing
        )


_WORKERS = WorkerCollector()


def health_answer(is_healthy: bool, failing: Sequence[str], waits_for: str = "") -> Answer:
    """What /healthz answers: 200 when the process serves and none of its workers is failing, else
    503 with a line that says why."""
    if failing:
        return 503, "text/plain", f"failed: {', '.join(failing)}\n".encode()
    if is_healthy:
        return 200, "text/plain", b"ok\n"
    why = f"not serving: waits for {waits_for}" if waits_for else "not serving"
    return 503, "text/plain", f"{why}\n".encode()


class MetricsServer:
    """Serves `collector` at /metrics and `healthy()` at /healthz (200 or 503, with `waits_for`:
    what the process waits for while it is not).

    `port` 0 is any free port; `.port` is the one in use. Raises CannotListen.
    `routes` adds pages: path -> function that returns (status, content type, body), and `questions`
    pages whose function takes the query's names and values (the last of each name). `actions` adds
    paths for POST: path -> function of the body; the request must say that it is application/json,
    which the form of a foreign web page cannot do. `hosts` are further names of this server
    (`http_access`).
    """

    def __init__(
        self,
        collector: Collector,
        healthy: Callable[[], bool],
        *,
        waits_for: str = "",
        bind: str = "127.0.0.1",
        port: int = 0,
        hosts: Iterable[str] = (),
        routes: dict[str, Callable[[], Answer]] | None = None,
        actions: dict[str, Callable[[bytes], Answer]] | None = None,
        questions: dict[str, Callable[[Mapping[str, str]], Answer]] | None = None,
    ) -> None:
        routes = dict(routes or {})
        routes["/metrics"] = lambda: (
            200,
            CONTENT_TYPE_LATEST,
            generate_latest(collector) + generate_latest(_WORKERS),
        )
        routes["/healthz"] = lambda: health_answer(healthy(), workers.failing(), waits_for)
        routes["/usage"] = lambda: (200, "application/json", json.dumps(usage()).encode())
        pages = _Pages(routes, questions or {}, actions or {}, HttpAccess(bind, hosts))
        with listening_on(bind, port, "metrics.port"):
            self._server = _BoundedServer((bind, port), partial(_Handler, pages))
        self.bind = bind
        self.port: int = self._server.server_address[1]
        self._worker = Worker(self._server.serve, "metrics", restarts=True)
        self._worker.start()

    @property
    def address(self) -> str:
        """`host:port` for other processes; with a wildcard bind the host is this machine's name."""
        host = socket.gethostname() if self.bind in WILDCARDS else self.bind
        return f"{host}:{self.port}"

    def close(self) -> None:
        self._server.end()
        self._worker.join()
        self._server.server_close()


def serve_metrics(
    config: ProcessConfig,
    collector: Collector,
    healthy: Callable[[], bool],
    *,
    waits_for: str = "",
    routes: dict[str, Callable[[], Answer]] | None = None,
    actions: dict[str, Callable[[bytes], Answer]] | None = None,
    questions: dict[str, Callable[[Mapping[str, str]], Answer]] | None = None,
) -> MetricsServer | None:
    """A process's server as its settings say; None when they name no port. Raises CannotListen."""
    if config.metrics_port < 0:
        return None
    return MetricsServer(
        collector,
        healthy,
        waits_for=waits_for,
        bind=config.metrics_bind,
        port=config.metrics_port,
        hosts=config.http_hosts,
        routes=routes,
        actions=actions,
        questions=questions,
    )


def address_text(server: MetricsServer | None) -> str:
    """Where the server listens, for a log line: `host:port`, or `none`."""
    return f"{server.bind}:{server.port}" if server else "none"


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a full queue makes connecting take a second or more

    def __init__(
        self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # in the order in which the waits began
        self._end_reading, self._end_writing = socket.socketpair()
        self._is_ending = threading.Event()
        super().__init__(address, handler)

    def serve(self) -> None:
        """Serve until `end`. Unlike `serve_forever` it wakes for connections alone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._end_reading, selectors.EVENT_READ)
            while all(key.fileobj is self.socket for key, _ in selector.select()):
                self._handle_request_noblock()  # type: ignore[attr-defined]

    def end(self) -> None:
        self._is_ending.set()
        self._end_writing.send(b".")

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            # The connection still waits, and would wake `serve` again at once.
            if error.errno in OUT_OF_DESCRIPTORS:
                self._is_ending.wait(ACCEPT_PAUSE_S)
            raise

    def server_close(self) -> None:
        super().server_close()
        self._end_reading.close()
        self._end_writing.close()

    def process_request(self, request: object, client_address: object) -> None:
        if not self._slots.acquire(blocking=False) and not self._make_way():
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]
        except BaseException:  # no further thread can be had
            self._slots.release()
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._slots.release()

    def note_waiting(self, connection: socket.socket) -> None:
        """Note that the connection's next request is awaited from now on."""
        with self._lock:
            self._waiting[connection] = None

    def note_read(self, connection: socket.socket) -> None:
        """Note that the request has been read, or that there will be none."""
        with self._lock:
            self._waiting.pop(connection, None)

    def _make_way(self) -> bool:
        """End the connection that has been waiting longest; whether its slot was acquired."""
        with self._lock:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            del self._waiting[oldest]
            with contextlib.suppress(OSError):  # it has ended by itself
                oldest.shutdown(socket.SHUT_RDWR)
        return self._slots.acquire(timeout=MAKE_WAY_S)

    def handle_error(self, request: object, client_address: object) -> None:
        """Do nothing: a scraper that disconnects is not worth a stack trace."""


@dataclass(frozen=True)
class _Pages:
    """What a server answers, by path, and to which requests."""

    routes: Mapping[str, Callable[[], Answer]]
    questions: Mapping[str, Callable[[Mapping[str, str]], Answer]]
    actions: Mapping[str, Callable[[bytes], Answer]]
    access: HttpAccess


class _Handler(BaseHTTPRequestHandler):
    timeout = SEND_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    began_s = 0.0
    server: _BoundedServer

    def __init__(self, pages: _Pages, *of_the_connection: Any) -> None:
        self._pages = pages
        super().__init__(*of_the_connection)  # which handles its requests

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_one_request(self) -> None:
        self.server.note_waiting(self.connection)
        try:
            super().handle_one_request()
        finally:
            self.server.note_read(self.connection)

    def _is_refused(self) -> bool:
        self.began_s = time.perf_counter()
        reason = self._pages.access.refusal(self.headers.get("Host"), self.headers.get("Origin"))
        if reason:
            self._refuse((REFUSED, "text/plain", f"{reason}\n".encode()))
        return bool(reason)

    def do_GET(self) -> None:
        self.server.note_read(self.connection)
        if self._is_refused():
            return
        path, _, query = self.path.partition("?")
        question = self._pages.questions.get(path)
        if question is not None:
            self._answer(_made(lambda: question(_values_of(query)), path))
            return
        route = self._pages.routes.get(path)
        self._answer(NOT_FOUND if route is None else _made(route, path))

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if self._is_refused():
            return
        path = self.path.partition("?")[0]
        action = self._pages.actions.get(path)
        length = self.headers.get("Content-Length", "")
        if action is None:
            self._refuse(NOT_FOUND)
        elif self.headers.get_content_type() != "application/json":
            self._refuse((415, "text/plain", b"send application/json\n"))
        elif not length.isdecimal() or len(length) > 9 or int(length) > BODY_BYTES_MAX:
            self._refuse((413, "text/plain", b"the body is too large, or of no known size\n"))
        else:
            body = self.rfile.read(int(length))
            self.server.note_read(self.connection)
            if len(body) < int(length):
                self._refuse((400, "text/plain", b"the body is cut\n"))
            else:
                self._answer(_made(lambda: action(body), path))

    def _refuse(self, answer: Answer) -> None:
        self.close_connection = True  # the body was not read
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        status, content_type, body = answer
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        took_ms = (time.perf_counter() - self.began_s) * 1000
        self.send_header("Server-Timing", f"total;dur={took_ms:.3f}")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def _made(make: Callable[[], Answer], path: str) -> Answer:
    """The page that `make` returns; if a bug ends it, that is answered and logged."""
    try:
        return make()
    except Exception as error:
        log.exception("page_failed", path=path)
        return 500, "text/plain", f"internal error: {type(error).__name__}\n".encode()


def _values_of(query: str) -> dict[str, str]:
    """The names and values of a query; empty when there are more than FIELDS_MAX."""
    try:
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        return {}
