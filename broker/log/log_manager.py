"""All the logs of one data directory: loading, creating, flushing by schedule, retention, closing.

The directory is laid out as 0.7's. Beyond it, state lives only in regular dot-files of the
root, which the original passes over: `.kafka2011_lock` (one broker a directory),
`.kafka2011_ends` (where each log ended at a clean stop, so that a marker that lies is noticed),
`.kafka2011_flushed` (up to where each log was flushed), `.kafka2011_distrust` (a write to the
disk failed) and `.kafka2011_replica` (the directory is a replica's, and what that must remember).
Quarantine lies outside.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka2011.broker.log import (
    clean_stop,
    flushed_mark,
    recovery,
    replica_journal,
    suspect_cache,
)
from kafka2011.broker.log.directory_lock import DirectoryLock
from kafka2011.broker.log.disk_jobs import Retirement
from kafka2011.broker.log.errors import DataDirectoryError, LimitReached
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.flushed_mark import MarkJob
from kafka2011.broker.log.log import Log, LogObserver, LogSettings, LogState
from kafka2011.broker.log.log_marks import LogMarks
from kafka2011.broker.log.recovery import Examination, Verdict
from kafka2011.broker.log.replica_journal import (
    DIRECTORY_ID_BYTES,
    ReplicaIdentity,
    ReplicaJournal,
)
from kafka2011.broker.log.segment import SUFFIX, OpenFiles, Segment, segment_name, start_of_name
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

# A clock that went back by less is no news.
CLOCK_BEHIND_MS = 60_000


class LogManager:
    """The logs by (topic, partition). Loop's thread only, but for `load`, which comes before it."""

    def __init__(
        self,
        root: Path,
        quarantine: Path,
        settings_for: Callable[[str], LogSettings],
        *,
        files: FileLayer,
        clock: Clock,
        wall: Clock | None = None,
        topics_max: int,
        partitions_max: int,
        open_segments_max: int,
        replica: ReplicaIdentity | None = None,
        new_directory_id: Callable[[], bytes] = lambda: os.urandom(DIRECTORY_ID_BYTES),
    ) -> None:
        """`clock` is what ages go by, `wall` the machine's own (default: the same). `replica` says
        that the directory is to be a replica's: its watermarks are moved by the replication."""
        self.root = root
        self.journal: ReplicaJournal | None = None  # once loaded; None of no replica
        self.retention_is_on = replica is None
        self._replica = replica
        self._new_directory_id = new_directory_id
        self._observer: LogObserver | None = None
        self._lost: list[str] = []  # what is missing that was flushed here once
        self._aside: dict[tuple[str, int], Log] = {}  # of a replica: see `set_aside`
        self.logs: dict[tuple[str, int], Log] = {}
        self.topics: set[str] = set()
        self.open_files = OpenFiles(files, open_segments_max)
        self.recovery_s = 0.0
        self.recovered_bytes = 0
        self.verdicts: dict[str, int] = {verdict.value: 0 for verdict in Verdict}
        self._is_memory_distrusted = False
        self._has_unreadable = False
        self._file_times = FileTimes(clock, wall or clock)
        self.marks = LogMarks(files, root, clock, self._file_times, of_replica=replica is not None)
        self.quarantine = quarantine
        self._settings_for = settings_for
        self._files = files
        self._clock = clock
        self._topics_max = topics_max
        self._partitions_max = partitions_max
        self._lock = DirectoryLock(root)

    # --- loading -------------------------------------------------------------------------------

    def load(self) -> None:
        """Lock the directory, load every log, recover after an unclean stop.

        Raises DataDirectoryError (one line for the operator) when the directory cannot be used.
        """
        try:
            self._make_directory(self.root)
            if not self._files.is_directory(self.root):
                raise DataDirectoryError(f"log.dir {self.root} is not a directory")
            self._check_quarantine()
            self._lock.take()
            self._make_quarantine()
            self._begin_journal()
            ends = clean_stop.read(self._files, self.root)
            self.marks.read()
            self._load_all(ends)
            self._keep_what_is_lost()
            self._mark_now()
            # Durable before the first append: else a power loss could bring the marker back.
            clean_stop.withdraw(self._files, self.root)
        except OSError as error:
            self.unlock()
            raise DataDirectoryError(
                f"log.dir {self.root} cannot be used: {error.filename or ''} {error.strerror}"
            ) from error
        except BaseException:
            self.unlock()
            raise

    def _begin_journal(self) -> None:
        if self._replica is None:
            replica_journal.refuse_stamped(self._files, self.root)
        else:
            self.journal = replica_journal.begin(
                self._files, self.root, self._replica, self._new_directory_id
            )

    def _keep_what_is_lost(self) -> None:
        """A replica that misses what was flushed here once is not whole: durable before the marks
        that show it are replaced."""
        journal = self.journal
        if journal is None:
            return
        if not self.marks.last.is_known and journal.starts > 1:
            self._lost.append(f"{flushed_mark.NAME} is missing or cannot be read")
        if self._lost and journal.whole:
            _log.error("replica_not_whole", log_dir=str(self.root), reason="; ".join(self._lost))
            self.journal = replace(journal, whole=False)
            replica_journal.write(self._files, self.root, self.journal)

    def _check_quarantine(self) -> None:
        root, quarantine = self.root.resolve(), self.quarantine.resolve()
        if quarantine == root or root in quarantine.parents:
            raise DataDirectoryError(f"quarantine.dir {self.quarantine} must lie outside log.dir")

    def _make_quarantine(self) -> None:
        """Now, not when a torn ending is to be cut: then it would cost a partition."""
        try:
            self._make_directory(self.quarantine)
        except OSError as error:
            raise DataDirectoryError(
                f"quarantine.dir {self.quarantine} cannot be used: {error.strerror}"
            ) from error

    def _make_directory(self, path: Path) -> None:
        """Make `path`, its parents too, durably."""
        missing = [made for made in (path, *path.parents) if not self._files.exists(made)]
        self._files.make_directory(path, parents=True)
        for made in missing:
            self._files.sync_directory(made.parent)

    def unlock(self) -> None:
        self._lock.release()

    def _load_all(self, ends: clean_stop.Ends | None) -> None:
        began = time.monotonic()
        partitions = set()
        self._is_memory_distrusted = suspect_cache.is_marked(self._files, self.root)
        for name in self._files.list_directory(self.root):
            path = self.root / name
            if not self._files.is_directory(path):
                if not name.startswith("."):
                    _log.warning("stray_file", path=str(path))
                continue
            topic, dash, number = name.rpartition("-")
            if name.startswith(".") or not dash or not topic or not number.isdecimal():
                # Unlike 0.7: lost+found of a file system's root is no reason not to start.
                _log.warning("stray_directory", path=str(path))
                continue
            partitions.add(name)
            self._add(self._load(topic, int(number), path, ends))
        self._forget_marks_but_of(partitions)
        self._settle_times()
        if self._is_memory_distrusted and not self._has_unreadable:
            suspect_cache.clear(self._files, self.root)
        self._files.sync_directory(self.root)
        self.recovery_s = time.monotonic() - began

    def _forget_marks_but_of(self, partitions: set[str]) -> None:
        for name, mark in list(self.marks.last.by_directory.items()):
            if name in partitions:
                continue
            self.marks.forget(name)
            if mark.end:
                self._lost.append(f"{name} is gone")
            _log.warning("partition_gone", path=str(self.root / name), flushed_end=mark.end)

    def _settle_times(self) -> None:
        """Turn the times of files into those of this process's clock. Times never fall along a log:
        no segment is younger than its successor, and none is younger than now."""
        segments = [segment for log in self for segment in log.segments]
        newest_ms = max((segment.time_ms for segment in segments), default=0)
        self._file_times.begin(max(newest_ms, self.marks.last.clock_ms))
        behind_ms = self._file_times.ahead_ms
        if behind_ms > CLOCK_BEHIND_MS:
            _log.warning("clock_behind", log_dir=str(self.root), behind_s=behind_ms // 1000)
        for log in self:
            time_ms = 0
            for segment in log.segments:
                time_ms = max(time_ms, self._file_times.from_file(segment.time_ms))
                segment.time_ms = time_ms

    def _load(self, topic: str, partition: int, path: Path, ends: clean_stop.Ends | None) -> Log:
        """A partition that cannot be read is offline; the others are served."""
        settings = self._settings_for(topic)
        try:
            segments, problem = self._segments_of(path)
            if not problem and not segments:
                end = self.marks.last.end_of(path.name)
                if not end:
                    return self._new_log(topic, partition, path)
                problem = (
                    f"{path} has no segments, and was flushed up to offset {end}: put them back, "
                    "or remove the directory to begin anew at 0"
                )
            start, found = 0, None
            if not problem:
                start, found, problem = self._recover(segments[-1], path.name, ends)
        except OSError as error:
            problem = f"{path} cannot be loaded: {error.strerror}: {error.filename or path}"
            self._has_unreadable = True
            suspect_cache.mark(self._files, self.root)
        except DataDirectoryError as error:
            problem = str(error)
        if problem:
            self._lost.append(f"{path.name} is offline")
            _log.error("partition_offline", partition=path.name, reason=problem)
            return Log.offline(topic, partition, path, problem, settings, **self._parts())
        assert found is not None
        log = Log(
            topic,
            partition,
            path,
            segments,
            settings,
            watermark=self._watermark_of(path.name, segments),
            **self._parts(),
        )
        log.sample(found.entry_count, found.valid_bytes - start)
        # From here on it is examined after the next clean stop, unless something is appended.
        log.last_set_offset = segments[-1].start + (start or found.last_read)
        if log.flushed_end:
            self.marks.set(log, segments[-1].time_ms)
        return log

    def _watermark_of(self, name: str, segments: list[Segment]) -> int | None:
        """What a replica knew to be confirmed when the marks were written; less does no harm."""
        if self._replica is None:
            return None
        mark = self.marks.get(name)
        known = mark.watermark or 0 if mark is not None else 0
        return max(segments[0].start, min(known, segments[-1].end))

    def _parts(self) -> dict[str, Any]:
        return {
            "files": self._files,
            "open_files": self.open_files,
            "clock": self._clock,
            "file_times": self._file_times,
        }

    def _segments_of(self, path: Path) -> tuple[list[Segment], str]:
        """The segments in order, and why the partition cannot be used ("" when it can)."""
        segments: list[Segment] = []
        for name in self._files.list_directory(path):
            start = start_of_name(name)
            if start is None:
                if name.endswith(SUFFIX):
                    return [], f"{path / name} is not named as a segment"
                _log.warning("stray_file", path=str(path / name))
                continue
            fd = self._files.open_for_reading(path / name)
            try:
                size, time_ms = self._files.size(fd), self._files.modified_ms(fd)
            finally:
                self._files.close(fd)
            if segments and segments[-1].end != start:
                before = segments[-1]
                if self._replica and not size and before.start < start < before.end:
                    # Its removal was not durable when power was lost: see `replica_tail`.
                    self._files.remove(path / name)
                    continue
                kind = "a gap" if before.end < start else "an overlap"
                return [], (
                    f"{kind} between {before.path} (ends at {before.end}) and {path / name}"
                )
            segments.append(Segment(path / name, start, size, time_ms))
        return segments, ""

    def _recover(
        self, segment: Segment, name: str, ends: clean_stop.Ends | None
    ) -> tuple[int, Examination | None, str]:
        """Examine the newest segment and cut a torn ending; returns from where it was examined,
        what was found, and why the segment must stay untouched ("": it need not)."""
        trusted = ends.trusted_start(name, segment) if ends is not None else None
        start = trusted or 0
        flushed_bytes = max(0, self.marks.last.end_of(name) - segment.start)
        fd = self._files.open(segment.path)
        try:
            if self._is_memory_distrusted:
                self._files.drop_cached(fd)
            found = recovery.examine_file(self._files, fd, start, flushed_bytes)
            self.recovered_bytes += found.size_bytes - start
            self.verdicts[found.verdict.value] += 1
            if found.verdict is Verdict.CORRUPT:
                reason = f"{segment.path} is corrupt: {found.reason}; see kafka2011 dump-log"
                return start, found, reason
            if found.verdict is Verdict.TORN:
                copy = recovery.cut_torn_ending(
                    self._files, fd, segment.path, found, self.quarantine
                )
                segment.size = found.valid_bytes
                self._report_torn(segment, found, copy)
            if trusted is None and flushed_bytes:
                self._restore_time(fd, segment, self.marks.last.by_directory[name].time_ms)
            if not start:
                # What is here may be in the page cache only, of a process that was killed. It is
                # about to be visible, so it must be durable first.
                self._files.sync_file(fd)
                self._files.sync_directory(segment.path.parent)
        except OSError as error:
            error.filename = error.filename or str(segment.path)  # descriptors have no names
            raise
        finally:
            self._files.close(fd)
        return start, found, ""

    def _restore_time(self, fd: int, segment: Segment, time_ms: int) -> None:
        """After an unclean stop the file shows the machine's clock, which may have been behind."""
        if time_ms > segment.time_ms:
            segment.time_ms = time_ms
            with contextlib.suppress(OSError):
                self._files.set_modified_ms(fd, time_ms)

    def _report_torn(self, segment: Segment, found: Examination, copy: Path) -> None:
        _log.warning(
            "torn_ending_cut",
            segment=str(segment.path),
            kept_bytes=found.valid_bytes,
            cut_bytes=found.size_bytes - found.valid_bytes,
            reason=found.reason,
            quarantine=str(copy),
        )

    # --- finding and creating ------------------------------------------------------------------

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self.logs.values()))

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def get_or_create(self, topic: str, partition: int) -> Log:
        """The log of a legal topic and partition.

        Raises:
          LimitReached: there are as many topics or partitions as the settings allow.
          OSError: the directory cannot be made.
        """
        log = self.logs.get((topic, partition))
        if log is not None:
            return log
        if len(self.logs) >= self._partitions_max:
            raise LimitReached(f"this broker holds its {self._partitions_max} partitions")
        if topic not in self.topics and len(self.topics) >= self._topics_max:
            raise LimitReached(f"this broker holds its {self._topics_max} topics")
        path = self.path_of(topic, partition)
        self._files.make_directory(path)
        log = self._new_log(topic, partition, path)
        self._add(log)
        if self._replica is not None:
            log.hold_until_opened()
            if self._observer is not None:
                self._observer.log_made(log)
        return log

    def path_of(self, topic: str, partition: int) -> Path:
        """The directory of a log, there or not. Raises LimitReached."""
        path = self.root / f"{topic}-{partition}"
        if path.parent != self.root or path.name.startswith("."):
            raise LimitReached(f"{path} is not inside {self.root}")
        return path

    def watch(self, observer: LogObserver) -> None:
        """Have `observer` follow all logs of a replica, those that are to come as well."""
        self._observer = observer
        for log in self.logs.values():
            log.observer = observer

    def _new_log(self, topic: str, partition: int, path: Path) -> Log:
        segment = Segment(path / segment_name(0), 0, 0, self._clock())
        if self._files.exists(segment.path):
            fd = self._files.open_for_reading(segment.path)
            try:
                segment.size = self._files.size(fd)
            finally:
                self._files.close(fd)
        else:
            self.open_files.create(segment)
        return self._log_of(topic, partition, segment, (self.root, path))

    def _log_of(
        self, topic: str, partition: int, segment: Segment, unsynced: Sequence[Path]
    ) -> Log:
        aside = self._aside.pop((topic, partition), None)
        if aside is not None:
            aside.begin_again(segment, unsynced)
            return aside
        return Log(
            topic,
            partition,
            segment.path.parent,
            [segment],
            self._settings_for(topic),
            unsynced_directories=unsynced,
            watermark=None if self._replica is None else segment.start,
            **self._parts(),
        )

    # --- what a leader's plan makes of a replica's logs -------------------------------------------

    def adopt(self, topic: str, partition: int, offset: int) -> None:
        """An empty log was made at `offset`, durably."""
        path = self.path_of(topic, partition)
        segment = Segment(path / segment_name(offset), offset, 0, self._clock())
        self._add(self._log_of(topic, partition, segment, ()))

    def set_aside(self, log: Log) -> None:
        """The log's directory is gone. When there is one again, it is the same object: protocols
        keep it."""
        for segment in log.segments:
            self.open_files.forget(segment)
        key = log.topic, log.partition
        self._aside[key] = self.logs.pop(key)
        self.topics = {topic for topic, _ in self.logs}

    def _add(self, log: Log) -> None:
        log.observer = self._observer
        self.logs[log.topic, log.partition] = log
        self.topics.add(log.topic)

    # --- schedules -----------------------------------------------------------------------------

    def due_for_flush(self) -> Iterator[Log]:
        """The logs whose last flush is at least their interval ago (0.7's scheduler)."""
        now_ms = self._clock()
        for log in self.logs.values():
            if log.flush_wanted and now_ms - log.last_flush_ms >= log.settings.flush_interval_ms:
                yield log

    def retire(self) -> list[tuple[Log, Retirement]]:
        """Apply every log's retention policy. Run each job in any thread, then give it to its
        log's `complete_retirement`."""
        if not self.retention_is_on:
            return []
        now_ms = self._clock()
        jobs = []
        for log in self.logs.values():
            job = log.retire(now_ms)
            if job is not None:
                jobs.append((log, job))
        return jobs

    def begin_marking(self) -> MarkJob:
        """The job of leaving the flushed ends on the disk. Run it in any thread, at most one at a
        time, then give it to `complete_marking`."""
        return self.marks.collect(self.logs.values())

    def complete_marking(self, job: MarkJob) -> None:
        self.marks.complete(job)

    def _mark_now(self) -> None:
        job = self.begin_marking()
        job.run()
        self.complete_marking(job)

    @property
    def all_failed(self) -> bool:
        """Whether there are logs and none of them takes writes any more because of its disk."""
        states = [log.state for log in self.logs.values()]
        return LogState.FAILED in states and LogState.ONLINE not in states

    # --- closing -------------------------------------------------------------------------------

    def close(self) -> bool:
        """Flush and close every log, and leave the marker of a clean stop when all went well.

        Returns whether it did. Nothing may append any more.
        """
        clean = True
        ends = clean_stop.Ends()
        for log in self.logs.values():
            log.close()
            if log.state is LogState.ONLINE:
                ends.add(log)
            if log.state is LogState.FAILED or log.flush_wanted:
                clean = False
        self._mark_now()
        if clean:
            try:
                clean_stop.leave(self._files, self.root, ends)
            except OSError as error:
                _log.error("no_clean_stop_marker", reason=str(error))
                clean = False
        self.unlock()
        return clean
