"""Wires `kafka2011 zookeeper`: the JVM as a child, the readiness line, signals, the exit status.

Exit statuses: 0 after SIGTERM or SIGINT; 1 when Java or the jars are missing, or the server did not
start or ended by itself.
"""

import os
import threading

from prometheus_client import CollectorRegistry, Gauge

from kafka2011.coordination.four_letter_words import is_serving
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import MetricsServer, address_text, serve_metrics
from kafka2011.runtime.os_errors import reason_of
from kafka2011.services.registration import ServiceRegistration
from kafka2011.services.zookeeper import launch
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from kafka2011.services.zookeeper.server import NotServing, ZooKeeperServer

WATCH_INTERVAL_S = 0.2

log = get_logger(__name__)


def run(config: ZooKeeperConfig, stop: threading.Event, java_home: str = "") -> int:
    """Serve until `stop` is set; returns the exit status of the process. Raises CannotListen."""
    try:
        server = ZooKeeperServer(config, java_home)
    except (launch.JavaMissing, launch.JarsMissing) as error:
        log.error("start_failed", detail=str(error))
        return 1
    with server:
        try:
            if not server.start(stop):
                log.info("stopped_before_serving", java_status=server.status())
                return 0
        except (NotServing, OSError) as error:
            log.error("start_failed", detail=reason_of(error))
            return 1
        metrics = _metrics(config, server)
        registration = ServiceRegistration(
            config,
            kind="zookeeper",
            zk_connect=f"{server.host}:{server.port}",
            address=f"{config.bind_address}:{server.port}",
            metrics=metrics,
        )
        try:
            log.info(
                "serving",
                address=f"{server.host}:{server.port}",
                metrics=address_text(metrics),
                pid=os.getpid(),
                java_pid=server.pid,
                data=str(config.snapshots),
            )
            while not stop.wait(WATCH_INTERVAL_S):
                status = server.status()
                if status is not None:
                    log.error("zookeeper_ended", status=status)
                    return 1
            registration.close(says_goodbye=True)  # while ZooKeeper still runs
            log.info("stopped", java_status=server.stop())
            return 0
        finally:
            if metrics:
                metrics.close()


def _metrics(config: ZooKeeperConfig, server: ZooKeeperServer) -> MetricsServer | None:
    registry = CollectorRegistry()
    gauge = Gauge("kafka2011_zookeeper_serving", "1 while the server answers", registry=registry)
    gauge.set_function(lambda: float(is_serving(server.host, server.port)))
    return serve_metrics(config, registry, lambda: is_serving(server.host, server.port))
