"""All the logs of one data directory: loading, creating, flushing by schedule, retention, closing.

The directory is laid out as 0.7's. Beyond it, state lives only in regular dot-files of the
root, which the original ignores: `.kafka2011_lock` (one broker per directory),
`.kafka2011_ends` (where each log ended at a clean stop, so that a false marker is noticed),
`.kafka2011_flushed` (up to where each log was flushed), `.kafka2011_distrust` (a write to the
disk failed) and `.kafka2011_replica` (the directory is a replica's, and what that must remember).
Quarantine lies outside.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka2011.broker.log import clean_stop, flushed_mark, replica_journal
from kafka2011.broker.log.directory_loader import DirectoryLoader, LogParts, StartOutcome
from kafka2011.broker.log.directory_lock import DirectoryLock
from kafka2011.broker.log.disk_jobs import Retirement
from kafka2011.broker.log.errors import DataDirectoryError, LimitReached
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.flushed_mark import MarkJob
from kafka2011.broker.log.log import Log, LogObserver, LogSettings, LogState
from kafka2011.broker.log.log_marks import LogMarks
from kafka2011.broker.log.replica_journal import (
    DIRECTORY_ID_BYTES,
    ReplicaIdentity,
    ReplicaJournal,
)
from kafka2011.broker.log.segment import SUFFIX, OpenFiles, Segment, segment_name
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)


def _keep_all(log: Log, now_ms: int) -> None:
    """Drop no segment."""
    del log, now_ms


class LogManager:
    """The logs by (topic, partition). Loop's thread only, except `load`, which comes before it."""

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
        """`clock` is what ages go by, `wall` the machine's own (default: the same). `replica`: the
        directory is to be a replica's, and the replication moves its watermarks."""
        self.root = root
        self.journal: ReplicaJournal | None = None  # once loaded; None if not a replica
        # How a log drops old segments. In a replica the replication decides.
        self.retire_log: Callable[[Log, int], Retirement | None] = (
            Log.retire if replica is None else _keep_all
        )
        self._replica = replica
        self._new_directory_id = new_directory_id
        self._observer: LogObserver | None = None
        self._held_changed: Callable[[int], None] | None = None
        self._aside: dict[tuple[str, int], Log] = {}  # of a replica: see `set_aside`
        self._forgetters: list[Callable[[], None]] = []
        self.logs: dict[tuple[str, int], Log] = {}
        self.topics: set[str] = set()
        self.open_files = OpenFiles(files, open_segments_max)
        self.loaded = StartOutcome()
        file_times = FileTimes(clock, wall or clock)
        self._parts = LogParts(
            files=files,
            open_files=self.open_files,
            clock=clock,
            file_times=file_times,
        )
        self.marks = LogMarks(files, root, clock, file_times, of_replica=replica is not None)
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
            inside = error.filename and str(error.filename) != str(self.root)
            where = f"{error.filename}: " if inside else ""
            raise DataDirectoryError(
                f"log.dir {self.root} cannot be used: {where}{error.strerror}"
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
        """Note that a replica without what was once flushed here is not whole: durably, before the
        marks that show it are replaced."""
        journal = self.journal
        if journal is None:
            return
        lost = self.loaded.lost
        if not self.marks.last.is_known and journal.starts > 0:
            lost.append(f"{flushed_mark.NAME} is missing or cannot be read")
        if lost and journal.whole:
            _log.error("replica_not_whole", log_dir=str(self.root), reason="; ".join(lost))
            self.journal = replace(journal, whole=False)
            replica_journal.write(self._files, self.root, self.journal)

    def _check_quarantine(self) -> None:
        root, quarantine = self.root.resolve(), self.quarantine.resolve()
        if quarantine == root or root in quarantine.parents:
            raise DataDirectoryError(f"quarantine.dir {self.quarantine} must lie outside log.dir")

    def _make_quarantine(self) -> None:
        """Make it now: failing only when a torn ending is cut would cost a partition."""
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
        loader = DirectoryLoader(
            self.root,
            self.quarantine,
            self._settings_for,
            marks=self.marks,
            parts=self._parts,
            new_log=self._new_log,
            is_replica=self._replica is not None,
        )
        self.loaded = loader.outcome
        for log in loader.load(ends):
            self._add(log)

    # --- finding and creating ------------------------------------------------------------------

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self.logs.values()))

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def get_or_create(self, topic: str, partition: int) -> Log:
        """The log of a legal topic and partition, made if missing.

        Raises:
          LimitReached: there are as many topics or partitions as the settings allow.
          OSError: the directory cannot be made, or holds segments that were not loaded.
        """
        log = self.logs.get((topic, partition))
        if log is not None:
            return log
        if len(self.logs) >= self._partitions_max:
            raise LimitReached(
                f"this broker already has its limit of {self._partitions_max} partitions"
            )
        if topic not in self.topics and len(self.topics) >= self._topics_max:
            raise LimitReached(f"this broker already has its limit of {self._topics_max} topics")
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
        """The directory of a log, existing or not. Raises LimitReached: not inside `root`."""
        path = self.root / f"{topic}-{partition}"
        if path.parent != self.root or path.name.startswith("."):
            raise LimitReached(f"{path} is not inside {self.root}")
        return path

    def watch(self, observer: LogObserver) -> None:
        """Have `observer` follow every log of a replica, present or future."""
        self._observer = observer
        for log in self.logs.values():
            log.observer = observer

    def watch_held(self, changed: Callable[[int], None]) -> None:
        """Call `changed(delta_bytes)` whenever the bytes that any log, present or future, holds
        back in memory change. It runs in the middle of the log's work: it must not call back."""
        self._held_changed = changed
        for log in self.logs.values():
            log.held_changed = changed

    def _new_log(self, topic: str, partition: int, path: Path) -> Log:
        """An empty log, in a directory without segments except an empty first one that an earlier
        try made. Raises OSError: there are others, which were not loaded."""
        segment = Segment(path / segment_name(0), 0, 0, self._clock())
        if self._files.is_link(path):
            raise FileExistsError(errno.EEXIST, f"a symbolic link was not loaded: {path}")
        names = [name for name in self._files.list_directory(path) if name.endswith(SUFFIX)]
        if names and (names != [segment.path.name] or self._files.size_of(segment.path)):
            raise FileExistsError(
                errno.EEXIST, f"there are segments that were not loaded in {path}"
            )
        if not names:
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
            **self._parts,
        )

    # --- what a leader's plan makes of a replica's logs -------------------------------------------

    def adopt(self, topic: str, partition: int, offset: int) -> None:
        """Add an empty log, which was made durably at `offset`."""
        path = self.path_of(topic, partition)
        segment = Segment(path / segment_name(offset), offset, 0, self._clock())
        self._add(self._log_of(topic, partition, segment, ()))

    def set_aside(self, log: Log) -> None:
        """Drop a log whose directory is gone. If it is made again it is the same object: clients'
        appends may refer to it."""
        for segment in log.segments:
            self.open_files.forget(segment)
        key = log.topic, log.partition
        self._aside[key] = self.logs.pop(key)
        self.topics = {topic for topic, _ in self.logs}
        for forget in self._forgetters:
            forget()

    def when_gone(self, forget: Callable[[], None]) -> None:
        """Call `forget` when a log is set aside: what keeps logs must look them up again."""
        self._forgetters.append(forget)

    def _add(self, log: Log) -> None:
        log.observer = self._observer
        log.held_changed = self._held_changed
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
        now_ms = self._clock()
        jobs = []
        for log in self:
            job = self.retire_log(log, now_ms)
            if job is not None:
                jobs.append((log, job))
        return jobs

    def begin_marking(self) -> MarkJob:
        """The job that writes the flushed ends to the disk. Run it in any thread, one at a time,
        then give it to `complete_marking`."""
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
