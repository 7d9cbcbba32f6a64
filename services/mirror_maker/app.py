"""Wires `kafka2011 mirror`: registries, mirrors, their group memberships, status and signals.

One process can copy from several source clusters into one target: each has its own `Link`.

On the metrics port: GET /status describes every owned partition; POST /pause and /resume take
{"topic": "page-view", "partition": "1-0"} ("partition" may be left out: all of the topic).

Exit statuses: 0 after SIGTERM (last barrier, commit, leave); 1 when a ZooKeeper does not answer at
start, or a bug ended a thread; 2 for a loop or a filter that cannot be used.
"""

import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka2011.consumer.groups.rebalance import SHARE
from kafka2011.consumer.tools.lag_rules import total_lag
from kafka2011.coordination.errors import CoordinationError, CoordinationUnavailable
from kafka2011.coordination.paths import decode_broker_partition
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import Answer, MetricsServer, address_text, serve_metrics
from kafka2011.services.heartbeat import HeartbeatSender, producer_for
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.cycle_check import MirrorCycle, refuse_cycles
from kafka2011.services.mirror_maker.group_member import GroupMember, topic_filter
from kafka2011.services.mirror_maker.metrics import MirrorCollector
from kafka2011.services.mirror_maker.mirror import Mirror
from kafka2011.services.mirror_maker.mirror_registry import StillPaused
from kafka2011.services.registration import ServiceRegistration

WATCH_INTERVAL_S = 0.5
CONNECT_ATTEMPT_MS = 1000

log = get_logger(__name__)


class Link:
    """The copying from one source cluster to the target. `start` joins the group."""

    def __init__(self, config: MirrorConfig) -> None:
        """Raises KafkaError or ValueError for a filter or an address that cannot be used."""
        topic_filter(config)
        self.config = config
        self.source = ZooKeeperRegistry(config.source_zk_connect, config.zk_session_timeout_ms)
        try:
            self.target = ZooKeeperRegistry(config.target_zk_connect, config.zk_session_timeout_ms)
        except BaseException:
            self.source.close()
            raise
        self._made: tuple[Mirror, GroupMember] | None = None

    def connect(self, stop: threading.Event) -> bool:
        """Connect; False when `stop` came first. Raises CoordinationError or MirrorCycle."""
        for registry in (self.source, self.target):
            if not _started(registry, self.config.zk_connection_timeout_ms, stop):
                return False
        refuse_cycles(self.source, self.target, self.config.group_id)
        return True

    def start(self) -> None:
        mirror = Mirror(self.config, self.source, self.target)
        member = GroupMember(self.config, self.source, mirror)
        self._made = mirror, member
        member.start()

    @property
    def is_made(self) -> bool:
        return self._made is not None

    @property
    def is_alive(self) -> bool:
        """Whether every thread lives that copying depends on."""
        return self.member.is_alive and self.mirror.is_alive

    @property
    def mirror(self) -> Mirror:
        assert self._made is not None
        return self._made[0]

    @property
    def member(self) -> GroupMember:
        assert self._made is not None
        return self._made[1]

    def close(self) -> None:
        if self._made is not None:
            self.source.close_if_silent()
            self.target.close_if_silent()
            self.member.close()
            self.mirror.close()
        self.source.close()
        self.target.close()


def run(configs: Sequence[MirrorConfig], stop: threading.Event) -> int:
    """Mirror until `stop` is set. Returns the exit status."""
    links: list[Link] = []
    try:
        for config in configs:
            links.append(Link(config))
        for link in links:
            if not link.connect(stop):
                return 0
        return _mirror(links, stop)
    except (MirrorCycle, KafkaError, ValueError) as error:
        log.error("start_failed", detail=str(error))
        return 2
    except CoordinationError as error:
        log.error("start_failed", detail=str(error))
        return 1
    finally:
        has_served = any(link.is_made for link in links)
        with ThreadPoolExecutor(max(1, len(links))) as closers:
            list(closers.map(Link.close, links))  # the list raises what a close raised
        if has_served:
            log.info("stopped")


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


