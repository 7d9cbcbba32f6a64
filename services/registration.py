"""Registers a service in the process registry (docs/znodes.md) without blocking it.

ZooKeeper may be unavailable when a service starts; a thread retries. The registration has a session
of its own, whatever else the service does with ZooKeeper.
"""

import os
import socket
import threading

from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.processes import ProcessRecord, Registration, register_process
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import WILDCARDS, MetricsServer
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.runtime.workers import Worker

RETRY_S = 1.0

log = get_logger(__name__)


def dialable_address(address: str) -> str:
    """`host:port`, with this host's name in place of a wildcard."""
    host, colon, port = address.rpartition(":")
    return f"{socket.gethostname()}:{port}" if colon and host in WILDCARDS else address


class ServiceRegistration:
    """Registers a service that is serving, until `close` deletes its `alive` node.

    Does nothing when `process.name` or `zk_connect` is empty. `address` is `host:port` or ""; in
    place of a wildcard (containers) this host's name is registered, which others can dial.
    """

    def __init__(
        self,
        config: ProcessConfig,
        *,
        kind: str,
        zk_connect: str,
        address: str = "",
        metrics: MetricsServer | None = None,
    ) -> None:
        self._record = ProcessRecord(
            datacenter=config.datacenter,
            name=config.process_name,
            kind=kind,
            address=dialable_address(address),
            metrics_address=metrics.address if metrics else "",
            pid=os.getpid(),
        )
        self._zk_connect = zk_connect
        self._closed = threading.Event()
        self._ending = {"says_goodbye": True, "has_finished": False}
        self._worker: Worker | None = None
        if config.process_name and zk_connect:
            self._worker = Worker(self._run, "registration", restarts=True)
            self._worker.start()

    def close(self, *, says_goodbye: bool, has_finished: bool = False) -> None:
        """End the registration. `says_goodbye` is False when the process fails: it is down, not
        stopped. `has_finished`: all its work is done."""
        self._ending = {"says_goodbye": says_goodbye, "has_finished": has_finished}
        self._closed.set()
        if self._worker is not None:
            self._worker.join()

    def _run(self) -> None:
        registry = self._connected()
        if registry is None:
            return
        try:
            registration: Registration = register_process(registry, self._record)
            self._closed.wait()
            registry.close_if_silent()
            registration.close(**self._ending)
        finally:
            registry.close()

    def _connected(self) -> ZooKeeperRegistry | None:
        """A started registry, or None after `close`."""
        reported = False
        while not self._closed.is_set():
            registry = ZooKeeperRegistry(self._zk_connect)
            try:
                registry.start(timeout_ms=2000)
                return registry
            except CoordinationError as error:
                registry.close()
                if not reported:
                    log.warning("registration_failed", reason=str(error))
                    reported = True
            self._closed.wait(RETRY_S)
        return None
