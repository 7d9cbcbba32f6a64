"""Runs a stream job: reads topics, writes files or a topic, and keeps Spark's checkpoint.

<stream.dir>/<job>               Parquet files; read them with Spark, whose log names the valid ones
<stream.dir>/checkpoints/<job>   offsets and state: a job that is started again continues from there

Files hold each result once. Messages to a topic are durable when a batch is done, and delivered at
least once; window, rank and item in them let a reader drop a repeat.
"""

import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.signals import stop_event
from kafka2011.services.warehouse.session import start_session
from kafka2011.services.warehouse.streams.config import StreamConfig
from kafka2011.services.warehouse.streams.jobs import StreamJob, StreamSettings, ranked

log = get_logger(__name__)

FORMAT = "kafka2011"
ITEM_COLUMNS = ("item", "category")
STARTS_MAX = 5
SLOW_START = "Python worker failed to connect back"
_POLL_INTERVAL_S = 1


class StreamError(Exception):
    """The job cannot run with these settings; the text is one line for the user."""


def read_items(session: Any, path: Path) -> Any:
    """The table of items: a Parquet file or directory, or the table `items` of an SQLite file.

    An SQLite file is read here, on the driver: a dimension table is small. Raises StreamError.
    """
    if not path.exists():
        raise StreamError(f"stream.items: there is no {path}")
    if path.is_file() and path.read_bytes()[:16] == b"SQLite format 3\x00":
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
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
    if job.needs_items and config.items is None:
        raise StreamError(f"{job.name} needs stream.items: a Parquet or SQLite table of items")


def settings_of(session: Any, config: StreamConfig, job: StreamJob) -> StreamSettings:
    """The job's settings, with its table of items. Raises StreamError."""
    check(config, job)
    items = read_items(session, config.items) if job.needs_items and config.items else None
    return StreamSettings(
        watermark_ms=config.watermark_ms,
        window_ms=config.window_ms,
        slide_ms=config.slide_ms,
        session_gap_ms=config.session_gap_ms,
        top=config.top,
        items=items,
    )


def start_stream(session: Any, config: StreamConfig, job: StreamJob, *, once: bool) -> Any:
    """Start the query and return it. `once`: it processes what is there now, then ends.

    Raises StreamError for settings; a later failure is the query's `exception()`.
    """
    settings = settings_of(session, config, job)
    streams = {topic: _events(session, config, topic) for topic in job.topics}
    checkpoint = config.stream_dir / "checkpoints" / job.name
    writer = (
        job.build(streams, settings)
        .writeStream.queryName(job.name)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint.resolve()))
    )
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{config.interval_ms} milliseconds")
    if job.is_ranked:
        return writer.foreachBatch(_to_topic(config, settings)).start()
    return writer.format("parquet").start(str((config.stream_dir / job.name).resolve()))


def _events(session: Any, config: StreamConfig, topic: str) -> Any:
    options = {"zk.connect": config.zk_connect, "topic": topic, "decode": "true"}
    options["startingOffsets"] = config.starting
    options["event.forms"] = str(config.event_forms)
    if config.schema_registry_url:
        options["schema.registry.url"] = config.schema_registry_url
    if config.bytes_max:
        options["maxBytesPerTrigger"] = str(config.bytes_max)
    return session.readStream.format(FORMAT).options(**options).load()


def _to_topic(config: StreamConfig, settings: StreamSettings) -> Callable[[Any, int], None]:
    def write(closed: Any, _batch_id: int) -> None:
        options = {"zk.connect": config.zk_connect, "topic": config.topic}
        messages = ranked(closed, settings.top)
        messages.write.format(FORMAT).options(**options).mode("append").save()

    return write


def run_stream(start: Callable[[], Any], stop: threading.Event) -> tuple[int, Any]:
    """Start the query and wait until it ends by itself or `stop` is set: (exit status, query).

    Spark gives a Python worker ten seconds to start, which no setting changes, and a busy machine
    may take longer. Such a query is started again, and continues from its checkpoint.
    """
    from pyspark.errors import PySparkException

    starts_left = STARTS_MAX
    while True:
        query = start()
        try:
            while not stop.is_set():
                if query.awaitTermination(_POLL_INTERVAL_S):
                    return 0, query
            query.stop()
            return 0, query
        except PySparkException as error:
            starts_left -= 1
            if SLOW_START in str(error) and starts_left and not stop.is_set():
                log.warning("stream_restarted", reason="a Python worker took too long to start")
                continue
            lines = str(error).strip().splitlines() or [type(error).__name__]
            log.error("stream_failed", reason=lines[0][:500])
            return 1, query


def run_job(config: StreamConfig, job: StreamJob, *, once: bool) -> int:
    """Run one job until a signal, or until it has processed what is there (`once`).

    Returns the exit status: 1 when the query failed, 2 when the settings do not fit the job.
    """
    try:
        check(config, job)
    except StreamError as error:
        log.error("stream_start_failed", job=job.name, reason=str(error))
        return 2
    stop = stop_event()
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = start_session(
        config.process_name or job.name,
        config.spark_master,
        event_log_dir=config.spark_event_log_dir,
    )
    signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own would cancel the running batch
    try:

        def start() -> Any:
            query = start_stream(session, config, job, once=once)
            log.info("streaming", job=job.name, topics=",".join(job.topics), once=once)
            return query

        status, query = run_stream(start, stop)
        rows = sum(progress.numInputRows for progress in query.recentProgress)
        log.info("stream_ended", job=job.name, rows_of_last_batches=rows)
        return status
    except StreamError as error:
        log.error("stream_start_failed", job=job.name, reason=str(error))
        return 2
    finally:
        session.stop()
