"""The broker process: puts the parts together, runs the loop, and ends with a status.

Start: load the logs, take the port, register in ZooKeeper, serve (0.7's order). A replica joins its
set instead (`membership`): its port is open while it leads.
Stop: accept no more, handle what has arrived, flush, send what is owed, close the logs, leave the
marker, end the ZooKeeper session.
"""

import asyncio
import contextlib
import contextvars
import itertools
import os
import random
import sys
import threading
from typing import Any

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.core.data_waits import DataWaits
from kafka2011.broker.core.disk_scheduler import DiskScheduler
from kafka2011.broker.core.partitions import WAITED_LOGS_MAX, Partitions
from kafka2011.broker.core.replica_storage import ReplicaStorage
from kafka2011.broker.kafka07.handlers import RequestHandlers
from kafka2011.broker.kafka07.session import Session
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.log.replica_journal import ReplicaIdentity
from kafka2011.broker.log.slewed_clock import SlewedClock
from kafka2011.broker.membership import Membership
from kafka2011.broker.metrics import BrokerCollector
from kafka2011.broker.network.server import BrokerServer, raise_descriptor_limit
from kafka2011.broker.registration import BrokerRegistration, DuplicateBrokerId, StoppedWhileWaiting
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import BrokerAddress
from kafka2011.coordination.errors import CoordinationError, CoordinationUnavailable
from kafka2011.coordination.processes import ProcessRecord, register_process
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import address_text, serve_metrics
from kafka2011.runtime.os_errors import CannotListen, listening_on

_log: Any = get_logger(__name__)

STATUS_CLEAN = 0
STATUS_FAILED = 1  # could not start or go on, or an exception (Python's own status for one)
STATUS_STORAGE_FAILED = 3  # the disk of every log, or of a replica's journal, failed

# The longest single attempt to reach ZooKeeper at the start.
CONNECT_ATTEMPT_MS = 2000

# Descriptors for everything but segments and connections: libraries, sockets, pipes.
DESCRIPTORS_FOR_THE_REST = 64


SWITCH_INTERVAL_S = 0.001


class CannotStart(Exception):
    """The broker cannot start; the text is one line for the operator."""


