"""The load job as a process: loads once, or every interval until a signal stops it.

One Spark session lives as long as the process. A load with nothing new queries brokers and tables
and starts no Spark job. A problem is logged when it begins and when it ends, not at every load.
"""

import json
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kafka2011.coordination.errors import CoordinationError, CoordinationUnavailable
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import Answer, address_text, serve_metrics
from kafka2011.runtime.object_store import reason_to_retry
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.signals import stop_event
from kafka2011.runtime.storage_paths import ObjectPath, StoragePath
from kafka2011.services.registration import ServiceRegistration
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load.job import Loader, LoadOutcome, spark_runner
from kafka2011.services.warehouse.load.plan import CUT, GAP
from kafka2011.services.warehouse.load.progress import Progress, problems_of
from kafka2011.services.warehouse.session import (
    SPARK_GONE,
    is_alive,
    parallelism,
    start_session,
    stop_session,
)
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_warehouse

if TYPE_CHECKING:  # loaded where it runs
    from kafka2011.services.warehouse.streams.runner import StreamBeside

log = get_logger(__name__)

KIND = "loader"
CONNECT_ATTEMPT_MS = 5_000
STREAM_JOB = "related-items"
# Its results are a window and a watermark old, and up to an interval more.
STREAM_INTERVAL_MS = 10_000
STREAM_WATERMARK_MS = 5_000
STREAM_WINDOW_MS = 60_000
STREAM_BYTES_MAX = 16 * 1024 * 1024
CHECK_ROUNDS = 20  # of writers, before the first load into an object store
# Between loads, how much is waiting is measured this often.
LOOK_INTERVAL_S = 2.0
# Lost offsets are reported by the load that passes them, and by none after it.
SAID_ONCE = (GAP, CUT)


