"""A stream job as a process: `kafka2011 stream NAME`, until a signal or over what is there.

With `metrics.port` it says at /healthz whether the query runs, and at /metrics how far it is; with
`process.name` it is in the process registry, which the dashboard draws. Like every process of a
deployment it waits for what it needs: until its first batch is done, a topic, broker or schema that
is not there yet is tried again. A run over what is there, or a job that counts where partitions are
read, waits for nothing: it looks for ZooKeeper and the topics before Spark is started. A query that
fails later ends the process with status 1, and the next start continues from the checkpoint.
"""

import signal
import threading
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from pyspark.errors import PySparkException

from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import serve_metrics
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.signals import stop_event
from kafka2011.services.registration import ServiceRegistration
from kafka2011.services.warehouse.session import (
    SPARK_GONE,
    is_alive,
    start_session,
    stop_session,
)
from kafka2011.services.warehouse.streams.config import StreamConfig
from kafka2011.services.warehouse.streams.jobs import StreamJob
from kafka2011.services.warehouse.streams.runner import (
    StreamError,
    StreamFailed,
    cause_of,
    check,
    check_brokers,
    run_stream,
    run_stream_again,
    start_stream,
    stored_checkpoint,
)
from kafka2011.services.warehouse.streams.store_checkpoint import CheckpointLost

log = get_logger(__name__)

KIND = "stream"


class StreamProgress:
    """What a query has processed since the process started, as metrics. For one thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.is_running = False
        self.rows = 0
        self.batches = 0
        self._seen: tuple[str, int] = ("", -1)  # the query's run, and its last batch
        self._rows = Counter(
            "kafka2011_stream_rows_total", "Messages that batches read.", registry=self.registry
        )
        self._batches = Counter(
            "kafka2011_stream_batches_total", "Batches done.", registry=self.registry
        )
        self._batch_seconds = Gauge(
            "kafka2011_stream_batch_seconds", "Duration of the last batch.", registry=self.registry
        )
        self._batch_at = Gauge(
            "kafka2011_stream_batch_end_timestamp_seconds",
            "When the last batch was seen to be done (Unix time).",
            registry=self.registry,
        )

    def observe(self, query: Any) -> None:
        """Count the batches that the query has done since the last call.

        Spark remembers the last hundred, and reports a pause without new data as the batch that
        follows, again and again; it has no rows and is not counted.
        """
        self.is_running = bool(query.isActive)
        for batch in query.recentProgress:
            run, number = self._seen
            if batch.numInputRows == 0 or (str(batch.runId) == run and batch.batchId <= number):
                continue
            self._seen = str(batch.runId), batch.batchId
            self.rows += batch.numInputRows
            self.batches += 1
            self._rows.inc(batch.numInputRows)
            self._batches.inc()
            self._batch_seconds.set(batch.batchDuration / 1000)
            self._batch_at.set(now_ms() / 1000)


def run_job(config: StreamConfig, job: StreamJob, *, once: bool) -> int:
    """Run one job until a signal, or until it has processed what is there (`once`).

    Returns the exit status: 1 when the query failed, 2 when the job was not started: the settings
    do not fit it, or what it needs at its start is not there.
    """
    try:
        check(config, job)
        if once or job.is_placed_by:  # these wait for nothing
            check_brokers(config, job)
    except StreamError as error:
        log.error("stream_start_failed", job=job.name, reason=str(error))
        return 2
    stop = stop_event()
    progress = StreamProgress()
    metrics = serve_metrics(config, progress.registry, lambda: progress.is_running)
    registration = ServiceRegistration(
        config, kind=KIND, zk_connect=config.zk_connect, metrics=metrics
    )
    status = 1
    session: Any = None
    try:
        on_interrupt = signal.getsignal(signal.SIGINT)
        session = start_session(
            config.process_name or job.name,
            config.spark_master,
            event_log_dir=config.spark_event_log_dir,
        )
        signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own would cancel the running batch
        # Under spark-submit its master counts; `settings_of` checks the settings again.
        config = replace(config, spark_master=session.sparkContext.master)
        _run(session, config, job, progress, stop, once=once)
        log.info("stream_ended", job=job.name, rows=progress.rows, batches=progress.batches)
        status = 0
    except (CheckpointLost, StreamFailed, PySparkException) as error:
        log.error("stream_failed", job=job.name, reason=cause_of(error))
    except StreamError as error:
        log.error("stream_start_failed", job=job.name, reason=str(error))
        status = 2
    except Exception as error:
        if session is None or is_alive(session):
            raise
        log.error("spark_gone", job=job.name, reason=SPARK_GONE, detail=first_line(error))
    finally:
        registration.close(says_goodbye=status == 0)
        if metrics is not None:
            metrics.close()
        if session is not None:
            stop_session(session)
    return status


def _run(
    session: Any,
    config: StreamConfig,
    job: StreamJob,
    progress: StreamProgress,
    stop: threading.Event,
    *,
    once: bool,
) -> None:
    with stored_checkpoint(config, job) as checkpoint:

        def start() -> Any:
            query = start_stream(session, config, job, once=once, checkpoint=checkpoint)
            log.info("streaming", job=job.name, topics=",".join(job.topics), once=once)
            return query

        if once:
            run_stream(start, stop, progress.observe)
        else:
            run_stream_again(
                start,
                stop,
                progress.observe,
                is_worth_it=lambda: not progress.batches and is_alive(session),
            )
        if checkpoint is not None:
            checkpoint.publish()  # that the last batch is done, too
