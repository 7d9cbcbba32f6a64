"""Wires `kafka2011 audit serve`: readers, books, pages, signals.

The books are written every `audit.commit.ms` by the main thread; readers never wait for the disk.
When the disk refuses, counting goes on in memory and the write is tried again; /healthz then says
so, since a crash would mean counting those messages again (from their own offsets, so rightly).
Exit statuses: 0 after SIGTERM; 1 when the port is taken or the books cannot be opened.
"""

import os
import sqlite3
import threading
from typing import Protocol

from prometheus_client import CollectorRegistry

from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.services.audit.books.restarts import read_restarts
from kafka2011.services.audit.books.state import TIME_MS_MAX, AuditState
from kafka2011.services.audit.books.store import AuditStore, StoreMismatch
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.readers.broker_reader import BrokerReader, connect_with
from kafka2011.services.audit.readers.cluster_readers import ClusterReader
from kafka2011.services.audit.summary import AuditAnswers, AuditCollector
from kafka2011.services.audit.verdicts import excused_up_to_ms
from kafka2011.services.registration import ServiceRegistration

FOLD_INTERVAL_MS = 10_000
STORE_FAILURES_UNHEALTHY = 3

log = get_logger(__name__)


def run(config: AuditConfig, stop: threading.Event, clock: Clock = now_ms) -> int:
    """Count and answer until `stop` is set. Returns the exit status."""
    state = AuditState(
        config.tiers,
        config.window_ms,
        clock,
        cells_max=config.cells_max,
        exempt=config.exempt,
        ignored=(*config.topics_ignored, AUDIT),
        is_ours=config.is_ours,
    )
    try:
        store = AuditStore(
            config.data_dir / "audit.sqlite",
            window_ms=config.window_ms,
            tiers=config.tiers,
            servers=(config.servers_whitelist, config.servers_blacklist),
        )
    except (StoreMismatch, sqlite3.Error, OSError) as error:
        log.error("books_not_opened", detail=str(error), path=str(config.data_dir))
        return 1
    try:
        state.load(store)
        return _serve(config, state, store, stop, clock)
    finally:
        store.close()


def _serve(
    config: AuditConfig, state: AuditState, store: AuditStore, stop: threading.Event, clock: Clock
) -> int:
    answers = AuditAnswers(state, config, clock)
    keeper = Keeper(config, state, store, clock)
    metrics = None
    if config.metrics_port >= 0:
        collectors = CollectorRegistry()
        collectors.register(AuditCollector(answers))
        try:
            metrics = MetricsServer(
                collectors,
                lambda: keeper.is_healthy,
                bind=config.metrics_bind,
                port=config.metrics_port,
                questions=answers.pages(),
            )
        except OSError as error:
            log.error("listen_failed", port=config.metrics_port, detail=str(error))
            return 1
    readers = _readers(config, state, clock)
    for reader in readers:
        reader.start()
    registration = ServiceRegistration(
        config,
        kind="audit",
        zk_connect=config.live_zk_connect or config.offline_zk_connect,
        metrics=metrics,
    )
    log.info(
        "serving",
        tiers=",".join(config.tiers),
        metrics=f"{metrics.bind}:{metrics.port}" if metrics else "none",
        cells=len(state.ledger.cells),
        partitions=len(state.positions),
        pid=os.getpid(),
    )
    try:
        while not stop.wait(config.commit_interval_ms / 1000):
            keeper.keep()
    finally:
        registration.close()
        for reader in readers:
            reader.close()
        if metrics:
            metrics.close()
    is_kept = keeper.keep()
    log.info("stopped", kept=is_kept)
    return 0


def _readers(config: AuditConfig, state: AuditState, clock: Clock) -> "list[_Reader]":
    connect = connect_with(config.address_map, config.socket_timeout_ms)

    def make_reader(tier: str, broker_id: int) -> BrokerReader:
        return BrokerReader(
            state,
            tier,
            broker_id,
            connect=connect,
            clock=clock,
            fetch_bytes=config.fetch_bytes,
            poll_interval_ms=config.poll_interval_ms,
            forms=config.event_forms,
        )

    readers: list[_Reader] = []
    places = {"live": config.live_zk_connect, "offline": config.offline_zk_connect}
    for tier, zk_connect in places.items():
        if zk_connect:
            readers.append(
                ClusterReader(
                    state,
                    tier,
                    connect_registry=lambda zk=zk_connect: _connect(config, zk),  # type: ignore[misc]
                    make_reader=make_reader,
                    clock=clock,
                    refresh_interval_ms=config.refresh_interval_ms,
                    ignored=config.topics_ignored,
                )
            )
    if config.warehouse_dir is not None:
        from kafka2011.services.audit.readers.warehouse_follower import WarehouseFollower

        readers.append(
            WarehouseFollower(
                state,
                config.warehouse_dir,
                clock=clock,
                poll_interval_ms=config.warehouse_poll_interval_ms,
            )
        )
    return readers


def _connect(config: AuditConfig, zk_connect: str) -> Registry:
    """A started registry. Raises CoordinationError."""
    registry = ZooKeeperRegistry(zk_connect, config.zk_session_timeout_ms)
    try:
        registry.start(timeout_ms=config.zk_session_timeout_ms)
    except CoordinationError:
        registry.close()
        raise
    return registry


class _Reader(Protocol):
    def start(self) -> None: ...
    def close(self) -> None: ...


class Keeper:
    """Writes the books, folds what is old. Used by the main thread."""

    def __init__(
        self, config: AuditConfig, state: AuditState, store: AuditStore, clock: Clock
    ) -> None:
        self._config = config
        self._state = state
        self._store = store
        self._clock = clock
        self._folded_ms = 0
        self._failures = 0

    @property
    def is_healthy(self) -> bool:
        return self._failures < STORE_FAILURES_UNHEALTHY

    def keep(self) -> bool:
        """Write what changed; False when the disk refused, and the next call tries again."""
        now_ms = self._clock()
        if now_ms - self._folded_ms >= FOLD_INTERVAL_MS:
            self._folded_ms = now_ms
            lateness_ms = max(self._config.lateness_of(tier) for tier in self._config.tiers)
            oldest_ms = self._config.window_ms + lateness_ms + self._config.fold_after_ms
            self._state.fold(now_ms - oldest_ms, now_ms - self._config.instances_keep_ms)
        if self._state.ledger.is_crowded:
            self._make_room()
        changes = self._state.snapshot()
        if not changes:
            return True
        failpoint("audit_before_commit")
        try:
            self._store.write(changes)
        except sqlite3.Error as error:
            self._state.restore(changes)
            self._failures += 1
            log.error("books_not_written", detail=str(error), failures=self._failures)
            return False
        self._failures = 0
        failpoint("audit_after_commit")
        return True

    def _make_room(self) -> None:
        config = self._config
        try:
            restarts = read_restarts(config.restarts_file)
        except ValueError as error:  # folded without its excuse a cell would be wrong for ever
            self._state.note(str(error))
            return
        self._state.make_room(
            max(config.lateness_of(tier) for tier in config.tiers),
            TIME_MS_MAX
            if config.redelivery_expected
            else excused_up_to_ms(restarts, config.redelivery_grace_ms),
        )
