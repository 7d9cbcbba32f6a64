"""The audit as Prometheus metrics, made from the summary at each scrape."""

import math
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.services.audit.report import Json
from kafka2011.services.audit.summary import AuditSummary
from kafka2011.services.audit.verdicts import NUMBERS

PREFIX = "kafka2011_audit_"
QUANTILES = (("0.5", "p50_ms"), ("0.99", "p99_ms"), ("0.999", "p999_ms"))


class AuditCollector(Collector):
    """Collects from one `AuditSummary`."""

    def __init__(self, summary: AuditSummary) -> None:
        self._summary = summary

    def collect(self) -> Iterator[Metric]:
        summary = self._summary.summary()
        yield _counter("produced_messages", "reported by producers", summary["produced"])
        yield from _by_tier(summary)
        yield _by_topic(summary)
        yield _cells(summary)
        yield _counter("unread_ranges", "ranges skipped unread", summary["unread_ranges"])
        yield _counter("rejected_reports", "not monitoring events", summary["reports_rejected"])
        yield _silent(summary)
        unknown = GaugeMetricFamily(PREFIX + "gaps", "unfilled gaps in monitoring events and logs")
        unknown.add_metric((), len(summary["unknown"]) + summary["unknown_left_out"])
        yield unknown
        elected = GaugeMetricFamily(
            PREFIX + "unclean_election_timestamp_seconds",
            "when a replica set last continued with a replica that may lack messages; 0: never",
        )
        times = [each["time_ms"] / 1000 for each in summary["unclean_elections"]]
        elected.add_metric((), max(times, default=0))
        yield elected
        balances = GaugeMetricFamily(PREFIX + "balances", "1: nothing is missing, extra or unknown")
        balances.add_metric((), 1.0 - summary["exit_status"])
        yield balances


def _counter(name: str, text: str, value: float) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text)
    family.add_metric((), value)
    return family


def _by_tier(summary: Json) -> Iterator[Metric]:
    counted = CounterMetricFamily(PREFIX + "counted_messages", "read at the tier", labels=("tier",))
    pending = GaugeMetricFamily(PREFIX + "pending_cells", "cells to judge", labels=("tier",))
    delay = GaugeMetricFamily(
        PREFIX + "delay_seconds",
        "producer to tier, last one to two minutes",
        labels=("tier", "quantile"),
    )
    lag = GaugeMetricFamily(PREFIX + "lag_bytes", "not read yet; NaN: not known", labels=("tier",))
    caught_up = GaugeMetricFamily(
        PREFIX + "caught_up", "1: all that is visible is counted", labels=("tier",)
    )
    behind = [
        GaugeMetricFamily(PREFIX + name, text, labels=("tier",))
        for name, text in (
            ("behind_messages", "not arrived at the tier, and may still come"),
            ("behind_bytes", "bytes in the tier before that this tier has not taken yet"),
            ("behind_seconds", "age of the oldest message that has not arrived and may still come"),
        )
    ]
    for tier, found in summary["tiers"].items():
        late = found["behind_by"]
        for family, value in zip(
            behind, (late["messages"], late["bytes"], late["ms"] / 1000), strict=True
        ):
            family.add_metric((tier,), value)
        counted.add_metric((tier,), found["count"])
        pending.add_metric((tier,), found["pending_cells"])
        lag_bytes = found["lag_bytes"]
        lag.add_metric((tier,), math.nan if lag_bytes is None else lag_bytes)
        caught_up.add_metric((tier,), float(found["caught_up"]))
        for quantile, name in QUANTILES:
            if found["recent"][name] is not None:
                delay.add_metric((tier, quantile), found["recent"][name] / 1000)
    yield from (counted, pending, delay, lag, caught_up, *behind)


def _by_topic(summary: Json) -> Metric:
    wrong = GaugeMetricFamily(
        PREFIX + "messages", "messages by verdict", labels=("tier", "topic", "verdict")
    )
    for topic, found in summary["topics"].items():
        for tier, total in found["tiers"].items():
            for verdict in NUMBERS:
                wrong.add_metric((tier, topic, verdict), total[verdict])
    return wrong


def _cells(summary: Json) -> Metric:
    cells = GaugeMetricFamily(PREFIX + "cells", "cells by verdict", labels=("verdict",))
    for verdict, count in summary["verdicts"].items():
        cells.add_metric((verdict,), count)
    return cells


def _silent(summary: Json) -> Metric:
    silent = GaugeMetricFamily(
        PREFIX + "server_silent_seconds",
        "since the last heartbeat of a server that missed several",
        labels=("tier", "server"),
    )
    for sender in summary["silent"]:
        silent_s = max(0, summary["now_ms"] - sender["since_ms"]) / 1000
        silent.add_metric((sender["tier"], sender["server"]), silent_s)
    return silent
