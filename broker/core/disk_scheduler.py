"""Decides when the logs are written and flushed, and when old segments go.

Each log that was appended to is written once at the end of the loop's turn. Flushes run beside the
loop: with group commit as soon as the one before has ended, else by 0.7's counts and times. Threads
hand their results back through the loop, so that everything here runs on its thread.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.core.mark_schedule import MarkSchedule
from kafka2011.broker.core.worker_threads import Job, WorkerThreads
from kafka2011.broker.log.disk_jobs import FlushJob, Retirement
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

READ_THREADS = 4
FLUSH_RETRY_S = 0.5  # after running out of descriptors
CHECK_INTERVAL_S = 0.5
RETENTION_DELAY_S = 60.0  # 0.7's cleaner first runs a minute after the start


class DiskScheduler:
    """Writes, flushes and retires the segments of `logs`. Construct, `start`, `stop`, `close`."""

    def __init__(
        self,
        logs: LogManager,
        loop: Any,
        metrics: BrokerMetrics,
        *,
        threads: int,
        flush_check_s: float | None,
        retention_interval_s: float,
        failed: Callable[[], None],
    ) -> None:
        """`flush_check_s`: how often flushes by time are looked for; None for group commit.
        `failed` is called when no log takes writes any more."""
        # Called when there is something to write; the server writes at the end of its turn.
        self.wake: Callable[[], None] = lambda: loop.call_soon(self.write)
        self._logs = logs
        self._loop = loop
        self._metrics = metrics
        self._flush_check_s = flush_check_s
        self._retention_interval_s = retention_interval_s
        self._failed = failed
        self._group_commit = flush_check_s is None
        self._flushers = WorkerThreads(loop, "flush", threads)
        # Apart from the flushers, so that no flush waits for these: a cold read may take long, and
        # a round of retention removes segments of every log.
        self._readers = WorkerThreads(loop, "read", READ_THREADS)
        self._removers = WorkerThreads(loop, "remove", 1)
        self._marks = MarkSchedule(logs, loop, self._flushers.put)
        self._dirty: dict[Log, None] = {}
        self._postponed: set[Log] = set()
        self._is_running = False
        self._timers: dict[str, Any] = {}

    def start(self) -> None:
        """Begin the schedules, on the loop that runs or will run."""
        self._is_running = True
        self._every(CHECK_INTERVAL_S, "failed", self._check_all_failed)
        if self._flush_check_s is not None:
            self._every(self._flush_check_s, "flush", self._flush_due)
        self._marks.start()
        self._every(self._retention_interval_s, "retention", self.retire_now, RETENTION_DELAY_S)

    def _every(
        self, interval_s: float, name: str, work: Callable[[], None], first_s: float | None = None
    ) -> None:
        def tick() -> None:
            self._timers[name] = self._loop.call_later(interval_s, tick)
            work()

        delay_s = interval_s if first_s is None else min(first_s, interval_s)
        self._timers[name] = self._loop.call_later(delay_s, tick)

    def stop(self) -> None:
        """End the schedules. Writes and flushes are still done."""
        self._is_running = False
        self._marks.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def flush_all(self) -> None:
        """Write everything and start the flushes that are due."""
        self.write()
        self._postponed.clear()
        for log in self._logs.logs.values():
            self.request_flush(log)

    def close(self) -> None:
        """Run the jobs that are queued. Their results come with the loop's next turn."""
        for threads in (self._flushers, self._readers, self._removers):
            threads.close()

    def watch_held(self, changed: Callable[[int], None]) -> None:
        """Call `changed(delta_bytes)` whenever the bytes that logs hold back in memory change. It
        is called in the middle of a log's work, so it must not call back."""
        self._logs.watch_held(changed)

    @property
    def queue_length(self) -> int:
        """Flushes that wait for a thread."""
        return self._flushers.waiting

    @property
    def read_queue_length(self) -> int:
        """Reads that wait for a thread."""
        return self._readers.waiting

    def read(self, job: Job, done: Callable[[Any], None]) -> None:
        """Run a job that reads old data in a thread, then `done(job)` on the loop."""
        self._readers.put(job, done)

    # --- writing and flushing ------------------------------------------------------------------

    def appended(self, log: Log) -> None:
        """Write `log` at the end of this turn: it took something over, or waits for a roll."""
        if not self._dirty:
            self.wake()
        self._dirty[log] = None

    def write(self) -> None:
        """Write what was appended, one write per log, and ask for the flushes that are due."""
        dirty, self._dirty = self._dirty, {}
        for log in dirty:
            log.write_gathered()
            if self._wants_flush(log):
                self.request_flush(log)

    def _wants_flush(self, log: Log) -> bool:
        return (
            self._group_commit
            or log.observer is not None  # a replica's: others wait for each flush
            or log.roll_waits
            or log.messages_since_flush_began >= log.flush_interval_messages
            or log.has_flush_waiters
        )

    def request_flush(self, log: Log) -> None:
        """Start a flush unless one runs; when it ends, another starts if it is still wanted."""
        if log in self._postponed:
            return
        job = log.begin_flush()
        if job is not None:
            self._flushers.put(job, partial(self._flushed, log))
        elif log.state is not LogState.ONLINE:
            self._check_all_failed()

    def _flushed(self, log: Log, job: FlushJob) -> None:
        self._metrics.flush_s.observe(job.elapsed_s)
        if job.error is not None:
            self._metrics.flush_errors += 1
            _log.error("flush_failed", partition=log.name, reason=str(job.error))
        before = log.flushed_end
        log.complete_flush(job)
        self._marks.flushed(log.flushed_end - before)
        if job.is_postponed:
            self._postpone(log)
        if log.has_gathered:
            self.appended(log)
        elif not job.is_postponed and log.flush_wanted and self._wants_flush(log):
            self.request_flush(log)
        if log.state is not LogState.ONLINE:
            self._check_all_failed()  # which looks at all logs: not after every flush

    def watermark_moved(self) -> None:
        """Have the marks renewed: a replica's watermark is above its mark."""
        self._marks.moved()

    def _postpone(self, log: Log) -> None:
        """Flush this log later: there was no descriptor for a directory."""
        if not self._is_running:
            return  # closing the log tries once more
        _log.warning("flush_postponed", partition=log.name, reason="no descriptor is free")
        if not self._postponed:
            self._timers["postponed"] = self._loop.call_later(FLUSH_RETRY_S, self._flush_postponed)
        self._postponed.add(log)

    def _flush_postponed(self) -> None:
        logs, self._postponed = self._postponed, set()
        for log in logs:
            self.request_flush(log)

    def _flush_due(self) -> None:
        for log in list(self._logs.due_for_flush()):
            self.request_flush(log)

    def _check_all_failed(self) -> None:
        """Call `failed` if all logs have failed; a roll or a write may fail one without a flush."""
        if self._is_running and self._logs.all_failed:
            self._failed()

    # --- retention -----------------------------------------------------------------------------

    def retire_now(self) -> None:
        """Run one round of retention; the files go in the background."""
        for log, job in self._logs.retire():
            self.remove(log, job)

    def remove(self, log: Log, job: Retirement) -> None:
        """Have the files of retired segments removed, in the background."""
        self._removers.put(job, partial(self._retired, log))

    def _retired(self, log: Log, job: Retirement) -> None:
        log.complete_retirement(job)
        self._metrics.retired_segments += len(job.removed)
        self._metrics.retired_bytes += job.bytes_removed
        if job.error is not None:
            self._metrics.retention_errors += 1
            _log.error("retention_failed", partition=log.name, reason=str(job.error))
            return
        _log.info(
            "segments_retired",
            partition=log.name,
            segments=len(job.removed),
            bytes=job.bytes_removed,
            start_offset=log.start_offset,
        )
