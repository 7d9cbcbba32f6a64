"""Wires `kafka2011 dashboard`: sampler, HTTP routes, the stream of changes, signals.

Exit statuses: 0 after SIGTERM; 1 when the port is taken; 2 for a bad setting.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry, Gauge

from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.memory import one_heap
from kafka2011.runtime.metrics import MetricsServer, serve_metrics
from kafka2011.runtime.os_errors import CannotListen, listening_on
from kafka2011.services.dashboard.config import PORT_DEFAULT, DashboardConfig
from kafka2011.services.dashboard.routes import Routes
from kafka2011.services.dashboard.sampling.sampler import Sampler
from kafka2011.services.registration import ServiceRegistration
from kafka2011.services.web import serve_until

KIND = "dashboard"

log = get_logger(__name__)


def listening_socket(config: DashboardConfig) -> socket.socket:
    """The listening socket. Raises CannotListen when the port is taken.

    The default port gives way to a free one, with a log line that says so.
    """
    family = socket.AF_INET6 if ":" in config.bind else socket.AF_INET
    ports = [config.port, 0] if config.port == PORT_DEFAULT else [config.port]
    for number, port in enumerate(ports):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            with listening_on(config.bind, port, "dashboard.port"):
                listener.bind((config.bind, port))
                listener.listen(128)
            return listener
        except CannotListen:
            listener.close()
            if number == len(ports) - 1:
                raise
            log.warning("port_taken", port=port, hint="a free port is used")
    raise AssertionError("unreachable")


def run(config: DashboardConfig, stop: threading.Event) -> int:
    """Serve until `stop` is set. Returns the exit status. Raises CannotListen."""
    with listening_socket(config) as listener:
        return _run(config, listener, stop)


def _run(config: DashboardConfig, listener: socket.socket, stop: threading.Event) -> int:
    host, port = listener.getsockname()[:2]
    one_heap()
    sampler = Sampler(config)
    routes = Routes(config, sampler)
    with contextlib.ExitStack() as opened:
        opened.callback(sampler.close)
        metrics = _metrics(config, sampler, routes)
        if metrics:
            opened.callback(metrics.close)
        registration = ServiceRegistration(
            config,
            kind=KIND,
            zk_connect=config.live_zk_connect or config.offline_zk_connect,
            address=f"{host}:{port}",
            metrics=metrics,
        )
        opened.callback(lambda: registration.close(says_goodbye=stop.is_set()))
        log.info("serving", page=f"http://{host}:{port}", pid=os.getpid())
        asyncio.run(_serve(routes, sampler, listener, stop))
    log.info("stopped")
    return 0


async def _serve(
    routes: Routes, sampler: Sampler, listener: socket.socket, stop: threading.Event
) -> None:
    @contextlib.asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        sampling = asyncio.create_task(sampler.run())
        try:
            yield
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling

    await serve_until(
        stop, routes.application(lifespan), listener, when_stopping=routes.end_streams
    )


def _metrics(config: DashboardConfig, sampler: Sampler, routes: Routes) -> MetricsServer | None:
    registry = CollectorRegistry()
    clients = Gauge("kafka2011_dashboard_clients", "open streams", registry=registry)
    clients.set_function(lambda: float(routes.clients))
    samples = Gauge("kafka2011_dashboard_sample", "number of the last sample", registry=registry)
    samples.set_function(lambda: float(sampler.changes.samples))
    took = Gauge(
        "kafka2011_dashboard_sample_seconds", "how long the last sample took", registry=registry
    )
    took.set_function(lambda: sampler.took_s)
    return serve_metrics(config, registry, lambda: sampler.is_fresh)
