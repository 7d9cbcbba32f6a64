"""What the load process reports of itself: metrics at /metrics, figures at /status."""

import math
import threading
from collections import deque
from typing import Any

from hdrh.histogram import HdrHistogram
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kafka2011.services.warehouse.load.job import LoadOutcome
from kafka2011.services.warehouse.load.lag import Lag

LATENCY_MS_MAX = 30 * 24 * 3_600_000  # an older event was not loaded late, it is from an old log
RECENT_LOADS = 30


class Progress:
    """Collects the outcomes of loads. Thread-safe for one writer."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._latency = HdrHistogram(1, LATENCY_MS_MAX, 2)
        self._tables: dict[str, dict[str, int]] = {}
        self._lags: dict[str, int | None] = {}  # by topic; None: not known
        self._looked_ms: int | None = None  # when they were measured; None: not known since
        self._problems: list[str] = []
        self._loads = 0
        self._last_load_ms = 0
        self._rows = Counter(
            "kafka2011_warehouse_rows_total", "Rows committed.", ["topic"], registry=self.registry
        )
        self._quarantined = Counter(
            "kafka2011_warehouse_quarantined_total",
            "Messages that could not become rows.",
            ["topic"],
            registry=self.registry,
        )
        self._lag = Gauge(
            "kafka2011_warehouse_lag_bytes",
            "Bytes of the logs that are not loaded, by a look at their ends before and after each "
            "load, and every two seconds between loads; NaN: not known.",
            ["topic"],
            registry=self.registry,
        )
        self._version = Gauge(
            "kafka2011_warehouse_table_version",
            "Version of the table after the last commit.",
            ["topic"],
            registry=self.registry,
        )
        self._recent: deque[dict[str, int]] = deque(maxlen=RECENT_LOADS)
        self._problem_count = Gauge(
            "kafka2011_warehouse_problems",
            "Partitions and topics that cannot be loaded at present.",
            registry=self.registry,
        )
        self._store_retries = Counter(
            "kafka2011_warehouse_store_retries_total",
            "Requests to the object store that were sent again: throttled, timeout, unavailable.",
            ["reason"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "kafka2011_warehouse_load_seconds",
            "Duration of loads that had something to load.",
            buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 120),
            registry=self.registry,
        )

    def record(self, outcome: LoadOutcome, now_ms: int, duration_s: float) -> None:
        with self._lock:
            self._set_lags(outcome.lag)
            for topic, rows in outcome.rows.items():
                self._rows.labels(topic).inc(rows)
                self._version.labels(topic).set(outcome.versions[topic])
                self._quarantined.labels(topic).inc(outcome.quarantined[topic])
                table = self._table(topic)
                table["rows"] += rows
                table["quarantined"] += outcome.quarantined[topic]
                table["version"] = outcome.versions[topic]
            for age_ms, count in outcome.ages.items():
                self._latency.record_value(min(age_ms, LATENCY_MS_MAX), count)
            for reason, count in outcome.store_retries.items():
                self._store_retries.labels(reason).inc(count)
            self._problems = problems_of(outcome)
            self._problem_count.set(len(self._problems))
            if outcome.versions:
                self._loads += 1
                self._last_load_ms = now_ms
                self._seconds.observe(duration_s)
                self._recent.append(
                    {
                        "ended_ms": now_ms,
                        "took_ms": round(duration_s * 1000),
                        "rows": sum(outcome.rows.values()),
                        "tables": len(outcome.versions),
                    }
                )

    def record_failure(self, problem: str) -> None:
        """Record a load that failed as a whole: how much is left to load is not known."""
        with self._lock:
            self._forget_lags()
            self._problems = [problem]
            self._problem_count.set(1)

    def record_lag(self, lag: Lag) -> None:
        """Record a look at what is not loaded."""
        with self._lock:
            self._set_lags(lag)

    def lag_unknown(self) -> None:
        """Record a look that failed."""
        with self._lock:
            self._forget_lags()

    def _set_lags(self, lag: Lag) -> None:
        self._looked_ms = lag.looked_ms
        for topic, lag_bytes in lag.bytes.items():
            self._set_lag(topic, None if topic in lag.unknown else lag_bytes)
        for topic in lag.unknown:
            self._set_lag(topic, None)
        for topic in self._lags.keys() - lag.bytes.keys() - lag.unknown:
            self._set_lag(topic, 0)  # it was deleted

    def _forget_lags(self) -> None:
        self._looked_ms = None
        for topic in self._tables:
            self._set_lag(topic, None)

    def _set_lag(self, topic: str, lag_bytes: int | None) -> None:
        self._table(topic)
        self._lags[topic] = lag_bytes
        self._lag.labels(topic).set(math.nan if lag_bytes is None else lag_bytes)

    def _table(self, topic: str) -> dict[str, int]:
        return self._tables.setdefault(topic, {"rows": 0, "quarantined": 0, "version": -1})

    def status(self) -> dict[str, Any]:
        """The document of /status: counts since this process started; latencies in ms from
        header.time to the commit; `lag_bytes` by the look of `lag_looked_ms`, None where it is not
        known: before the first look, of a table that could not be opened, of all after a load or
        look that failed; `recent`, the last loads that committed rows, oldest first."""
        with self._lock:
            lags = {topic: self._lags.get(topic) for topic in self._tables}
            known = [lag for lag in lags.values() if lag is not None]
            count = self._latency.get_total_count()
            latency: dict[str, Any] = {"count": count}
            for percentile in (50, 90, 99, 99.9):
                value = self._latency.get_value_at_percentile(percentile) if count else None
                latency[f"p{percentile:g}"] = value
            latency["max"] = self._latency.get_max_value() if count else None
            return {
                "rows_loaded": sum(table["rows"] for table in self._tables.values()),
                "quarantined": sum(table["quarantined"] for table in self._tables.values()),
                "lag_bytes": sum(known)
                if len(known) == len(lags) and self._looked_ms is not None
                else None,
                "lag_looked_ms": self._looked_ms,
                "loads": self._loads,
                "last_load_ms": self._last_load_ms,
                "recent": list(self._recent),
                "latency_ms": latency,
                "tables": {
                    topic: {**table, "lag_bytes": lags[topic]}
                    for topic, table in sorted(self._tables.items())
                },
                "problems": list(self._problems),
            }


def problems_of(outcome: LoadOutcome) -> list[str]:
    """One line for each partition or topic that could not be loaded."""
    return [problem.text for problem in outcome.problems] + outcome.failures
