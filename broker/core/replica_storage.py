"""What the replication does to a broker's logs: copies, watermarks, floors, the journal.

It is the disk of `broker.replication`'s machine. Everything belongs to the loop's thread; what
takes time runs in one other thread, in the order of the calls, and calls back from the loop.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kafka2011.broker.core.disk_scheduler import DiskScheduler
from kafka2011.broker.core.errors import CannotRead
from kafka2011.broker.core.worker_threads import WorkerThreads
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.copy_check import Checked
from kafka2011.broker.log.cutting import CutJob, CutKind
from kafka2011.broker.log.disk_jobs import NO_DESCRIPTOR, Retirement
from kafka2011.broker.log.errors import PartitionError
from kafka2011.broker.log.file_layer import Buffer, FileLayer
from kafka2011.broker.log.log import Log, LogObserver, LogState, WrittenPiece
from kafka2011.broker.log.log_cuts import LogCuts, Wanted
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.log.quarantine import Quarantine
from kafka2011.broker.log.replica_journal import (
    JournalJob,
    Lineage,
    ReplicaJournal,
    counted,
    write,
)
from kafka2011.broker.log.segment_sums import Confirmed, SegmentSums, SumsJob
from kafka2011.broker.log.tail import NO_ROOM, CopiedFrom
from kafka2011.broker.replication.copies import Copy
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.protocol.lineage import cut, pruned
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

NO_ROOM_S = 1.0  # before what found no room, or no descriptor, is tried again

_KINDS = {
    Action.CUT: CutKind.SHORTER,
    Action.ANEW: CutKind.ANEW,
    Action.ASIDE: CutKind.ASIDE,
}


@dataclass(frozen=True, slots=True)
class CutResult:
    """The result of a cut: an error, or where the bytes went (None: none were cut) and how many."""

    error: PartitionError | OSError | None
    quarantine: Path | None = None
    cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Copied:
    """The appender of copied entries."""

    refused: Callable[[PartitionError], None]

    def append_failed(self, topic: str, error: PartitionError) -> None:
        del topic
        self.refused(error)


class ReplicaStorage:
    """The loaded logs of a replica. `close` it before the logs are closed."""

    def __init__(self, logs: LogManager, disk: DiskScheduler, loop: Any, files: FileLayer) -> None:
        assert logs.journal is not None, "its log.dir is no replica's"
        self.journal: ReplicaJournal = logs.journal  # the newest that is durable
        self._logs = logs
        self._disk = disk
        self._files = files
        self._loop = loop
        self._cuts = LogCuts(logs, files, Quarantine(files, logs.quarantine))
        self._thread = WorkerThreads(loop, "replica", 1)
        # What is to be written, in order; the first ones are being written.
        self._journals: list[tuple[ReplicaJournal, Callable[[OSError | None], None]]] = []
        self._is_journalling = False

    def close(self) -> None:
        """Run what is queued. The results come with the loop's next turn."""
        self._thread.close()

    def watch(self, observer: LogObserver) -> None:
        """Have `observer` called for every log, present or future."""
        self._logs.watch(observer)

    def log(self, name: str) -> Log | None:
        """The log in the directory of that name; None when there is none."""
        topic, _, partition = name.rpartition("-")
        return self._logs.get(topic, int(partition)) if partition.isdecimal() else None

    def copies(self) -> dict[str, Copy]:
        """The logs as recovery left them, for the machine. Offline ones are left out: nothing is
        known of them, so that a leader has them begin anew."""
        return {
            log.name: Copy(
                log.start_offset,
                log.high_watermark,
                log.flushed_end,
                log.written_end,
                pruned(
                    cut(self.journal.lineages.get(log.name, ()), log.flushed_end),
                    log.start_offset,
                ),
            )
            for log in self._logs
            if log.state is not LogState.OFFLINE
        }

    # --- the journal ---------------------------------------------------------------------------

    def count_start(self, known: int) -> bool:
        """Count this start, durably; ZooKeeper has `known` starts of the directory. Returns whether
        it is that of the last run, not an older copy. Raises OSError."""
        before, self.journal = self.journal, counted(self.journal, known)
        write(self._files, self._logs.root, self.journal)
        return before.starts >= known

    def write_journal(
        self,
        accepted: int,
        whole: bool,
        lineages: Mapping[str, Lineage],
        done: Callable[[OSError | None], None],
    ) -> None:
        """Replace the journal; `done(None)` is called when it, or a later one, is durable. It is
        retried while there is no room or no descriptor. After another error the disk has the old
        one or the new one: nothing may be promised on either, so stop the process."""
        journal = replace(self.journal, accepted=accepted, whole=whole, lineages=dict(lineages))
        self._journals.append((journal, done))
        if not self._is_journalling:
            self._write_newest_journal()

    def _write_newest_journal(self) -> None:
        """Write the newest journal, which stands for those before."""
        self._is_journalling = True
        journal, _ = self._journals[-1]
        job = JournalJob(self._files, self._logs.root, journal)
        self._thread.put(job, partial(self._journalled, len(self._journals)))

    def _journalled(self, count: int, job: JournalJob) -> None:
        if job.error is not None and job.error.errno in NO_ROOM | NO_DESCRIPTOR:
            _log.warning("replica_journal_waits", reason=str(job.error))
            self._loop.call_later(NO_ROOM_S, self._write_newest_journal)
            return
        self._is_journalling = False
        if job.error is None:
            self.journal = job.journal
        written, self._journals = self._journals[:count], self._journals[count:]
        if self._journals:
            self._write_newest_journal()
        for _, done in written:
            done(job.error)

    # --- cuts ----------------------------------------------------------------------------------

    def cut_logs(self, steps: Mapping[str, Step], done: Callable[[CutResult], None]) -> None:
        """Carry out a leader's plan: what goes is put in quarantine, durably, then cut, durably.
        Append nothing to these logs before `done(result)`.

        With an error nothing was cut, unless it made a log fail (the observer is called): then only
        a restart finds out what is there. Else join again: the next plan has the same cuts.
        """
        wanted: dict[tuple[str, int], Wanted] = {}
        barrier = Barrier(lambda _: self._loop.call_soon(self._begin_cut, wanted, done))
        for name, step in steps.items():
            if step.action is Action.KEEP:
                continue
            topic, _, partition = name.rpartition("-")
            wanted[topic, int(partition)] = Wanted(_KINDS[step.action], step.offset)
            log = self._logs.get(topic, int(partition))
            if log is not None and log.is_online:
                log.when_flushed(log.log_end, barrier)
                self._disk.request_flush(log)
        barrier.seal()

    def _begin_cut(
        self, wanted: Mapping[tuple[str, int], Wanted], done: Callable[[CutResult], None]
    ) -> None:
        try:
            job = self._cuts.begin(wanted)
        except (PartitionError, OSError) as error:
            _log.error("cut_failed", reason=str(error))
            done(CutResult(error))
        else:
            self._thread.put(job, partial(self._cut, done))

    def _cut(self, done: Callable[[CutResult], None], job: CutJob) -> None:
        if job.is_postponed:
            _log.warning("cut_waits", reason="there is no descriptor for its next step")
            again = partial(self._thread.put, job, partial(self._cut, done))
            self._loop.call_later(NO_ROOM_S, again)
            return
        self._cuts.complete(job)
        names = [cut.directory.name for cut in job.cuts]
        if job.error is not None:
            _log.error("cut_failed", partitions=names, reason=str(job.error))
        elif job.quarantined is not None:
            _log.warning(
                "logs_cut", partitions=names, bytes=job.cut_bytes, quarantine=str(job.quarantined)
            )
        done(CutResult(job.error, job.quarantined, job.cut_bytes))

    # --- copies --------------------------------------------------------------------------------

    def append_copied(
        self,
        log: Log,
        offset: int,
        entries: Buffer,
        checked: Checked,
        copied: CopiedFrom,
        *,
        refused: Callable[[PartitionError], None],
    ) -> None:
        """Append what `check_copied` found whole in a leader's bytes at `offset`; without entries,
        roll where the leader has. It is written at the end of this turn of the loop (until then the
        buffer must not change) and flushed at once. If `log.is_held` afterwards, a roll waits
        for a flush: append nothing more to this log before `log.when_written(log.log_end, ...)`.
        `refused` is called if what was taken is not written after all.

        Raises CopyMisplaced, StorageFailed, StorageFull, PartitionOffline: nothing was taken.
        """
        assert len(entries) == checked.whole_bytes
        log.append_copied(offset, entries, checked.entry_count, copied, _Copied(refused))
        self._disk.appended(log)

    def read_written(self, log: Log, offset: int, size_max: int) -> WrittenPiece | None:
        """At most `size_max` bytes from `offset` on, of one segment, for a follower: written here,
        maybe not flushed. None at the written end. Send the region, then release it.

        Raises OffsetNotInLog, PartitionOffline, CannotRead.
        """
        try:
            return log.read_written(offset, size_max)
        except OSError as error:
            raise CannotRead(f"{log.name}: {error.strerror}") from None

    def sums_job(self) -> SumsJob:
        """A job that checksums all that is confirmed, as it is on the disk."""
        segments = {
            log.name: [
                Confirmed(one.path, one.start, min(one.end, log.high_watermark) - one.start)
                for one in log.segments
                if one.start < log.high_watermark
            ]
            for log in self._logs
            if log.state is not LogState.OFFLINE
        }
        return SumsJob(self._files, segments)

    def sums_of(self, job: SumsJob) -> dict[str, tuple[SegmentSums, ...]]:
        """What a job has found. A file that is gone although retention did not remove it counts as
        damage."""
        sums = dict(job.sums)
        for name, start in job.gone:
            log = self.log(name)
            if log is None or log.state is LogState.OFFLINE:
                continue
            if any(one.start == start and not self._files.exists(one.path) for one in log.segments):
                found = (*sums[name], SegmentSums.of_gone(start))
                sums[name] = tuple(sorted(found, key=lambda one: one.start))
        return sums

    # --- what is confirmed ---------------------------------------------------------------------

    def set_watermark(self, log: Log, offset: int) -> None:
        """Raise the watermark: readers may have what is below, barriers are answered. It never
        falls. A follower follows its leader's, and the next start begins with it."""
        before = log.high_watermark
        log.ends.move_watermark(offset)
        if log.high_watermark != before:
            self._disk.watermark_moved()

    def decide_retention(self, retire: Callable[[Log, int], Retirement | None]) -> None:
        """Have `retire(log, now_ms)` decide, in each round of retention, what a log drops."""
        self._logs.retire_log = retire

    def retire_below(self, log: Log, start: int) -> None:
        """Remove the whole segments below `start`, which the leader has dropped: all below is
        confirmed. What cannot go now goes with the next round of retention."""
        self.set_watermark(log, start)
        job = log.retire_below(start)
        if job is not None:
            self._disk.remove(log, job)

    def set_floor(self, log: Log, offset: int) -> None:
        """Begin to lead: until the watermark reaches `offset`, readers up to there get nothing and
        no error, and no latest offset is answered."""
        log.lead_from(offset)

    def stop_leading(self) -> None:
        """Fail every wait for something to be confirmed; clients are disconnected already."""
        for log in self._logs:
            log.stop_leading()

    def open_log(self, log: Log) -> None:
        """Write what a new log held: its lineage is durable."""
        log.open_for_appends()
        self._disk.appended(log)