def _mirror(links: Sequence[Link], stop: threading.Event) -> int:
    for link in links:
        link.start()
    metrics = _metrics(links)
    first = links[0].config
    registration = ServiceRegistration(
        first, kind="mirror", zk_connect=first.source_zk_connect, metrics=metrics
    )
    heartbeat = HeartbeatSender(
        lambda: producer_for(first.target_zk_connect, first.address_map),
        server=first.process_name,
        service="mirror",
        interval_ms=first.heartbeat_interval_ms,
        repeated=lambda: sum(link.mirror.repeated_bytes for link in links),
    )
    has_failed = True
    try:
        log.info(
            "serving",
            source=";".join(link.config.source_zk_connect for link in links),
            target=first.target_zk_connect,
            group=first.group_id,
            consumer=";".join(link.member.consumer_id for link in links),
            metrics=address_text(metrics),
            pid=os.getpid(),
        )
        while not stop.wait(WATCH_INTERVAL_S):
            if not all(link.is_alive for link in links):
                log.error("mirror_failed", detail="a thread ended, see worker_failed")
                return 1
        has_failed = False
        return 0
    finally:
        heartbeat.close(says_goodbye=not has_failed)
        registration.close(says_goodbye=not has_failed)
        if metrics:
            metrics.close()


def _metrics(links: Sequence[Link]) -> MetricsServer | None:
    def status() -> Answer:
        body = json.dumps(status_of(links), indent=2).encode()
        return 200, "application/json", body + b"\n"

    return serve_metrics(
        links[0].config,
        MirrorCollector(lambda: status_of(links)),
        lambda: all(link.member.is_settled for link in links),
        waits_for=SHARE,
        routes={"/status": status},
        actions={
            "/pause": lambda body: set_paused(links, body, paused=True),
            "/resume": lambda body: set_paused(links, body, paused=False),
        },
    )


def status_of(links: Sequence[Link]) -> dict[str, Any]:
    """What /status says: the partitions of all links, each with the cluster it comes from."""
    each = [(link, link.mirror.status()) for link in links]
    # While ZooKeeper is away, there may be partitions that are not in the status yet.
    settled = all(link.member.is_settled and link.mirror.knows_its_share for link, _ in each)
    partitions = [
        {"cluster": link.config.source_zk_connect, **partition}
        for link, found in each
        for partition in found["partitions"]
    ]
    return {
        "group": links[0].config.group_id,
        "settled": settled,
        "drained": settled and all(found["drained"] for _, found in each),
        "as_of_ms": min(found["as_of_ms"] for _, found in each),
        # Without a partition, and without knowing that it has none, a member knows no lag.
        "lag_bytes": total_lag(found["lag_bytes"] for _, found in each)
        if settled or partitions
        else None,
        "rebalances": sum(link.member.rebalances for link in links),
        "commits": sum(link.member.commits for link in links),
        "looks": sum(link.member.commit_rounds for link in links),
        "partitions": partitions,
        "targets": _targets([found["targets"] for _, found in each]),
    }


def _targets(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The target's brokers, to each of which every link has its own connection."""
    found: dict[str, list[dict[str, Any]]] = {}
    for targets in each:
        for name, one in targets.items():
            found.setdefault(name, []).append(one)
    return {
        name: {
            "connected": all(one["connected"] for one in links),
            "barriers": sum(one["barriers"] for one in links),
            "barrier_seconds": round(sum(one["barrier_seconds"] for one in links), 3),
        }
        for name, links in found.items()
    }


def set_paused(links: Sequence[Link], body: bytes, *, paused: bool) -> Answer:
    """Carry out a POST to /pause or /resume, in all source clusters."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    topic = asked.get("topic") if isinstance(asked, dict) else None
    partition = asked.get("partition", "") if isinstance(asked, dict) else ""
    try:
        if not isinstance(topic, str) or not isinstance(partition, str):
            raise ValueError("a topic is missing")
        check_topic(topic, "0.7")
        if partition:
            partition = decode_broker_partition(partition).text
    except (KafkaError, ValueError):
        return _error(400, "send a topic, and optionally a partition such as 1-0")
    failed = {}
    for link in links:
        try:
            link.mirror.set_paused(topic, partition, paused)
        except StillPaused as error:
            return _error(409, str(error))
        except CoordinationError as error:
            failed[link.config.source_zk_connect] = str(error)
    if failed:
        where = "; ".join(f"{cluster}: {reason}" for cluster, reason in failed.items())
        others = ", stored in the other sources" if len(failed) < len(links) else ""
        return _error(503, f"not stored, try again: {where}{others}")
    return 200, "application/json", json.dumps({"paused": paused}).encode() + b"\n"


def _error(status: int, text: str) -> Answer:
    return status, "application/json", json.dumps({"error": text}).encode() + b"\n"
