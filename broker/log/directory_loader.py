"""Loads a data directory at a broker's start: every log, recovered after an unclean stop.

A partition that cannot be read goes offline; the others are served.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from kafka2011.broker.log import clean_stop, recovery, suspect_cache
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.log import Log, LogSettings
from kafka2011.broker.log.log_marks import LogMarks
from kafka2011.broker.log.recovery import Examination, Verdict
from kafka2011.broker.log.segment import SUFFIX, OpenFiles, Segment, start_of_name
from kafka2011.protocol import names
from kafka2011.protocol.errors import IllegalTopicName
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

# A clock that went back by less is not reported.
CLOCK_BEHIND_MS = 60_000


class LogParts(TypedDict):
    """What all logs of a directory share."""

    files: FileLayer
    open_files: OpenFiles
    clock: Clock
    file_times: FileTimes


@dataclass(slots=True)
class StartOutcome:
    """What a start found and did."""

    recovery_s: float = 0.0
    recovered_bytes: int = 0  # bytes examined
    verdicts: dict[str, int] = field(default_factory=lambda: {each.value: 0 for each in Verdict})
    lost: list[str] = field(default_factory=list)  # what is missing though once flushed here


def partition_of(name: str) -> tuple[str, int] | None:
    """Topic and number of the partition whose directory has this name; None for any other name.

    Unlike 0.7: `t-00` names none. It would be the partition of `t-0`, which has that directory.
    Nor does what no request can name, whatever the settings: ZooKeeper has no node for it.
    """
    topic, _, number = name.rpartition("-")
    if not number.isdecimal() or str(int(number)) != number:
        return None
    try:
        return names.check_topic(topic, "0.7"), int(number)
    except IllegalTopicName:
        return None


class DirectoryLoader:
    """Loads the logs of `root` once. `marks` are read already; `new_log` makes an empty log."""

    def __init__(
        self,
        root: Path,
        quarantine: Path,
        settings_for: Callable[[str], LogSettings],
        *,
        marks: LogMarks,
        parts: LogParts,
        new_log: Callable[[str, int, Path], Log],
        is_replica: bool,
    ) -> None:
        self.outcome = StartOutcome()
        self._root = root
        self._quarantine = quarantine
        self._settings_for = settings_for
        self._marks = marks
        self._parts = parts
        self._files = parts["files"]
        self._file_times = parts["file_times"]
        self._new_log = new_log
        self._is_replica = is_replica
        self._is_memory_distrusted = False
        self._has_unreadable = False

    def load(self, ends: clean_stop.Ends | None) -> list[Log]:
        """Every log; `ends` is what the last clean stop left. Raises OSError."""
        began = time.monotonic()
        partitions = set()
        logs = []
        self._is_memory_distrusted = suspect_cache.is_marked(self._files, self._root)
        for name in self._files.list_directory(self._root):
            if name.startswith("."):
                continue
            path = self._root / name
            partition = partition_of(name)
            # A link is not passed over: an append would begin the partition anew behind it.
            is_link = partition is not None and self._files.is_link(path)
            if not is_link and not self._files.is_directory(path):
                _log.warning("stray_file", path=str(path))
                continue
            if partition is None:
                # Unlike 0.7: lost+found of a file system's root is no reason not to start.
                shown = os.fsencode(path).decode("utf-8", "backslashreplace")
                _log.warning("stray_directory", path=shown)
                continue
            partitions.add(name)
            logs.append(self._load(*partition, path, ends))
        self._forget_marks_but_of(partitions)
        self._settle_times(logs)
        if self._is_memory_distrusted and not self._has_unreadable:
            suspect_cache.clear(self._files, self._root)
        self._files.sync_directory(self._root)
        self.outcome.recovery_s = time.monotonic() - began
        return logs

    def _forget_marks_but_of(self, partitions: set[str]) -> None:
        for name, mark in list(self._marks.last.by_directory.items()):
            if name in partitions:
                continue
            self._marks.forget(name)
            if mark.end:
                self.outcome.lost.append(f"{name} is gone")
            _log.warning("partition_gone", path=str(self._root / name), flushed_end=mark.end)

    def _settle_times(self, logs: Sequence[Log]) -> None:
        """Turn the times of files into those of this process's clock. Times never fall along a log:
        no segment is newer than its successor, and none is later than now."""
        segments = [segment for log in logs for segment in log.segments]
        newest_ms = max((segment.time_ms for segment in segments), default=0)
        self._file_times.begin(max(newest_ms, self._marks.last.clock_ms))
        behind_ms = self._file_times.ahead_ms
        if behind_ms > CLOCK_BEHIND_MS:
            _log.warning("clock_behind", log_dir=str(self._root), behind_s=behind_ms // 1000)
        for log in logs:
            time_ms = 0
            for segment in log.segments:
                time_ms = max(time_ms, self._file_times.from_file(segment.time_ms))
                segment.time_ms = time_ms

    def _load(self, topic: str, partition: int, path: Path, ends: clean_stop.Ends | None) -> Log:
        """The log of one partition, an offline one when it cannot be read."""
        settings = self._settings_for(topic)
        try:
            segments, problem = self._segments_of(path)
            if not problem and not segments:
                end = self._marks.last.end_of(path.name)
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
            suspect_cache.mark(self._files, self._root)
        except DataDirectoryError as error:
            problem = str(error)
        if problem:
            self.outcome.lost.append(f"{path.name} is offline")
            _log.error("partition_offline", partition=path.name, reason=problem)
            return Log.offline(topic, partition, path, problem, settings, **self._parts)
        assert found is not None
        log = Log(
            topic,
            partition,
            path,
            segments,
            settings,
            watermark=self._watermark_of(path.name, segments),
            **self._parts,
        )
        log.sample(found.entry_count, found.valid_bytes - start)
        # Where examining begins after the next clean stop, unless something is appended.
        log.last_set_offset = segments[-1].start + (start or found.last_read)
        if log.flushed_end:
            self._marks.set(log, segments[-1].time_ms)
        return log

    def _watermark_of(self, name: str, segments: list[Segment]) -> int | None:
        """What a replica knew to be confirmed as of the marks, or less, which does no harm."""
        if not self._is_replica:
            return None
        mark = self._marks.get(name)
        known = mark.watermark or 0 if mark is not None else 0
        return max(segments[0].start, min(known, segments[-1].end))

    def _segments_of(self, path: Path) -> tuple[list[Segment], str]:
        """The segments in order, and why the partition cannot be used ("" when it can)."""
        if self._files.is_link(path):
            return [], (
                f"{path} is a symbolic link: move the partition back into log.dir, or mount its "
                "file system there"
            )
        segments: list[Segment] = []
        for name in self._files.list_directory(path):
            start = start_of_name(name)
            if start is None:
                if name.endswith(SUFFIX):
                    return [], f"{path / name} does not have a segment's name"
                _log.warning("stray_file", path=str(path / name))
                continue
            fd = self._files.open_for_reading(path / name)
            try:
                size, time_ms = self._files.size(fd), self._files.modified_ms(fd)
            finally:
                self._files.close(fd)
            if segments and segments[-1].end != start:
                before = segments[-1]
                if self._is_replica and not size and before.start < start < before.end:
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
        """Examine the newest segment and cut a torn ending; returns where examining began, what
        was found, and why the segment must stay untouched ("": it need not)."""
        trusted = ends.trusted_start(name, segment) if ends is not None else None
        start = trusted or 0
        flushed_bytes = max(0, self._marks.last.end_of(name) - segment.start)
        fd = self._files.open(segment.path)
        try:
            if self._is_memory_distrusted:
                self._files.drop_cached(fd)
            found = recovery.examine_file(self._files, fd, start, flushed_bytes)
            self.outcome.recovered_bytes += found.size_bytes - start
            self.outcome.verdicts[found.verdict.value] += 1
            if found.verdict is Verdict.CORRUPT:
                reason = f"{segment.path} is corrupt: {found.reason}; see kafka2011 dump-log"
                return start, found, reason
            if found.verdict is Verdict.TORN:
                copy = recovery.cut_torn_ending(
                    self._files, fd, segment.path, found, self._quarantine
                )
                segment.size = found.valid_bytes
                self._report_torn(segment, found, copy)
            if trusted is None and flushed_bytes:
                self._restore_time(fd, segment, self._marks.last.by_directory[name].time_ms)
            if not start:
                # A killed process may have left this in the page cache only. It is about to be
                # visible, so it must be durable first.
                self._files.sync_file(fd)
                self._files.sync_directory(segment.path.parent)
        except OSError as error:
            error.filename = error.filename or str(segment.path)  # descriptors have no names
            raise
        finally:
            self._files.close(fd)
        return start, found, ""

    def _restore_time(self, fd: int, segment: Segment, time_ms: int) -> None:
        """Restore a later time: after an unclean stop the file has the machine's, maybe behind."""
        if time_ms > segment.time_ms:
            segment.time_ms = segment.file_ms = time_ms
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
