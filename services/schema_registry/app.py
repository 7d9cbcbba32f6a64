"""Wires `kafka2011 registry`: the file, the pages, metrics, signals.

One page takes every path (a subject may hold an encoded slash, so the path is divided before it is
decoded). Decisions run in threads: a slow disk or a long comparison holds up no other question.
Exit statuses: 0 after SIGTERM; 1 when the port is taken or the file cannot be opened.
"""

import asyncio
import contextlib
import json
import os
import socket
import sqlite3
import threading
import time

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as WebRequest
from starlette.responses import Response
from starlette.routing import Route

from kafka2011.runtime.http_access import HttpAccess
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import MetricsServer, address_text, serve_metrics
from kafka2011.runtime.os_errors import listening_on, reason_of
from kafka2011.services.registration import ServiceRegistration
from kafka2011.services.schema_registry.api import answer_bytes, endpoint, request_of
from kafka2011.services.schema_registry.avro import Limits
from kafka2011.services.schema_registry.config import SchemaRegistryConfig
from kafka2011.services.schema_registry.errors import RequestRejected
from kafka2011.services.schema_registry.registration import RegistryCore
from kafka2011.services.schema_registry.store import RegistryStore
from kafka2011.services.schema_registry.views import View
from kafka2011.services.web import AccessGuard, serve_until

KIND = "registry"
CONNECTIONS_MAX = 200
READING_MAX, CHANGING_MAX = 16, 4  # threads
OWN_TYPE = "application/vnd.schemaregistry.v1+json"
PLAIN_TYPE = "application/json"
TYPES_READ = frozenset(
    {OWN_TYPE, "application/vnd.schemaregistry+json", PLAIN_TYPE, "application/octet-stream"}
)

log = get_logger(__name__)


class RegistryMetrics:
    """Requests by method, path and status; how long they took; failures; how much is kept."""

    def __init__(self, core: RegistryCore) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "kafka2011_registry_requests",
            "requests answered",
            ["method", "endpoint", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "kafka2011_registry_request_seconds",
            "time to answer",
            ["method"],
            registry=self.registry,
        )
        # Without labels, so that it is exported as 0: the first failure is an increase, too.
        self.failures = Counter(
            "kafka2011_registry_failures",
            "requests answered with status 500: the file could not be used",
            registry=self.registry,
        )
        for number, name in enumerate(("schemas", "subjects", "versions")):
            gauge = Gauge(f"kafka2011_registry_{name}", f"{name} kept", registry=self.registry)
            gauge.set_function(lambda number=number: float(core.query(View.counts)[number]))  # type: ignore[misc]


class RegistryApplication:
    """The registry as an ASGI application."""

    def __init__(
        self, core: RegistryCore, metrics: RegistryMetrics, request_bytes_max: int
    ) -> None:
        self._core = core
        # Threads of their own: waiting changes take none of the queries' threads.
        self._reading, self._changing = CapacityLimiter(READING_MAX), CapacityLimiter(CHANGING_MAX)
        self._metrics = metrics
        self._request_bytes_max = request_bytes_max

    def asgi(self, access: HttpAccess) -> Starlette:
        methods = ["GET", "POST", "PUT", "DELETE"]
        return Starlette(
            routes=[Route("/{path:path}", self._answer, methods=methods)],
            middleware=[Middleware(AccessGuard, access=access)],
        )

    async def _answer(self, web: WebRequest) -> Response:
        started = time.monotonic()
        label = "unknown"
        try:
            body = await self._body(web)
            raw_path: bytes = web.scope["raw_path"].partition(b"?")[0]
            request = request_of(raw_path, web.query_params, body)
            method = "GET" if web.method == "HEAD" else web.method
            label, handler = endpoint(method, request.parts)
            limiter = self._changing if handler.is_change else self._reading
            found = await to_thread.run_sync(handler, self._core, request, limiter=limiter)
            status, content = 200, answer_bytes(found)
        except RequestRejected as error:
            status = error.status
            content = _error_bytes(error.code, error.message)
        except sqlite3.Error as error:
            log.error("store_failed", detail=str(error))
            status, content = 500, _error_bytes(50001, "Error in the backend data store")
            self._metrics.failures.inc()
        self._metrics.requests.labels(web.method, label, str(status)).inc()
        self._metrics.seconds.labels(web.method).observe(time.monotonic() - started)
        accepted = web.headers.get("accept", "")
        is_plain = PLAIN_TYPE in accepted and "schemaregistry" not in accepted
        return Response(content, status, media_type=PLAIN_TYPE if is_plain else OWN_TYPE)

    async def _body(self, web: WebRequest) -> bytes:
        if web.method not in ("POST", "PUT"):
            return b""
        content_type = web.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in TYPES_READ:
            raise RequestRejected(415, 415, "HTTP 415 Unsupported Media Type")
        received = bytearray()
        try:
            async for chunk in web.stream():
                received += chunk
                if len(received) > self._request_bytes_max:
                    raise RequestRejected(
                        413, 413, f"the body is larger than {self._request_bytes_max} bytes"
                    )
        except ClientDisconnect:
            raise RequestRejected(400, 400, "the body is cut") from None
        return bytes(received)


def _error_bytes(code: int, message: str) -> bytes:
    return json.dumps({"error_code": code, "message": message}).encode()


def run(config: SchemaRegistryConfig, stop: threading.Event) -> int:
    """Serve until `stop` is set. Returns the exit status. Raises CannotListen."""
    try:
        store = RegistryStore(config.data_dir / "registry.sqlite")
    except (sqlite3.Error, OSError) as error:
        log.error("store_not_opened", path=str(config.data_dir), reason=reason_of(error))
        return 1
    with contextlib.closing(store):
        limits = Limits(config.schema_bytes_max, config.schema_depth_max)
        core = RegistryCore(store, limits, config.level)
        return _run(config, core, stop)


def _run(config: SchemaRegistryConfig, core: RegistryCore, stop: threading.Event) -> int:
    family = socket.AF_INET6 if ":" in config.bind else socket.AF_INET
    numbers = RegistryMetrics(core)
    with socket.socket(family, socket.SOCK_STREAM) as listener, contextlib.ExitStack() as opened:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with listening_on(config.bind, config.port, "registry.port"):
            listener.bind((config.bind, config.port))
            listener.listen(128)
        metrics = _metrics_server(config, core, numbers)
        if metrics is not None:
            opened.callback(metrics.close)
        host, port = listener.getsockname()[:2]
        registration = ServiceRegistration(
            config,
            kind=KIND,
            zk_connect=config.zk_connect,
            address=f"{host}:{port}",
            metrics=metrics,
        )
        opened.callback(lambda: registration.close(says_goodbye=stop.is_set()))
        log.info(
            "serving",
            address=f"{host}:{port}",
            metrics=address_text(metrics),
            pid=os.getpid(),
        )
        application = RegistryApplication(core, numbers, config.request_bytes_max)
        access = HttpAccess(config.bind, config.http_hosts)
        served = application.asgi(access)
        asyncio.run(serve_until(stop, served, listener, connections_max=CONNECTIONS_MAX))
    log.info("stopped")
    return 0


def _metrics_server(
    config: SchemaRegistryConfig, core: RegistryCore, numbers: RegistryMetrics
) -> MetricsServer | None:
    def ready() -> bool:
        try:
            core.query(View.counts)
        except sqlite3.Error:
            return False
        return True

    return serve_metrics(config, numbers.registry, ready)
