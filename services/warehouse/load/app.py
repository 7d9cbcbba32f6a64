"""The load job as a process: loads once, or every interval until it is asked to stop.

One Spark session lives as long as the process. A tick with nothing new asks brokers and tables
and starts no Spark job. What is wrong is logged when it begins and when it ends, not every tick.
"""

import json
import signal
import threading
import time
from collections import deque
from typing import Any

from deltalake.exceptions import DeltaError
from hdrh.histogram import HdrHistogram
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kafka2011.coordination.errors import CoordinationError, CoordinationUnavailable
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.runtime.signals import stop_event
from kafka2011.services.registration import ServiceRegistration
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load.job import Loader, LoadOutcome, spark_runner
from kafka2011.services.warehouse.session import parallelism, start_session
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_warehouse

log = get_logger(__name__)

KIND = "loader"
LATENCY_MS_MAX = 30 * 24 * 3_600_000  # an older event was not loaded late, it is from an old log
CONNECT_ATTEMPT_MS = 5_000
RECENT_LOADS = 30


class Progress:
    """What the process tells of itself at /metrics and /status. Thread-safe: one writer."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._latency = HdrHistogram(1, LATENCY_MS_MAX, 2)
        self._tables: dict[str, dict[str, int]] = {}
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
            "Bytes of the log that were not loaded when the last load ended.",
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
        self._seconds = Histogram(
            "kafka2011_warehouse_load_seconds",
            "Duration of loads that had something to load.",
            buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 120),
            registry=self.registry,
        )

    def record(self, outcome: LoadOutcome, now_ms: int, duration_s: float) -> None:
        with self._lock:
            for topic, lag_bytes in outcome.lag_bytes.items():
                self._lag.labels(topic).set(lag_bytes)
                self._table(topic)["lag_bytes"] = lag_bytes
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

    def _table(self, topic: str) -> dict[str, int]:
        empty = {"rows": 0, "quarantined": 0, "version": -1, "lag_bytes": 0}
        return self._tables.setdefault(topic, empty)

    def status(self) -> dict[str, Any]:
        """Counts since this process started; latencies from header.time to the commit, ms;
        `recent` are the last loads that had something to load, oldest first."""
        with self._lock:
            count = self._latency.get_total_count()
            latency: dict[str, Any] = {"count": count}
            for percentile in (50, 90, 99, 99.9):
                value = self._latency.get_value_at_percentile(percentile) if count else None
                latency[f"p{percentile:g}"] = value
            latency["max"] = self._latency.get_max_value() if count else None
            return {
                "rows_loaded": sum(table["rows"] for table in self._tables.values()),
                "quarantined": sum(table["quarantined"] for table in self._tables.values()),
                "lag_bytes": sum(table["lag_bytes"] for table in self._tables.values()),
                "loads": self._loads,
                "last_load_ms": self._last_load_ms,
                "recent": list(self._recent),
                "latency_ms": latency,
                "tables": {topic: dict(table) for topic, table in sorted(self._tables.items())},
                "problems": list(self._problems),
            }


def problems_of(outcome: LoadOutcome) -> list[str]:
    return [problem.text for problem in outcome.problems] + outcome.failures


class _News:
    """Says what is wrong when it begins and when it is over."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def tell(self, problems: list[str]) -> None:
        for problem in problems:
            if problem not in self._known:
                log.warning("problem", detail=problem)
        for problem in sorted(self._known - set(problems)):
            log.info("problem_over", detail=problem)
        self._known = set(problems)


