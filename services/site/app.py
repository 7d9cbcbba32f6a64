"""Wires `kafka2011 site`: a member for each use, the result topics, the meter, metrics and signals.

On the metrics port: /site is what the page shows, /feed?member=N a member's newsfeed, /status the
groups and checkpoints; a POST of {"on": false} to /measuring pauses the measurements, and answers
when the published ones are counted. Exit statuses: 0 after SIGTERM (state saved, groups
left); 1 when ZooKeeper does not answer, the directory is in use or a checkpoint is damaged; 2 for a
bad setting.
"""

import dataclasses
import json
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.rebalance import SHARE
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.events.settings import SchemaSettings
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.producer import Producer
from kafka2011.producer.config import ProducerConfig
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.memory import one_heap
from kafka2011.runtime.metrics import Answer, MetricsServer, address_text, serve_metrics
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.shared_settings import AuditWindow, HeartbeatSettings
from kafka2011.runtime.storage_paths import lock_file, make_directory
from kafka2011.services.registration import ServiceRegistration
from kafka2011.services.site.abuse import Abuse
from kafka2011.services.site.ads import Ads
from kafka2011.services.site.checkpoint import CheckpointDamaged
from kafka2011.services.site.config import SiteConfig
from kafka2011.services.site.measuring import Meter
from kafka2011.services.site.member import UseMember
from kafka2011.services.site.newsfeed import Newsfeed
from kafka2011.services.site.operations import Operations
from kafka2011.services.site.results import ResultWriter
from kafka2011.services.site.search import Search
from kafka2011.services.site.trending import Trending
from kafka2011.services.site.use import Use

KIND = "site"
LOOK_INTERVAL_S = 0.5
LAG_INTERVAL_S = 5.0  # it is a request for each partition
MEMBER_DIGITS_MAX = 18
OFFLINE_TIMEOUT_MS = 5_000

log = get_logger(__name__)


def uses_of(config: SiteConfig) -> list[Use]:
    """The uses that the settings name, without any state."""
    made = {
        "trending": Trending,
        "search": Search,
        "ads": lambda: Ads(config.budgets),
        "abuse": lambda: Abuse(config.planted),
        "newsfeed": Newsfeed,
        "operations": Operations,
    }
    return [made[name]() for name in config.uses]


class DirectoryInUse(Exception):
    """Another process has the directory of the checkpoints."""


def lock_directory(directory: Path) -> IO[str]:
    """The directory's lock, held until the file is closed. Raises DirectoryInUse, OSError."""
    make_directory(directory)
    try:
        return open(lock_file(directory / "lock"), "w", encoding="ascii")
    except BlockingIOError:
        raise DirectoryInUse(
            f"another process is using {directory}: stop it, or set data.dir"
        ) from None


def run(config: SiteConfig, stop: threading.Event) -> int:
    """Compute until `stop` is set. Returns the exit status."""
    one_heap()
    registry = ZooKeeperRegistry(config.zk_connect, config.zk_session_timeout_ms)
    try:
        lock = lock_directory(config.data_dir)
        registry.start(config.zk_connection_timeout_ms)
        site = Site(config, registry)
    except (CoordinationError, DirectoryInUse, CheckpointDamaged, OSError) as error:
        registry.close()
        log.error("start_failed", detail=reason_of(error))
        return 1
    metrics = _metrics(config, site)
    registration = ServiceRegistration(
        config, kind=KIND, zk_connect=config.zk_connect, metrics=metrics
    )
    registry.leave_on(stop)
    status = 1
    try:
        site.start()
        log.info(
            "serving",
            uses=",".join(config.uses),
            metrics=address_text(metrics),
            pid=os.getpid(),
        )
        sampled_s = time.monotonic()
        while not stop.wait(LOOK_INTERVAL_S):
            if time.monotonic() >= sampled_s + LAG_INTERVAL_S:
                site.sample()
                sampled_s = time.monotonic()
            if not site.is_running:
                log.error("reading_ended")
                break
        else:
            status = 0
    finally:
        site.close()
        registration.close(says_goodbye=status == 0)
        if metrics:
            metrics.close()
        registry.close()
        lock.close()
    log.info("stopped")
    return status


