"""Wires `kafka2011 mirror`: two registries, the mirror, its group membership, status and signals.

On the metrics port: GET /status tells of every owned partition; POST /pause and /resume take
{"topic": "page-view", "partition": "1-0"} ("partition" may be left out: all of the topic).

Exit statuses: 0 after SIGTERM (last barrier, commit, leave); 1 when a ZooKeeper does not answer at
start; 2 for a loop or a filter that cannot be used.
"""

import json
import os
import threading

from prometheus_client import CollectorRegistry

from coordination.errors import CoordinationError, CoordinationUnavailable
from coordination.zookeeper import ZooKeeperRegistry
from protocol.errors import KafkaError
from runtime.logs import get_logger
from runtime.metrics import Answer, MetricsServer
from services.mirror_maker.config import MirrorConfig
from services.mirror_maker.loops import MirrorLoop, refuse_loops
from services.mirror_maker.member import GroupMember, topic_filter
from services.mirror_maker.metrics import MirrorCollector
from services.mirror_maker.mirror import Mirror
from services.registration import ServiceRegistration

WATCH_INTERVAL_S = 0.5
CONNECT_ATTEMPT_MS = 1000

log = get_logger(__name__)


def run(config: MirrorConfig, stop: threading.Event) -> int:
    """Mirror until `stop` is set. Returns the exit status."""
    try:
        topic_filter(config)
        source = ZooKeeperRegistry(config.source_zk_connect, config.zk_session_timeout_ms)
        target = ZooKeeperRegistry(config.target_zk_connect, config.zk_session_timeout_ms)
    except (KafkaError, ValueError) as error:
        log.error("cannot start", detail=str(error))
        return 2
    try:
        for registry in (source, target):
            if not _started(registry, config.zk_connection_timeout_ms, stop):
                return 0
        refuse_loops(source, target, config.group_id)
        return _mirror(config, source, target, stop)
    except MirrorLoop as error:
        log.error("cannot start", detail=str(error))
        return 2
    except CoordinationError as error:
        log.error("cannot start", detail=str(error))
        return 1
    finally:
        source.close()
        target.close()


def _started(registry: ZooKeeperRegistry, timeout_ms: int, stop: threading.Event) -> bool:
    """Connect; False when `stop` came first. Raises CoordinationUnavailable."""
    attempts = max(1, timeout_ms // CONNECT_ATTEMPT_MS)
    for attempt in range(1, attempts + 1):
        if stop.is_set():
            return False
        try:
            registry.start(min(timeout_ms, CONNECT_ATTEMPT_MS))
            return True
        except CoordinationUnavailable:
            if attempt == attempts:
                raise
    return False


def _mirror(
    config: MirrorConfig,
    source: ZooKeeperRegistry,
    target: ZooKeeperRegistry,
    stop: threading.Event,
) -> int:
    mirror = Mirror(config, source, target)
    member = GroupMember(config, source, mirror)
    metrics = _metrics(config, mirror, member)
    registration = ServiceRegistration(
        config, kind="mirror", zk_connect=config.source_zk_connect, metrics=metrics
    )
    status = 0
    try:
        member.start()
        log.info(
            "serving",
            source=config.source_zk_connect,
            target=config.target_zk_connect,
            group=config.group_id,
            consumer=member.consumer_id,
            metrics=f"{metrics.bind}:{metrics.port}" if metrics else "none",
            pid=os.getpid(),
        )
        while not stop.wait(WATCH_INTERVAL_S):
            if not member.is_alive:
                log.error("the group member ended by itself")
                status = 1
                break
    finally:
        member.close()
        mirror.close()
        registration.close()
        if metrics:
            metrics.close()
    log.info("stopped")
    return status


def _metrics(config: MirrorConfig, mirror: Mirror, member: GroupMember) -> MetricsServer | None:
    if config.metrics_port < 0:
        return None
    registry = CollectorRegistry()
    registry.register(MirrorCollector(mirror))

    def status() -> Answer:
        found = mirror.status()
        found["settled"] = member.is_settled
        found["drained"] = found["drained"] and member.is_settled
        found["rebalances"] = member.rebalances
        found["commits"] = member.commits
        found["looks"] = member.looks
        return 200, "application/json", json.dumps(found, indent=2).encode() + b"\n"

    return MetricsServer(
        registry,
        lambda: member.is_settled,
        bind=config.metrics_bind,
        port=config.metrics_port,
        routes={"/status": status},
        actions={
            "/pause": lambda body: set_paused(mirror, body, paused=True),
            "/resume": lambda body: set_paused(mirror, body, paused=False),
        },
    )


def set_paused(mirror: Mirror, body: bytes, *, paused: bool) -> Answer:
    """Do what a POST to /pause or /resume asks for."""
    try:
        asked = json.loads(body)
    except ValueError:
        asked = None
    topic = asked.get("topic") if isinstance(asked, dict) else None
    partition = asked.get("partition", "") if isinstance(asked, dict) else ""
    if not isinstance(topic, str) or not topic or not isinstance(partition, str):
        return 400, "application/json", b'{"error": "send a topic, and maybe a partition as 1-0"}\n'
    mirror.set_paused(topic, partition, paused)
    return 200, "application/json", json.dumps({"paused": paused}).encode() + b"\n"
