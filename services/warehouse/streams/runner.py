"""Runs a stream job: reads topics, writes files or a topic, and keeps Spark's checkpoint.

<stream.dir>/<job>               Parquet files; read them with Spark, whose log names the valid ones
<stream.dir>/checkpoints/<job>   offsets and state: a job that is started again continues from there

In an object store the results are a Delta table, and the checkpoint a copy of a local directory
(`store_results`, `store_checkpoint`).

Files hold each result once. If a job counts in the tasks that read, each batch has a directory of
its own, which is written again if the batch is run again. Messages to a topic are durable when a
batch is done, and delivered at least once; their window, rank and item let a reader drop a repeat.
"""

import hashlib
import re
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError

from kafka2011 import streams as lib
from kafka2011.coordination.cluster import partitions_of
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.producer import Producer
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import ObjectPath, StoragePath
from kafka2011.runtime.workers import Worker
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.streams.config import StreamConfig
from kafka2011.services.warehouse.streams.jobs import (
    StreamJob,
    StreamSettings,
    ranked,
    related_pairs,
)
from kafka2011.services.warehouse.streams.store_checkpoint import CheckpointLost, StoreCheckpoint
from kafka2011.services.warehouse.streams.store_results import append_batch, has_batches

log = get_logger(__name__)

FORMAT = "kafka2011"
ITEM_COLUMNS = ("item", "category")
STARTS_MAX = 20  # of a query, 10 s each: a machine may be busy for minutes
SLOW_START = "Python worker failed to connect back"
RETRY_S = 10.0
STOP_S = 10.0
_POLL_INTERVAL_S = 1
STORED_BATCHES = 10  # kept of a checkpoint in an object store; Spark's default is 100

BatchWriter = Callable[[Any, int], None]


class StreamError(Exception):
    """The job cannot run with these settings; the text is one line for the user."""


class StreamFailed(Exception):
    """The query ended by a failure; the text is its first line."""


def read_items(session: Any, path: Path) -> Any:
    """The table of items: a Parquet file or directory, or the table `items` of an SQLite file.

    An SQLite file is read here, on the driver: a dimension table is small. Raises StreamError.
    """
    if not path.exists():
        raise StreamError(f"stream.items: there is no {path}")
    if path.is_file() and path.read_bytes()[:16] == b"SQLite format 3\x00":
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as store:
                rows = store.execute("SELECT item, category FROM items").fetchall()
        except sqlite3.Error as error:
            raise StreamError(f"stream.items: {path}: {error}") from None
        return session.createDataFrame(rows, "item string, category string")
    frame = session.read.parquet(str(path))
    lacking = set(ITEM_COLUMNS) - set(frame.columns)
    if lacking:
        raise StreamError(f"stream.items: {path} has no column {', '.join(sorted(lacking))}")
    return frame


def check(config: StreamConfig, job: StreamJob) -> None:
    """Raises StreamError for settings that do not fit the job; needs no Spark session."""
    if not config.zk_connect.strip():
        raise StreamError("zk.connect is empty: the job reads brokers that ZooKeeper names")
    if job.needs_items and config.items is None:
        raise StreamError(f"{job.name} needs stream.items: a Parquet or SQLite table of items")
    if isinstance(config.stream_dir, ObjectPath):
        # A job that counts in the tasks that read has no state: only the driver writes.
        if not config.spark_master.startswith("local") and not job.is_placed_by:
            raise StreamError(
                f"{job.name} with stream.dir in an object store needs spark.master=local[...]: on "
                "a cluster each executor writes state, for which Spark needs a file system that "
                "all of them share"
            )
    elif job.is_placed_by and (config.stream_dir / job.name / "_spark_metadata").exists():
        raise StreamError(
            f"{config.stream_dir / job.name} holds results of an earlier version, in another form: "
            f"move it and {config.stream_dir / 'checkpoints' / job.name} away"
        )
    else:
        results = config.stream_dir / job.name
        checkpoint = config.stream_dir / "checkpoints" / job.name
        # Spark makes the directory as a query starts, and a file in it with each batch.
        batches = (*_names(results / "_spark_metadata"), *_names(results))
        has_results = any(re.match(r"batch=|[0-9]+(\.compact)?$", name) for name in batches)
        if has_results and not any(name.isdigit() for name in _names(checkpoint / "offsets")):
            raise StreamError(_without_checkpoint(results, checkpoint))


def check_brokers(config: StreamConfig, job: StreamJob) -> None:
    """Raises StreamError if ZooKeeper does not answer or a topic of the job is on no live broker;
    needs no Spark session."""
    try:
        registry = ZooKeeperRegistry(config.zk_connect)
        try:
            registry.start()
            absent = [topic for topic in job.topics if not partitions_of(registry, topic)]
        finally:
            registry.close()
    except CoordinationError as error:
        raise StreamError(str(error)) from None
    if absent:
        raise StreamError(
            f"{absent[0]} has no partition on a live broker of {config.zk_connect}: send a "
            "message to it first"
        )