class _ProblemLog:
    """Logs each problem once when it begins and once when it is over."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def update(self, problems: list[str]) -> None:
        for problem in problems:
            if problem not in self._known:
                log.warning("load_problem", detail=problem)
        for problem in sorted(self._known - set(problems)):
            log.info("load_problem_over", detail=problem)
        self._known = set(problems)


class LoadProcess:
    """Runs loads. After `stop` is set, the load that runs is finished and none is started."""

    def __init__(
        self,
        config: WarehouseConfig,
        loader: Loader,
        progress: Progress,
        stop: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._loader = loader
        self._progress = progress
        self._stop = stop
        self._monotonic = monotonic
        self._problems = _ProblemLog()

    def run_once(self) -> int:
        """Load all messages that were there at the start; returns the exit status: 1 when some
        could not be loaded, also because their broker is away or has retired them."""
        is_lost = False
        while True:
            try:
                outcome = self._load()
            except Exception as error:  # Spark's or ZooKeeper's: one line, and the next run retries
                log.error("load_failed", error=_one_line(error))
                return 1
            is_lost = is_lost or any(problem.kind in SAID_ONCE for problem in outcome.problems)
            if outcome.lost_to_another:
                return int(is_lost)
            if outcome.failures:
                return 1
            if outcome.is_caught_up or not outcome.versions or self._stop.is_set():
                return int(is_lost or bool(outcome.problems))

    def run_until_stopped(self, is_spark_alive: Callable[[], bool]) -> int:
        """Load every interval until stopped, or until Spark has ended; returns the exit status."""
        interval_s = self._config.interval_ms / 1000
        upkeep_at = self._monotonic() + self._config.upkeep_interval_ms / 1000
        while not self._stop.is_set():
            began = self._monotonic()
            more = is_loaded = False
            if not is_spark_alive():  # a load with nothing new would not notice
                log.error("spark_gone", reason=SPARK_GONE)
                return 1
            try:
                outcome = self._load()
                is_loaded = True
                more = outcome.left_bytes > 0
            except CoordinationError as error:
                self._failed(f"{error} (ZooKeeper at {self._config.zk_connect})")
            except Exception as error:
                if not is_spark_alive():
                    log.error("spark_gone", reason=SPARK_GONE, detail=_one_line(error))
                    return 1
                self._failed(f"load: {_one_line(error)}")
            if self._config.upkeep_interval_ms and self._monotonic() >= upkeep_at:
                self._upkeep()
                upkeep_at = self._monotonic() + self._config.upkeep_interval_ms / 1000
            if not more:
                self._wait(began + interval_s, looks=is_loaded)
        return 0

    def _wait(self, until_s: float, *, looks: bool) -> None:
        """Wait until then or for `stop`; with `looks`, measure meanwhile what there is to load."""
        while (left_s := until_s - self._monotonic()) > 0 and not self._stop.is_set():
            self._stop.wait(min(left_s, LOOK_INTERVAL_S) if looks else left_s)
            if looks and self._monotonic() < until_s and not self._stop.is_set():
                self._look()

    def _look(self) -> None:
        try:
            self._progress.record_lag(self._loader.look())
        except CoordinationError as error:
            log.debug("lag_unknown", reason=str(error))
            self._progress.lag_unknown()
        except Exception:  # a bug in it: loads go on without it
            log.exception("look_failed")
            self._progress.lag_unknown()

    def _failed(self, problem: str) -> None:
        self._problems.update([problem])
        self._progress.record_failure(problem)

    def _upkeep(self) -> None:
        """Maintain the tables, and measure meanwhile what there is to load, as between loads."""
        config = self._config
        policy = UpkeepPolicy(config.compact_files_min, config.retention_hours, config.vacuum_hours)
        try:
            with ThreadPoolExecutor(1, "upkeep") as pool:
                upkeep = pool.submit(maintain_warehouse, config.warehouse_dir, policy)
                while wait([upkeep], LOOK_INTERVAL_S).not_done:
                    self._look()
            upkeep.result()
        except OSError as error:
            log.warning("upkeep_failed", error=_one_line(error))
        except Exception:  # a bug in it: loads go on without it
            log.exception("upkeep_failed")

    def _load(self) -> LoadOutcome:
        began = self._monotonic()
        outcome = self._loader.load(self._progress.record_lag)
        duration_s = self._monotonic() - began
        self._progress.record(outcome, time.time_ns() // 1_000_000, duration_s)
        self._problems.update(problems_of(outcome))
        for won in outcome.lost_to_another:
            log.info("loaded_by_another_instance", detail=won)
        if outcome.versions:
            log.info(
                "loaded",
                rows=sum(outcome.rows.values()),
                tables=",".join(f"{topic}@{v}" for topic, v in outcome.versions.items()),
                quarantined=sum(outcome.quarantined.values()),
                read_bytes=outcome.read_bytes,
                lag_bytes=outcome.lag.total,
                seconds=round(duration_s, 3),
            )
        return outcome


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _connect(config: WarehouseConfig, stop: threading.Event) -> ZooKeeperRegistry | None:
    """A started registry; None when `stop` was set before ZooKeeper answered.

    A single load (interval 0) raises CoordinationUnavailable after the first attempt.
    """
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
    metrics = serve_metrics(
        config, progress.registry, is_up.is_set, routes={"/status": lambda: _status(progress)}
    )
    registration = None
    registry = None
    session: Any = None
    stream: StreamBeside | None = None
    on_interrupt = signal.getsignal(signal.SIGINT)
    status = 1
    try:
        if not _wait_for_store(config, stop):
            return 0 if stop.is_set() else 1
        if config.interval_ms == 0:  # without ZooKeeper, end before a JVM takes seconds to start
            registry = _connect(config, stop)
        session = start_session(
            config.process_name or "load",
            config.spark_master,
            event_log_dir=config.spark_event_log_dir,
        )
        # PySpark's own handler would cancel the load that runs; ours lets it finish.
        signal.signal(signal.SIGINT, on_interrupt)
        registry = registry or _connect(config, stop)
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
            if config.stream_zk_connect:
                stream = stream_beside(config, session)
                stream.start()
            log.info("loading", warehouse=str(config.warehouse_dir), metrics=address_text(metrics))
            status = process.run_until_stopped(lambda: is_alive(session))
            return status
        finally:
            if stream is not None:
                stream.close()
            loader.close()
    except CoordinationError as error:
        log.error("zookeeper_failed", reason=str(error))
        return 1
    finally:
        if registration is not None:
            registration.close(says_goodbye=status == 0)
        if registry is not None:
            registry.close()
        if metrics is not None:
            metrics.close()
        if session is not None:
            stop_session(session)


def stream_beside(config: WarehouseConfig, session: Any) -> "StreamBeside":
    """The stream job whose results the site shows, over the live brokers. It runs in this session:
    a driver of its own would be another JVM."""
    from kafka2011.services.warehouse.streams.config import StreamConfig
    from kafka2011.services.warehouse.streams.jobs import BY_NAME
    from kafka2011.services.warehouse.streams.runner import StreamBeside, start_stream

    kept = {each.name: getattr(config, each.name) for each in fields(SchemaSettings)}
    job = BY_NAME[STREAM_JOB]
    settings = StreamConfig(
        **kept,
        zk_connect=config.stream_zk_connect,
        stream_dir=config.stream_dir,
        bytes_max=STREAM_BYTES_MAX,
        interval_ms=STREAM_INTERVAL_MS,
        watermark_ms=STREAM_WATERMARK_MS,
        window_ms=STREAM_WINDOW_MS,
    )
    return StreamBeside(job.name, lambda: start_stream(session, settings, job, once=False))


def _wait_for_store(config: WarehouseConfig, stop: threading.Event) -> bool:
    """Whether loads may begin; a loop waits for a store that does not answer, a single load ends.

    False also when `stop` was set meanwhile.
    """
    place = config.warehouse_dir
    reported = False
    while config.interval_ms and isinstance(place, ObjectPath) and not stop.is_set():
        try:
            place.is_dir()
            break
        except OSError as error:
            if reason_to_retry(error) is None:
                break  # it answers, and `holds_warehouse` says what is wrong
            if not reported:
                log.warning("store_not_answering", reason=_one_line(error))
                reported = True
    return not stop.is_set() and holds_warehouse(place)


def holds_warehouse(place: StoragePath) -> bool:
    """Whether loads may begin there: before the first one, writers race on a store."""
    reason = storage.why_unusable(place)
    if reason:
        log.error("warehouse_refused", warehouse=str(place), reason=reason)
        return False
    if not isinstance(place, ObjectPath):
        return True
    from kafka2011.services.warehouse.store_check import Unfit, check_store

    try:
        if not place.is_dir():
            log.info("store_checked", result=check_store(place, rounds=CHECK_ROUNDS))
    except (Unfit, OSError) as error:
        log.error("store_refused", warehouse=str(place), reason=_one_line(error))
        return False
    return True


def _status(progress: Progress) -> Answer:
    return 200, "application/json", json.dumps(progress.status()).encode() + b"\n"


def _warm_up(_ranges: object) -> list[Any]:
    """An empty task: it starts a Python worker, which imports the modules of the first load."""
    return []
