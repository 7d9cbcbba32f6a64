"""Wires `kafka2011 proxy`: routes, the control endpoint, counters, signals.

On the metrics port: GET /routes shows every route with its faults and counters. With proxy.control
POST /faults changes the faults at once:

    curl -H 'Content-Type: application/json' -d '{"route": "wan", "faults": {"delay_ms": 100}}' \\
        http://127.0.0.1:PORT/faults

Without "route" the change is for all routes. {"reset": true} beside or instead of "faults" resets
the open connections once.
"""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import Answer, MetricsServer, address_text, serve_metrics
from kafka2011.services.proxy.config import ProxyConfig
from kafka2011.services.proxy.faults import DIRECTIONS
from kafka2011.services.proxy.proxy import Proxy
from kafka2011.services.registration import ServiceRegistration

log = get_logger(__name__)


def run(config: ProxyConfig, stop: threading.Event) -> int:
    """Relay until `stop` is set. Returns the exit status: 0, or 1 when a bug has ended the loop.
    Raises CannotListen."""
    failures: list[BaseException] = []

    def end(error: BaseException) -> None:
        failures.append(error)
        stop.set()

    proxy = Proxy(config, end)
    proxy.start()
    try:
        _serve(config, proxy, stop, failures)
    finally:
        proxy.stop()
    log.info("stopped")
    return 1 if failures else 0


def _serve(
    config: ProxyConfig, proxy: Proxy, stop: threading.Event, failures: Sequence[BaseException]
) -> None:
    metrics = _metrics(config, proxy)
    addresses = {name: route["listen"] for name, route in proxy.status().items()}
    first = next(iter(addresses.values()))
    registration = ServiceRegistration(
        config, kind="proxy", zk_connect=config.zk_connect, address=first, metrics=metrics
    )
    log.info(
        "serving",
        address=first,
        routes=addresses,
        metrics=address_text(metrics),
        pid=os.getpid(),
    )
    try:
        stop.wait()
    finally:
        registration.close(says_goodbye=not failures)
        if metrics:
            metrics.close()


class RouteCollector(Collector):
    """The counters of all routes, read from the loop at each scrape."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def collect(self) -> Iterator[Metric]:
        routes = self._proxy.status()
        moved = CounterMetricFamily(
            "kafka2011_proxy_bytes", "bytes received", labels=("route", "direction")
        )
        swallowed = CounterMetricFamily(
            "kafka2011_proxy_swallowed_bytes", "bytes thrown away", labels=("route", "direction")
        )
        dropped = CounterMetricFamily(
            "kafka2011_proxy_dropped_messages", "messages removed", labels=("route", "topic")
        )
        accepted = CounterMetricFamily(
            "kafka2011_proxy_connections", "connections accepted", labels=("route",)
        )
        unserved = CounterMetricFamily(
            "kafka2011_proxy_unserved_connections", "no target answered", labels=("route",)
        )
        current = GaugeMetricFamily(
            "kafka2011_proxy_connections_open", "connections now", labels=("route",)
        )
        up = GaugeMetricFamily(
            "kafka2011_proxy_target_up", "1 while it answers", labels=("route", "target")
        )
        used = CounterMetricFamily(
            "kafka2011_proxy_target_connections", "per target", labels=("route", "target")
        )
        for name, route in routes.items():
            for direction in DIRECTIONS:
                moved.add_metric((name, direction), route[direction]["bytes"])
                swallowed.add_metric((name, direction), route[direction]["swallowed_bytes"])
            for topic, count in route["dropped_messages"].items():
                dropped.add_metric((name, topic), count)
            accepted.add_metric((name,), route["accepted_total"])
            unserved.add_metric((name,), route["unserved_total"])
            current.add_metric((name,), route["connections"])
            for target in route["targets"]:
                up.add_metric((name, target["address"]), float(target["up"]))
                used.add_metric((name, target["address"]), target["connections_total"])
        return iter((moved, swallowed, dropped, accepted, unserved, current, up, used))


def change_from(proxy: Proxy, body: bytes) -> Answer:
    """Do what a POST to /faults asks for."""
    try:
        asked = json.loads(body)
        if not isinstance(asked, dict):
            raise ValueError("must be a JSON object")
        unknown = set(asked) - {"route", "faults", "reset"}
        if unknown:
            raise ValueError(f'unknown member {min(unknown)!r}; faults go inside "faults"')
        route = asked.get("route")
        if route is not None and not isinstance(route, str):
            raise ValueError("route must be a name")
        resets = asked.get("reset", False)
        if not isinstance(resets, bool):
            raise ValueError("reset must be true or false")
        status = proxy.change(route, asked.get("faults", {}))
        if resets:
            proxy.reset_connections(route)
    except (ValueError, RecursionError) as error:
        return 400, "application/json", _as_json({"error": str(error)})
    except OSError as error:
        return 500, "application/json", _as_json({"error": str(error)})
    log.info("faults_changed", route=route or "all", change=asked)
    return 200, "application/json", _as_json({"routes": status})


def _as_json(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _metrics(config: ProxyConfig, proxy: Proxy) -> MetricsServer | None:
    return serve_metrics(
        config,
        RouteCollector(proxy),
        lambda: bool(proxy.status()),  # asks its loop: one that hangs is not healthy
        routes={"/routes": lambda: (200, "application/json", _as_json({"routes": proxy.status()}))},
        actions={"/faults": lambda body: change_from(proxy, body)} if config.control else {},
    )