def _names(directory: StoragePath) -> list[str]:
    try:
        return [*storage.names(directory)]
    except FileNotFoundError:
        return []


def _without_checkpoint(results: StoragePath, checkpoint: StoragePath) -> str:
    """Why a job does not start: batches would have numbers of ones that are there, and be taken for
    them, or take their place."""
    return (
        f"{results} holds results, and their checkpoint {checkpoint} is gone: bring it back, or "
        "move the results away and the job begins anew"
    )


def settings_of(session: Any, config: StreamConfig, job: StreamJob) -> StreamSettings:
    """The job's settings, with its table of items. Raises StreamError."""
    check(config, job)
    items = read_items(session, config.items) if job.needs_items and config.items else None
    placement = None
    if job.is_placed_by:
        try:
            placement = lib.placement_of(job.topics[0], zk_connect=config.zk_connect)
        except (lib.Misplaced, CoordinationError) as error:
            raise StreamError(str(error)) from None
    return StreamSettings(
        watermark_ms=config.watermark_ms,
        window_ms=config.window_ms,
        slide_ms=config.slide_ms,
        session_gap_ms=config.session_gap_ms,
        top=config.top,
        items=items,
        placement=placement,
    )


@contextmanager
def stored_checkpoint(config: StreamConfig, job: StreamJob) -> Iterator[StoreCheckpoint | None]:
    """The job's checkpoint in the object store, restored into a temporary directory; None where
    stream.dir is a directory. Raises CheckpointLost."""
    directory = config.stream_dir
    if not isinstance(directory, ObjectPath):
        yield None
        return
    with tempfile.TemporaryDirectory(
        prefix=f"kafka2011-{job.name}-", ignore_cleanup_errors=True
    ) as local:
        checkpoint = StoreCheckpoint(directory / "checkpoints" / job.name, Path(local))
        checkpoint.restore()
        try:
            has_results = checkpoint.is_new and has_batches(directory / job.name)
        except (DeltaError, OSError) as error:
            raise CheckpointLost(f"{directory / job.name}: {first_line(error)}") from error
        if has_results:
            places = directory / job.name, directory / "checkpoints" / job.name
            raise CheckpointLost(_without_checkpoint(*places))
        yield checkpoint


def start_stream(
    session: Any,
    config: StreamConfig,
    job: StreamJob,
    *,
    once: bool,
    checkpoint: StoreCheckpoint | None = None,
) -> Any:
    """Start the query and return it. `once`: it processes what is there now, then ends.

    `checkpoint` is that of `stored_checkpoint`. Raises StreamError for settings; a later failure is
    the query's `exception()`.
    """
    settings = settings_of(session, config, job)
    streams = {
        # Results that a page shows for minutes are not worth an operator's intervention.
        topic: _events(session, config, topic, accepts_loss=bool(job.result_topic))
        for topic in job.topics
    }
    location: StoragePath = config.stream_dir / "checkpoints" / job.name
    if checkpoint is not None:
        location = checkpoint.local
        session.conf.set("spark.sql.streaming.minBatchesToRetain", STORED_BATCHES)
    writer = (
        job.build(streams, settings)
        .writeStream.queryName(job.name)
        .outputMode("append")
        .option("checkpointLocation", str(location.resolve()))
    )
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{config.interval_ms} milliseconds")
    results = config.stream_dir / job.name
    write = _to_files_of_batch(results)
    if isinstance(results, ObjectPath):
        write = partial(append_batch, results)
    if job.is_ranked:
        write = _to_topic(config, settings)
    if job.result_topic:
        write = _to_events(config, job, settings)
    if job.is_placed_by:
        write = lib.merged(job.is_placed_by, write, count=job.counts)
    if checkpoint is not None:
        return writer.foreachBatch(after_publishing(checkpoint, write)).start()
    if job.is_ranked or job.is_placed_by or job.result_topic:
        return writer.foreachBatch(write).start()
    return writer.format("parquet").start(str(results.resolve()))


def after_publishing(checkpoint: StoreCheckpoint, write: BatchWriter) -> BatchWriter:
    """`write`, preceded by publishing the batch's offsets and the state before it."""

    def publish_and_write(rows: Any, number: int) -> None:
        checkpoint.publish()
        write(rows, number)

    return publish_and_write


def _events(session: Any, config: StreamConfig, topic: str, *, accepts_loss: bool) -> Any:
    """A topic's decoded events. `accepts_loss`: read a log that was lost or cut from its start,
    instead of ending the query."""
    loss = {"failOnDataLoss": "false"} if accepts_loss else {}
    return lib.events(
        session,
        topic,
        zk_connect=config.zk_connect,
        starting=config.starting,
        registry_url=config.schema_registry_url,
        bytes_max=config.bytes_max,
        **config.forms.settings(),
        **loss,
    )


def _to_files_of_batch(directory: StoragePath) -> BatchWriter:
    def write(rows: Any, number: int) -> None:
        target = (directory / f"batch={number}").resolve()
        rows.write.mode("overwrite").parquet(str(target))

    return write