class Site:
    """The members, the writer of results, and what the pages of this process say.

    Raises CheckpointDamaged, OSError.
    """

    def __init__(self, config: SiteConfig, registry: ZooKeeperRegistry) -> None:
        codec = config.topic_codec(config.data_dir / "schemas.json")
        self.writer = ResultWriter(
            lambda: Producer(registry=registry), codec, config.process_name or KIND
        )
        self.members = {
            use.name: UseMember(config, use, codec, registry=registry, writer=self.writer)
            for use in uses_of(config)
        }
        self._lag: dict[str, dict[TopicPartition, int | None]] = {}
        self._offline: ZooKeeperRegistry | None = None
        self.meter = self._new_meter(config, codec, registry) if config.measures else None

    def _new_meter(
        self, config: SiteConfig, codec: TopicCodec, registry: ZooKeeperRegistry
    ) -> Meter:
        registries = [registry]
        if config.measured_zk_connect:
            self._offline = ZooKeeperRegistry(config.measured_zk_connect)
            registries.append(self._offline)
        producing = counting_config(config)
        return Meter(
            registries,
            lambda: Producer(producing, registry=registry),
            codec,
            name=f"{config.datacenter}/{config.process_name or KIND}",
            server=producing.counted_server,
            interval_ms=config.measure_interval_ms,
        )

    def start(self) -> None:
        for member in self.members.values():
            member.start()
        if self._offline is not None:
            try:
                self._offline.start(OFFLINE_TIMEOUT_MS)
            except CoordinationError as error:  # it goes on trying
                log.warning("offline_zookeeper_not_answering", reason=str(error))
        if self.meter is not None:
            self.meter.start()

    @property
    def is_running(self) -> bool:
        return all(member.is_running for member in self.members.values())

    @property
    def is_settled(self) -> bool:
        return all(member.is_settled for member in self.members.values())

    def sample(self) -> None:
        """Fetch the lag."""
        for name, member in self.members.items():
            try:
                self._lag[name] = member.lag()
            except (KafkaError, CoordinationError) as error:
                self._lag[name] = dict.fromkeys(self._lag.get(name, ()))
                log.warning("lag_unknown", use=name, reason=str(error))

    def lag(self) -> Mapping[str, Mapping[TopicPartition, int | None]]:
        return dict(self._lag)

    def shown(self) -> dict[str, Any]:
        return {"uses": {name: member.shown() for name, member in self.members.items()}}

    def status(self) -> dict[str, Any]:
        return {
            "uses": {name: member.status() for name, member in self.members.items()},
            "results": self.writer.written(),
            "results_failed": self.writer.failed,
            "measuring": self.meter is not None and self.meter.is_on,
        }

    def switch_measuring(self, body: bytes) -> Answer:
        """Pause the measurements, or go on: {"on": false} or {"on": true}."""
        try:
            wanted = json.loads(body)["on"]
        except (ValueError, KeyError, TypeError):
            wanted = None
        if not isinstance(wanted, bool):
            return _json({"error": 'send {"on": true} or {"on": false}'}, 400)
        if self.meter is not None:
            self.meter.switch(is_on=wanted)
        return _json({"measuring": self.meter is not None and wanted})

    def feed(self, query: Mapping[str, str]) -> Answer:
        """The newsfeed of the member that the query names."""
        number = query.get("member", "")
        member = self.members.get(Newsfeed.name)
        if member is None:
            return _json({"error": "this process has no newsfeed (site.uses)"}, 404)
        if not number.isdecimal() or len(number) > MEMBER_DIGITS_MAX:
            return _json({"error": "member must be a number"}, 400)
        return _json(member.asked(lambda use: _feed_of(use, int(number))))

    def close(self) -> None:
        """Save all states, leave the groups."""
        for member in self.members.values():
            member.stop()  # all first: else the last one would wait for all others
        if self.meter is not None:
            self.meter.close()
        if self._offline is not None:
            self._offline.close()
        for member in self.members.values():
            member.close()
        self.writer.close()


def counting_config(config: SiteConfig) -> ProducerConfig:
    """The settings of the measurements' producer: it counts what it sends, for the audit."""
    kept = {
        each.name: getattr(config, each.name)
        for group in (SchemaSettings, AuditWindow, HeartbeatSettings)
        for each in dataclasses.fields(group)
    }
    return ProducerConfig(**kept, audit_enable=True, audit_dir=config.data_dir / "measured")


def _feed_of(use: Use, number: int) -> Mapping[str, Any]:
    assert isinstance(use, Newsfeed)
    return use.shown_of(number)


def _json(value: object, status: int = 200) -> Answer:
    return status, "application/json", json.dumps(value, separators=(",", ":")).encode()


def _sum_of(lags: Iterable[int | None]) -> float:
    """The sum of the lags, NaN when one of them is not known."""
    return sum(math.nan if lag is None else lag for lag in lags)


class SiteCollector(Collector):
    """The members' numbers, read at each scrape."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "kafka2011_site_events", "events in the state", labels=("use",)
        )
        unreadable = CounterMetricFamily(
            "kafka2011_site_unreadable",
            "messages that are not events of their topic, or that the use failed on",
            labels=("use",),
        )
        missed = CounterMetricFamily(
            "kafka2011_site_missed_bytes", "bytes that the logs no longer had", labels=("use",)
        )
        lag = GaugeMetricFamily(
            "kafka2011_site_lag_bytes", "not read yet; NaN: unknown", labels=("use",)
        )
        size = GaugeMetricFamily(
            "kafka2011_site_checkpoint_bytes", "size of the last checkpoint", labels=("use",)
        )
        results = CounterMetricFamily(
            "kafka2011_site_results", "written and durable", labels=("topic",)
        )
        for name, found in self._site.status()["uses"].items():
            events.add_metric((name,), found["events"])
            unreadable.add_metric((name,), found["unreadable"])
            missed.add_metric((name,), found["missed_bytes"])
            size.add_metric((name,), found["checkpoint_bytes"])
        for name, partitions in self._site.lag().items():
            if partitions:
                lag.add_metric((name,), _sum_of(partitions.values()))
        for topic, number in self._site.writer.written().items():
            results.add_metric((topic,), number)
        measured = CounterMetricFamily(
            "kafka2011_site_measurements", "measurements and calls, published and durable"
        )
        meter = self._site.meter
        measured.add_metric((), meter.events if meter is not None else 0)
        failed = CounterMetricFamily(
            "kafka2011_site_results_failed", "results not written, or not known to be durable"
        )
        failed.add_metric((), self._site.writer.failed)
        return iter((events, unreadable, missed, lag, size, results, measured, failed))


def _metrics(config: SiteConfig, site: Site) -> MetricsServer | None:
    return serve_metrics(
        config,
        SiteCollector(site),
        lambda: site.is_settled,
        waits_for=SHARE,
        routes={"/site": lambda: _json(site.shown()), "/status": lambda: _json(site.status())},
        questions={"/feed": site.feed},
        actions={"/measuring": site.switch_measuring},
    )
