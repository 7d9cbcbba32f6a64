"""Wires `kafka2011 audit serve`: readers, books, HTTP endpoints, signals.

The main thread writes the books every `audit.commit.ms`; readers never wait for the disk.
Exit statuses: 0 after SIGTERM; 1 when the port is taken or the books cannot be opened.
"""

import contextlib
import os
import sqlite3
import threading
from typing import Protocol

from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.processes import alive
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.events.topics import AUDIT
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import address_text, serve_metrics
from kafka2011.runtime.os_errors import reason_of
from kafka2011.services.audit.books.persistence import load_books
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore, BooksInUse, StoreMismatch
from kafka2011.services.audit.books.writer import BooksWriter
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.endpoints import audit_endpoints
from kafka2011.services.audit.groups import validated_groups
from kafka2011.services.audit.metrics import AuditCollector
from kafka2011.services.audit.readers.broker_reader import BrokerReader, connect_with
from kafka2011.services.audit.readers.cluster_reader import ClusterReader
from kafka2011.services.audit.report import Json
from kafka2011.services.audit.summary import AuditSummary
from kafka2011.services.registration import ServiceRegistration

log = get_logger(__name__)


def run(config: AuditConfig, stop: threading.Event, clock: Clock = now_ms) -> int:
    """Run the service until `stop` is set. Returns the exit status. Raises CannotListen."""
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
    except (StoreMismatch, BooksInUse, sqlite3.Error, OSError) as error:
        log.error("books_not_opened", detail=reason_of(error), path=str(config.data_dir))
        return 1
    try:
        load_books(state, store)
        return _serve(config, state, store, stop, clock)
    finally:
        store.close()


def _serve(
    config: AuditConfig, state: AuditState, store: AuditStore, stop: threading.Event, clock: Clock
) -> int:
    summary = AuditSummary(state, config, clock)
    writer = BooksWriter(config, state, store, clock)
    metrics = serve_metrics(
        config,
        AuditCollector(summary),
        lambda: writer.is_healthy,
        questions=audit_endpoints(summary, lambda: _groups(config)),
    )
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
        metrics=address_text(metrics),
        cells=len(state.ledger.cells),
        partitions=len(state.progress.positions),
        pid=os.getpid(),
    )
    try:
        while not stop.wait(config.commit_interval_ms / 1000):
            writer.write()
    finally:
        registration.close(says_goodbye=stop.is_set())
        for reader in readers:
            reader.close()
        if metrics:
            metrics.close()
    is_written = writer.write()
    log.info("stopped", is_written=is_written)
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
            forms=config.forms,
        )

    readers: list[_Reader] = []
    zookeepers = {"live": config.live_zk_connect, "offline": config.offline_zk_connect}
    for tier, zk_connect in zookeepers.items():
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
                    mirror_group=config.mirror_group,
                )
            )
    if config.warehouse_dir is not None:
        from kafka2011.services.audit.readers.warehouse_reader import WarehouseReader

        readers.append(
            WarehouseReader(
                state,
                config.warehouse_dir,
                clock=clock,
                poll_interval_ms=config.warehouse_poll_interval_ms,
                forms=config.forms,
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


def _groups(config: AuditConfig) -> list[Json]:
    """The live datacenter's counting consumer groups; none while its ZooKeeper does not answer."""
    if not config.live_zk_connect:
        return []
    try:
        with contextlib.closing(_connect(config, config.live_zk_connect)) as registry:
            return validated_groups(alive(registry))
    except CoordinationError as error:
        log.warning("groups_not_asked", reason=str(error))
        return []


class _Reader(Protocol):
    def start(self) -> None: ...
    def close(self) -> None: ...