def new_loop() -> Any:
    """uvloop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_broker(
    config: BrokerConfig, stop: threading.Event, loop: Any = None, files: FileLayer | None = None
) -> int:
    """Serve until `stop` is set; returns the process's exit status.

    Raises CannotStart with one line for the operator.
    """
    # How long a thread may keep the loop from the interpreter (Python's own: 5 ms).
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    broker = Broker(config, loop or new_loop(), files or FileLayer(), stop)
    try:
        broker.start()
        broker.serve()
    except StoppedWhileWaiting:
        _log.info("stopped_before_serving")
    except BaseException:
        broker.status = STATUS_FAILED
        raise
    finally:
        broker.close()
    return broker.status


class Broker:
    """One broker's parts; `start`, `serve` until `stop` is set, `close`."""

    def __init__(
        self, config: BrokerConfig, loop: Any, files: FileLayer, stop: threading.Event
    ) -> None:
        self._stop_asked = stop
        self._config = config
        self._loop = loop
        self.status = STATUS_CLEAN
        self._cleanup = contextlib.ExitStack()
        self._cleanup.callback(loop.close)
        self._is_loaded = False
        self._registration: BrokerRegistration | None = None
        self._registry: ZooKeeperRegistry | None = None
        self._files = files
        self._membership: Membership | None = None
        self._is_stopping = False
        self.metrics = BrokerMetrics()
        clock = SlewedClock()
        self.logs = LogManager(
            config.log_dir,
            config.quarantine,
            config.log_settings(),
            files=files,
            clock=clock,
            wall=now_ms,
            topics_max=config.topics_max,
            partitions_max=config.partitions_max,
            open_segments_max=self._open_segments_max(),
            replica=None
            if config.replica_name is None
            else ReplicaIdentity(config.broker_id, config.replica_name),
        )
        self.disk = DiskScheduler(
            self.logs,
            loop,
            self.metrics,
            threads=config.flush_threads,
            flush_check_s=None if config.group_commit else config.scheduler_interval_ms / 1000,
            retention_interval_s=config.retention_interval_minutes * 60,
            failed=self._storage_failed,
        )
        self.partitions = Partitions(
            config,
            self.logs,
            self.disk,
            DataWaits(loop, WAITED_LOGS_MAX),
            rng=random.Random(),
            topic_seen=self._topic_seen,
        )
        self.handlers = RequestHandlers(config, self.partitions, self.metrics)
        self.server = BrokerServer(
            config,
            loop,
            self.disk,
            self.metrics,
            lambda channel: Session(
                channel, config, self.partitions, self.handlers, clock, loop_time=loop.time
            ),
        )

    def _open_segments_max(self) -> int:
        """What the descriptor limit leaves for segments beside the connections."""
        room = raise_descriptor_limit() - self._config.connections_max - DESCRIPTORS_FOR_THE_REST
        if room < self._config.open_segments_max:
            _log.warning("few_descriptors", open_segments_max=max(room, 16))
        return max(16, min(room, self._config.open_segments_max))

    # --- start ---------------------------------------------------------------------------------

    def start(self) -> None:
        config = self._config
        try:
            self.logs.load()
        except DataDirectoryError as error:
            raise CannotStart(str(error)) from None
        self._is_loaded = True
        self._warn_of_illegal_topics()
        if config.replica_name is None:
            self._listen()
        metrics_address = self._start_metrics()
        if config.enable_zookeeper:
            self._register(metrics_address)
        self.server.start()

    def _listen(self) -> None:
        config = self._config
        try:
            with listening_on(config.listen_address, config.port, "port"):
                self.server.listen()
        except CannotListen as error:
            raise CannotStart(str(error)) from None

    def _warn_of_illegal_topics(self) -> None:
        for topic in sorted(self.logs.topics.difference(self.partitions.topics)):
            rule = self._config.topic_name_rule
            _log.warning("topic_not_served", topic=topic, topic_name_rule=rule)

    def _start_metrics(self) -> str:
        config = self._config
        collector = BrokerCollector(self.metrics, self.logs, self._gauges, config.retention_limits)
        try:
            server = serve_metrics(config, collector, self._is_healthy)
        except CannotListen as error:
            raise CannotStart(str(error)) from None
        if server is None:
            return ""
        self._cleanup.callback(server.close)
        _log.info("metrics_served", address=address_text(server))
        return server.address

    def _gauges(self) -> dict[str, float]:
        of_set, alone = self._membership, self._registration
        registered = (of_set is None or of_set.is_registered) and (
            alone is None or alone.is_registered
        )
        return {
            **self.server.gauges(),
            "open_segments": len(self.logs.open_files),
            "partitions": len(self.logs.logs),
            "registered": float(registered),
            **(self._membership.gauges() if self._membership is not None else {}),
        }

    def _is_healthy(self) -> bool:
        return self.server.is_serving

    def _register(self, metrics_address: str) -> None:
        config = self._config
        assert config.zk_connect is not None  # the settings demand it
        registry = ZooKeeperRegistry(
            config.zk_connect, session_timeout_ms=config.zk_session_timeout_ms
        )
        self._registry = registry
        try:
            self._connect(registry, config.zk_connection_timeout_ms or config.zk_session_timeout_ms)
            if config.replica_name is None:
                self._register_alone(registry)
            else:
                self._join_set(registry)
        except DuplicateBrokerId as error:
            raise CannotStart(str(error)) from None
        except CoordinationError as error:
            raise CannotStart(f"cannot register in ZooKeeper: {error}") from None
        if config.process_name:
            process = register_process(
                registry,
                ProcessRecord(
                    config.datacenter,
                    config.process_name,
                    "broker",
                    f"{config.published_host}:{self.server.port or config.port}",
                    metrics_address,
                    os.getpid(),
                ),
            )
            self._cleanup.callback(lambda: process.close(says_goodbye=self.status == STATUS_CLEAN))

    def _register_alone(self, registry: Registry) -> None:
        config = self._config
        if registry.exists(paths.replica_state_path(config.broker_id)):
            raise CannotStart(
                f"broker id {config.broker_id} is a replica set's: set replica.name, or another "
                "brokerid"
            )
        self._registration = BrokerRegistration(
            registry,
            config.broker_id,
            BrokerAddress(config.published_host, self.server.port),
            config.partition_count,
            clock=now_ms,
            stale_wait_s=2 * config.zk_session_timeout_ms / 1000 + 2,
            pause=self._stop_asked.wait,
        )
        self._registration.register(self.partitions.topics)

    def _join_set(self, registry: Registry) -> None:
        config = self._config
        self._membership = Membership(
            config,
            loop=self._loop,
            topics=lambda: self.partitions.topics,
            storage=ReplicaStorage(self.logs, self.disk, self._loop, self._files),
            disk=self.disk,
            server=self.server,
            refuse_appends=self.partitions.refuse,
            copies=self.partitions.copies,
            failed=self._replica_failed,
            pause=self._stop_asked.wait,
        )
        try:
            self._membership.start(registry)
        except (CannotListen, DataDirectoryError) as error:
            raise CannotStart(str(error)) from None

    def _connect(self, registry: Registry, timeout_ms: int) -> None:
        """Connect in attempts of `CONNECT_ATTEMPT_MS`, to notice a stop between them.

        0.7's own configuration file waits for ZooKeeper for 1,000 s.
        Raises StoppedWhileWaiting; CoordinationUnavailable after `timeout_ms`.
        """
        remaining_ms = timeout_ms
        for attempt in itertools.count(1):
            try:
                registry.start(min(CONNECT_ATTEMPT_MS, remaining_ms))
            except CoordinationUnavailable as error:
                remaining_ms -= CONNECT_ATTEMPT_MS
                if self._stop_asked.is_set():
                    raise StoppedWhileWaiting from None
                if remaining_ms <= 0:
                    of_all = f", in attempt {attempt} of {attempt}" if attempt > 1 else ""
                    raise CoordinationUnavailable(f"{error}{of_all}") from None
                _log.warning("waiting_for_zookeeper", reason=str(error), remaining_ms=remaining_ms)
            else:
                return

    def _topic_seen(self, topic: str) -> None:
        if self._registration is not None:
            self._registration.topic_seen(topic)
        if self._membership is not None:
            self._membership.topic_seen(topic)

    # --- run and stop --------------------------------------------------------------------------

    def serve(self) -> None:
        config = self._config
        _log.info(
            "serving",
            broker_id=config.broker_id,
            address=f"{config.published_host}:{self.server.port or config.port}",
            log_dir=str(config.log_dir),
            partitions=len(self.logs.logs),
            recovery_s=round(self.logs.loaded.recovery_s, 3),
            flush="group-commit" if config.group_commit else "0.7",
        )
        context = contextvars.copy_context()

        def stop_when_told() -> None:
            self._stop_asked.wait()
            with contextlib.suppress(RuntimeError):  # the loop ended by itself
                self._loop.call_soon_threadsafe(self._stop, context=context)

        threading.Thread(target=stop_when_told, name="stop-watcher", daemon=True).start()
        self._loop.run_forever()

    def _storage_failed(self) -> None:
        if self.status == STATUS_CLEAN:
            self.status = STATUS_STORAGE_FAILED
            _log.error("storage_failed", detail="no log takes writes any more: stopping")
            self._stop_now()

    def _replica_failed(self, reason: str, of_disk: bool) -> None:
        if self.status == STATUS_CLEAN:
            self.status = STATUS_STORAGE_FAILED if of_disk else STATUS_FAILED
            _log.error("replica_failed", reason=reason, detail="stopping")
            self._stop_now()

    def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            _log.info("stopping")
            if self._membership is not None:
                self._membership.hand_over(self._stop_now)
            else:
                self._stop_now()

    def _stop_now(self) -> None:
        self._is_stopping = True
        if self.server.is_serving:
            if self._membership is not None:
                self._membership.leave()
            self.server.stop(self._loop.stop)

    def close(self) -> None:
        """Close logs before nodes: once clients see the broker gone, their data is flushed."""
        if self._membership is not None:
            self._membership.close()
        if self._is_loaded:
            clean = self.logs.close()
            if not clean and self.status == STATUS_CLEAN:
                self.status = STATUS_STORAGE_FAILED
        if self._registration is not None and self._registry is not None:
            self._registry.close_if_silent()
            self._registration.close()
        self._cleanup.close()
        if self._registry is not None:
            self._registry.close()
        _log.info("stopped", status=self.status)
