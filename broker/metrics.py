"""Publishes the broker's counters as Prometheus metrics, on the thread that serves a scrape.

All counters start at 0 with the process, and end in `_total`. Times are seconds, sizes bytes.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.log.log import LogState
from kafka2011.protocol import hot

if TYPE_CHECKING:
    from kafka2011.broker.log.log_manager import LogManager


class BrokerCollector:
    """The broker's metrics; `gauges` are read at scrape time.

    `retention(topic)` returns how long a segment is kept, ms, and how many bytes of a partition,
    -1 for all.
    """

    def __init__(
        self,
        metrics: BrokerMetrics,
        logs: "LogManager",
        gauges: Callable[[], dict[str, float]],
        retention: Callable[[str], tuple[int, int]],
    ) -> None:
        self._metrics = metrics
        self._logs = logs
        self._gauges = gauges
        self._retention = retention

    def collect(self) -> Iterable[Metric]:
        yield from self._topics()
        yield from self._partitions()
        yield from self._requests()
        yield from self._connections()
        yield from self._storage()
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"kafka2011_broker_{name}", _GAUGE_HELP[name], value)

    def _topics(self) -> Iterable[Metric]:
        totals: dict[str, list[float]] = {}
        for log in list(self._logs.logs.values()):
            total = totals.setdefault(log.topic, [0, 0, 0, 0])
            total[0] += log.messages_in
            total[1] += log.bytes_in
            total[2] += log.bytes_out
            total[3] += round(log.messages_out)
        for position, (name, about) in enumerate(
            (
                ("messages_in", "messages appended, inner ones counted"),
                ("bytes_in", "bytes appended"),
                ("bytes_out", "bytes of message sets handed to fetches"),
                (
                    "messages_out",
                    "messages handed to fetches, estimated from the mean size of those appended",
                ),
            )
        ):
            family = CounterMetricFamily(f"kafka2011_broker_{name}", about, labels=["topic"])
            for topic, total in totals.items():
                family.add_metric([topic], total[position])
            yield family
        kept_s = GaugeMetricFamily(
            "kafka2011_broker_retention_seconds",
            "how long a segment is kept after its last write",
            labels=["topic"],
        )
        kept_bytes = GaugeMetricFamily(
            "kafka2011_broker_retention_bytes",
            "bytes of a partition that are kept, -1: all",
            labels=["topic"],
        )
        for topic in totals:
            age_ms, size = self._retention(topic)
            kept_s.add_metric([topic], age_ms / 1000)
            kept_bytes.add_metric([topic], size)
        yield kept_s
        yield kept_bytes

    def _partitions(self) -> Iterable[Metric]:
        labels = ["topic", "partition"]
        families: list[tuple[Any, Callable[[Any], float]]] = [
            (
                GaugeMetricFamily("kafka2011_broker_log_start", "first offset", labels=labels),
                lambda log: log.start_offset,
            ),
            (
                GaugeMetricFamily(
                    "kafka2011_broker_log_end", "end of written bytes", labels=labels
                ),
                lambda log: log.written_end,
            ),
            (
                GaugeMetricFamily(
                    "kafka2011_broker_high_watermark", "end of what can be fetched", labels=labels
                ),
                lambda log: log.high_watermark,
            ),
            (
                GaugeMetricFamily("kafka2011_broker_segments", "segment files", labels=labels),
                lambda log: log.segment_count,
            ),
            (
                GaugeMetricFamily(
                    "kafka2011_broker_partition_online",
                    "1: reads and writes; 0: failed or offline",
                    labels=labels,
                ),
                lambda log: float(log.state is LogState.ONLINE),
            ),
        ]
        for log in list(self._logs.logs.values()):
            for family, value in families:
                family.add_metric([log.topic, str(log.partition)], value(log))
        yield from (family for family, _ in families)

    def _requests(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(
            "kafka2011_broker_request_seconds",
            "from a request's last byte to its append being written or its response being sent",
            labels=["request"],
        )
        for kind, histogram in self._metrics.request_s.items():
            family.add_metric([kind], histogram.buckets(), histogram.sum)
        yield family
        yield from _by_topic_and_reason(
            "refused_sets",
            "produced sets that were looked at and not kept; no topic: they had no partition",
            self._metrics.refused_sets,
        )
        yield from _by_topic_and_reason(
            "failed_fetches",
            "fetch parts answered with an error",
            self._metrics.failed_fetches,
        )

    def _connections(self) -> Iterable[Metric]:
        metrics = self._metrics
        yield _counter("bytes_read", "bytes read from sockets", metrics.bytes_read)
        yield _counter("bytes_sent", "bytes sent to sockets", metrics.bytes_sent)
        yield _counter("connections_accepted", "connections accepted", metrics.connections_accepted)
        yield from _by_reason(
            "connections_refused", "connections closed on arrival", metrics.connections_refused
        )
        yield from _by_reason(
            "connections_closed", "connections that ended", metrics.connections_closed
        )
        yield _counter(
            "accept_pauses", "times that accepting paused for want of descriptors",
            metrics.accept_pauses,
        )  # fmt: skip
        yield _counter(
            "buffer_waits", "times that a connection waited for request memory",
            metrics.buffer_waits,
        )  # fmt: skip
        yield _counter(
            "fetch_without_sendfile",
            "fetch regions that had to be copied through this process",
            metrics.fetch_without_sendfile,
        )
        yield _counter(
            "cold_reads", "pieces of a response that had to come from the disk first",
            metrics.cold_reads,
        )  # fmt: skip
        yield _counter(
            "checks_beside_loop", "times that large produced sets were checked in a thread",
            metrics.checks_beside_loop,
        )  # fmt: skip

    def _storage(self) -> Iterable[Metric]:
        metrics = self._metrics
        family = HistogramMetricFamily(
            "kafka2011_broker_flush_seconds", "one flush of one log, directories included"
        )
        family.add_metric([], metrics.flush_s.buckets(), metrics.flush_s.sum)
        yield family
        yield _counter("flush_errors", "flushes that failed", metrics.flush_errors)
        yield _counter(
            "retired_segments", "segments deleted by retention", metrics.retired_segments
        )
        yield _counter("retired_bytes", "bytes deleted by retention", metrics.retired_bytes)
        yield _counter(
            "retention_errors", "segments that could not be deleted", metrics.retention_errors
        )
        yield GaugeMetricFamily(
            "kafka2011_broker_recovery_seconds",
            "how long loading and recovery took at the start",
            self._logs.loaded.recovery_s,
        )
        yield GaugeMetricFamily(
            "kafka2011_broker_recovery_bytes",
            "bytes examined at the start",
            self._logs.loaded.recovered_bytes,
        )
        verdicts = GaugeMetricFamily(
            "kafka2011_broker_recovery_verdicts", "newest segments by verdict", labels=["verdict"]
        )
        for verdict, count in self._logs.loaded.verdicts.items():
            verdicts.add_metric([verdict], count)
        yield verdicts
        build = GaugeMetricFamily(
            "kafka2011_broker_build",
            "1, labelled with the build of the hot loops",
            labels=["build"],
        )
        build.add_metric(["compiled" if hot.COMPILED else "pure"], 1)
        yield build


_GAUGE_HELP = {
    "connections": "open connections",
    "buffered_request_bytes": "memory of all buffers for requests, free ones included",
    "open_segments": "segment files open",
    "partitions": "partitions on this broker",
    "flush_queue": "flushes waiting for a thread",
    "read_queue": "reads of old data waiting for a thread",
    "check_queue": "checks of produced sets waiting for a thread",
    "registered": "1 when the broker id is registered in ZooKeeper, or need not be (a follower)",
    "serving": "1 when requests are answered (a follower: only its set's)",
    "replica_leads": "1 when this replica leads its set",
    "replica_epoch": "the highest epoch that this replica has accepted",
    "replica_whole": "0 when this replica lacks confirmed data, and must not lead",
    "replica_in_sync": "replicas in the in-sync set, by the latest reading of the set's state",
    "replica_members": "members of the replica set, by its state",
    "replica_min_insync": "replicas that must have a message before it is confirmed",
    "replica_leaderless": "1 when no live replica leads, by the last state that it took notice of",
    "replica_unconfirmed_bytes": "bytes written by this replica and not known to be confirmed",
}


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(f"kafka2011_broker_{name}", about, value)


def _by_reason(name: str, about: str, values: dict[str, int]) -> Iterable[Metric]:
    family = CounterMetricFamily(f"kafka2011_broker_{name}", about, labels=["reason"])
    for reason, count in list(values.items()):
        family.add_metric([reason], count)
    yield family


def _by_topic_and_reason(
    name: str, about: str, values: dict[tuple[str, str], int]
) -> Iterable[Metric]:
    family = CounterMetricFamily(f"kafka2011_broker_{name}", about, labels=["topic", "reason"])
    for (topic, reason), count in list(values.items()):
        family.add_metric([topic, reason], count)
    yield family