class LoadProcess:
    """Drives a Loader. `stop` is set by a signal; the load that runs is finished first."""

    def __init__(
        self, config: WarehouseConfig, loader: Loader, progress: Progress, stop: threading.Event
    ) -> None:
        self._config = config
        self._loader = loader
        self._progress = progress
        self._stop = stop
        self._news = _News()

    def run_once(self) -> int:
        """Load until what was there at the start is loaded; the exit status."""
        while True:
            try:
                outcome = self._load()
            except Exception as error:  # Spark's or ZooKeeper's: one line, and the next run retries
                log.error("load_failed", error=_one_line(error))
                return 1
            if outcome.lost_to_another:
                return 0
            if outcome.failures:
                return 1
            if outcome.is_caught_up or not outcome.versions or self._stop.is_set():
                return 0

    def run_until_stopped(self, is_spark_alive: Any) -> int:
        """Load every interval; the exit status."""
        interval_s = self._config.interval_ms / 1000
        upkeep_at = time.monotonic() + self._config.upkeep_interval_ms / 1000
        while not self._stop.is_set():
            began = time.monotonic()
            more = False
            try:
                outcome = self._load()
                more = outcome.left_bytes > 0
            except CoordinationError as error:
                self._news.tell([f"ZooKeeper: {error}"])
            except Exception as error:
                if not is_spark_alive():
                    log.error("spark_gone", error=_one_line(error))
                    return 1
                self._news.tell([f"load: {_one_line(error)}"])
            if self._config.upkeep_interval_ms and time.monotonic() >= upkeep_at:
                self._upkeep()
                upkeep_at = time.monotonic() + self._config.upkeep_interval_ms / 1000
            if not more:
                self._stop.wait(max(0.0, began + interval_s - time.monotonic()))
        return 0

    def _upkeep(self) -> None:
        config = self._config
        policy = UpkeepPolicy(config.compact_files_min, config.retention_hours, config.vacuum_hours)
        try:
            maintain_warehouse(config.warehouse_dir, policy)
        except (DeltaError, OSError) as error:
            log.warning("upkeep_failed", error=_one_line(error))

    def _load(self) -> LoadOutcome:
        began = time.monotonic()
        outcome = self._loader.load()
        duration_s = time.monotonic() - began
        self._progress.record(outcome, time.time_ns() // 1_000_000, duration_s)
        self._news.tell(problems_of(outcome))
        for won in outcome.lost_to_another:
            log.info("loaded_by_another_instance", detail=won)
        if outcome.versions:
            log.info(
                "loaded",
                rows=sum(outcome.rows.values()),
                tables=",".join(f"{topic}@{v}" for topic, v in outcome.versions.items()),
                quarantined=sum(outcome.quarantined.values()),
                read_bytes=outcome.read_bytes,
                lag_bytes=sum(outcome.lag_bytes.values()),
                seconds=round(duration_s, 3),
            )
        return outcome


def _one_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:500]


def _connect(config: WarehouseConfig, stop: threading.Event) -> ZooKeeperRegistry | None:
    """A started registry; None when asked to stop before ZooKeeper answered."""
    reported = False
    while not stop.is_set():
        registry = ZooKeeperRegistry(config.zk_connect, config.zk_session_timeout_ms)
        try:
            registry.start(timeout_ms=CONNECT_ATTEMPT_MS)
            return registry
        except CoordinationUnavailable as error:
            registry.close()
            if config.interval_ms == 0:
                raise
            if not reported:
                log.warning("zookeeper_not_answering", reason=str(error))
                reported = True
    return None


def run_loads(config: WarehouseConfig) -> int:
    """Run the load job until it is done or stopped; returns the exit status of the process."""
    stop = stop_event()
    progress = Progress()
    is_up = threading.Event()
    metrics = None
    if config.metrics_port >= 0:
        metrics = MetricsServer(
            progress.registry,
            is_up.is_set,
            bind=config.metrics_bind,
            port=config.metrics_port,
            routes={
                "/status": lambda: (
                    200,
                    "application/json",
                    json.dumps(progress.status()).encode() + b"\n",
                )
            },
        )
    registration = None
    registry = None
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = start_session(
        config.process_name or "load",
        config.spark_master,
        event_log_dir=config.spark_event_log_dir,
    )
    # PySpark's own handler would cancel the load that runs; ours lets it finish.
    signal.signal(signal.SIGINT, on_interrupt)
    try:
        registry = _connect(config, stop)
        if registry is None:
            return 0
        run_tasks = spark_runner(session)
        loader = Loader(config, registry, run_tasks, parallelism(session))
        process = LoadProcess(config, loader, progress, stop)
        try:
            if config.interval_ms == 0:
                return process.run_once()
            run_tasks(_warm_up, [[]])
            is_up.set()
            registration = ServiceRegistration(
                config, kind=KIND, zk_connect=config.zk_connect, metrics=metrics
            )
            log.info("loading", warehouse=str(config.warehouse_dir), metrics=_address(metrics))
            return process.run_until_stopped(lambda: _is_alive(session))
        finally:
            loader.close()
    except CoordinationError as error:
        log.error("zookeeper_failed", reason=str(error))
        return 1
    finally:
        if registration is not None:
            registration.close()
        if registry is not None:
            registry.close()
        if metrics is not None:
            metrics.close()
        session.stop()


def _warm_up(_ranges: object) -> list[Any]:
    """Starts a Python worker and has it import what the first load needs."""
    return []


def _address(metrics: MetricsServer | None) -> str:
    return f"{metrics.bind}:{metrics.port}" if metrics else "none"


def _is_alive(session: Any) -> bool:
    """Whether the JVM answers; any failure to ask it means that it does not."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False