def _to_topic(config: StreamConfig, settings: StreamSettings) -> BatchWriter:
    def write(closed: Any, _batch_id: int) -> None:
        options = {"zk.connect": config.zk_connect, "topic": config.topic}
        messages = ranked(closed, settings.top)
        messages.write.format(FORMAT).options(**options).mode("append").save()

    return write


def _to_events(
    config: StreamConfig, job: StreamJob, settings: StreamSettings
) -> Callable[[Any, int], None]:
    """A writer of a batch's few rows, from the driver. Guids are made of window and pair: a batch
    that is run again writes the same events."""
    encode: Callable[[dict[str, Any]], bytes] | None = None

    def write(closed: Any, _batch_id: int) -> None:
        nonlocal encode
        rows = [row.asDict() for row in related_pairs(closed, settings.top).collect()]
        if not rows:
            return
        if encode is None:
            encode = config.topic_codec().encoder(job.result_topic)
        server = config.process_name or job.name
        payloads = [encode(_related_event(row, server, now_ms())) for row in rows]
        with Producer(zk_connect=config.zk_connect) as producer:
            producer.send(job.result_topic, payloads)
            producer.flush()
        log.info("results_written", job=job.name, topic=job.result_topic, events=len(rows))

    return write


def _related_event(row: dict[str, Any], server: str, at_ms: int) -> dict[str, Any]:
    name = f"{row['window_end']}|{row['item']}|{row['related']}"
    guid = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    header = {"guid": guid, "time": at_ms, "server": server, "service": "site"}
    return {"header": header, "event_time": row["window_end"], **row}


def run_stream(
    start: Callable[[], Any],
    stop: threading.Event,
    observe: Callable[[Any], None] | None = None,
) -> None:
    """Start the query and return when it has ended by itself, or was ended because of `stop`.

    Raises StreamFailed, and what `start` raises. Spark gives a Python worker ten seconds to start,
    which no setting changes, and a busy machine may take longer. Then the query is started again,
    from its checkpoint. `observe` is called with the query once a second, and at its end.
    """
    from pyspark.errors import PySparkException

    starts_left = STARTS_MAX
    while True:
        query = start()
        try:
            while not stop.is_set():
                has_ended = query.awaitTermination(_POLL_INTERVAL_S)
                if observe:
                    observe(query)
                if has_ended:
                    return
            query.stop()
            return
        except PySparkException as error:
            if observe:
                observe(query)
            starts_left -= 1
            if SLOW_START in str(error) and starts_left and not stop.is_set():
                log.warning("stream_restarted", reason="a Python worker took too long to start")
                continue
            raise StreamFailed(cause_of(error)) from error


def cause_of(error: BaseException) -> str:
    """The line of a query's failure that says why: ours in a worker's traceback, if there is one,
    or what another traceback of Python ends with.

    Spark's own first line names the run, so it differs each time.
    """
    text = str(error)
    ours = re.findall(r"^kafka2011(?:\.\w+)*\.(\w+: .+?)\"?$", text, re.MULTILINE)
    if ours:
        return str(ours[-1])
    _, traceback, below = text.rpartition("Traceback (most recent call last):")
    # What is raised stands at the margin; what Java adds, behind it.
    ends = re.findall(r"^\w[\w.]*(?:: .*)?$", below, re.MULTILINE) if traceback else []
    return str(ends[0]) if ends else re.sub(r", runId = [\w-]+", "", first_line(error))


def run_stream_again(
    start: Callable[[], Any],
    stop: threading.Event,
    observe: Callable[[Any], None] | None = None,
    *,
    is_worth_it: Callable[[], bool] = lambda: True,
) -> None:
    """Like `run_stream`, but start again RETRY_S after a failure of any kind, while `is_worth_it`.

    A failure is logged when it differs from the one before. Raises the last failure, and at once
    StreamError and CheckpointLost, which waiting does not cure.
    """
    known = ""
    while not stop.is_set():
        try:
            return run_stream(start, stop, observe)
        except (StreamError, CheckpointLost):
            raise
        except Exception as error:  # Spark's, ZooKeeper's, the registry's: it may pass
            if not is_worth_it():
                raise
            reason = cause_of(error)
            if reason != known:
                log.warning("stream_waits", reason=reason)
            known = reason
        stop.wait(RETRY_S)


class StreamBeside:
    """Runs a stream job in the session of a process that does something else, until `close`.

    A job that fails, or cannot start since its topic is not there yet, is started again after
    RETRY_S, and continues from its checkpoint.
    """

    def __init__(self, name: str, start: Callable[[], Any]) -> None:
        self._name = name
        self._start = start
        self._stop = threading.Event()
        self._worker = Worker(self._run, f"stream-{name}", restarts=True)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """End the query; the batch that runs is run again by the next start."""
        self._stop.set()
        self._worker.join(STOP_S)

    def _run(self) -> None:
        run_stream_again(self._started, self._stop)

    def _started(self) -> Any:
        query = self._start()
        log.info("streaming", job=self._name)
        return query
