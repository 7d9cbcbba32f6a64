"""The marks of a manager's logs: collected on the loop, written in a thread, believed at a start.

`broker.log.flushed_mark` has what a mark says and how it is kept.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka2011.broker.log import flushed_mark
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.flushed_mark import Mark, MarkJob, MarkOrder, Marks
from kafka2011.broker.log.log import Log, LogState
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)


class LogMarks:
    """The marks last collected, by directory. Loop's thread only."""

    def __init__(
        self,
        files: FileLayer,
        root: Path,
        clock: Clock,
        file_times: FileTimes,
        *,
        of_replica: bool,
    ) -> None:
        self.last = Marks()
        self._files = files
        self._root = root
        self._clock = clock
        self._file_times = file_times
        self._of_replica = of_replica
        self._order = MarkOrder()
        self._is_failing = False

    def read(self) -> None:
        """Begin with what the last process left."""
        self.last = flushed_mark.read(self._files, self._root)

    def get(self, name: str) -> Mark | None:
        return self.last.by_directory.get(name)

    def set(self, log: Log, time_ms: int) -> None:
        """Mark the log's flushed end; `time_ms` is the time in its file."""
        log.marked_end, log.marked_watermark = log.flushed_end, log.high_watermark
        watermark = log.high_watermark if self._of_replica else None
        self.last.by_directory[log.directory.name] = Mark(log.flushed_end, time_ms, watermark)

    def lower(self, log: Log) -> None:
        """Lower the mark of a log that is to be cut to where its ends are now."""
        self.set(log, self._file_times.to_file(log.last_write_ms))

    def forget(self, name: str) -> Mark | None:
        """Drop and return a mark: the directory may go, or begin anew, from now on."""
        return self.last.by_directory.pop(name, None)

    def restore(self, name: str, mark: Mark | None) -> None:
        """Put back what `forget` returned."""
        if mark is not None:
            self.last.by_directory[name] = mark

    def collect(self, logs: Iterable[Log]) -> MarkJob:
        """The job that writes the ends of the logs to the disk."""
        for log in logs:
            if log.state is LogState.OFFLINE:
                continue  # it keeps the mark that it has
            if log.flushed_end != log.marked_end or log.high_watermark != log.marked_watermark:
                self.set(log, self._file_times.to_file(log.last_write_ms))
        collected = Marks(
            dict(self.last.by_directory),
            self._file_times.to_file(self._clock()),
            has_watermarks=self._of_replica,
        )
        return MarkJob(self._files, self._root, collected, self._order)

    def complete(self, job: MarkJob) -> None:
        """Report a failure, if it is the first in a row; the marks before it still stand."""
        if job.error is not None and not self._is_failing:
            _log.warning("flushed_mark_failed", log_dir=str(self._root), reason=str(job.error))
        self._is_failing = job.error is not None
