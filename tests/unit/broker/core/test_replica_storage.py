"""The disk of a replica's machine: copies, the journal in order, new logs, what is confirmed."""

import errno
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest

from kafka2011.broker.core.replica_storage import CutResult, ReplicaStorage
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.copy_check import Checked, check_copied
from kafka2011.broker.log.disk_jobs import Retirement
from kafka2011.broker.log.errors import (
    CopyDamaged,
    CopyMisplaced,
    PartitionError,
    StorageFailed,
    StorageFull,
)
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.replica_journal import NAME as JOURNAL
from kafka2011.broker.log.replica_journal import ReplicaIdentity
from kafka2011.broker.log.tail import CopiedFrom
from kafka2011.broker.replication.copies import Copy
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.protocol.lineage import LEAST
from tests.support.logs import contents, entry
from tests.unit.broker.data_directory import DataDirectory, append, append_and_flush, some

E = entry(b"hello")
A = ReplicaIdentity(1, "a")


class Disk:
    """The scheduler's part: what it was asked for."""

    def __init__(self) -> None:
        self.dirty: list[Log] = []
        self.marks = 0

    def appended(self, log: Log) -> None:
        self.dirty.append(log)

    def request_flush(self, log: Log) -> None:
        self.dirty.append(log)

    def watermark_moved(self) -> None:
        self.marks += 1

    def remove(self, log: Log, job: Retirement) -> None:
        job.run()
        log.complete_retirement(job)

    def run(self) -> None:
        dirty, self.dirty = self.dirty, []
        for log in dirty:
            log.flush()


class Loop:
    """Calls what threads hand in when the test says so."""

    def __init__(self) -> None:
        self.calls: Queue[tuple[Callable[..., object], tuple[object, ...]]] = Queue()
        self.later: list[Callable[..., object]] = []

    def call_soon_threadsafe(
        self, call: Callable[..., object], *what: object, context: Any
    ) -> None:
        del context
        self.calls.put((call, what))

    def call_soon(self, call: Callable[..., object], *what: object) -> None:
        self.calls.put((call, what))

    def call_later(self, delay_s: float, call: Callable[..., object]) -> None:
        assert delay_s > 0
        self.later.append(call)

    def run_one(self) -> None:
        call, what = self.calls.get(timeout=60)
        call(*what)


class Appender:
    failed = 0

    def append_failed(self, topic: str, error: PartitionError) -> None:
        del topic, error
        self.failed += 1


class Watched:
    """An observer; what it saw, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def log_written(self, log: Log) -> None:
        self.seen.append(("written", log.name, log.written_end))

    def log_flushed(self, log: Log) -> None:
        self.seen.append(("flushed", log.name, log.flushed_end))

    def log_made(self, log: Log) -> None:
        self.seen.append(("made", log.name))

    def log_failed(self, log: Log) -> None:
        self.seen.append(("failed", log.name))


class Bench:
    def __init__(self, disk: DataDirectory) -> None:
        self.files = disk.files
        self.logs = disk.open(replica=A)
        self.loop, self.disk, self.watched = Loop(), Disk(), Watched()
        self.refusals: list[Exception] = []
        self.storage = ReplicaStorage(self.logs, self.disk, self.loop, disk.files)  # type: ignore[arg-type]
        self.storage.watch(self.watched)

    def log(self) -> Log:
        """Partition 0 of topic `t`, open."""
        log = self.logs.get_or_create("t", 0)
        self.storage.open_log(log)
        return log

    def copy(self, log: Log, offset: int, data: bytes, start: int = 0) -> None:
        checked = check_copied(data, 1000)
        copied = CopiedFrom(start, 77_000)
        self.storage.append_copied(log, offset, data, checked, copied, refused=self.refusals.append)


@pytest.fixture
def bench(disk: DataDirectory) -> Iterator[Bench]:
    made = Bench(disk)
    yield made
    made.storage.close()


def test_copies_are_what_recovery_left(disk: DataDirectory, bench: Bench) -> None:
    append_and_flush(bench.log(), E, E)
    bench.storage.set_watermark(bench.log(), len(E))
    bench.storage.write_journal(3, True, {"t-0": ((1, 0), (3, 500))}, lambda _: None)
    bench.loop.run_one()
    again = Bench(disk).storage
    assert again.copies() == {"t-0": Copy(0, len(E), 2 * len(E), 2 * len(E), ((1, 0),))}
    assert again.journal.accepted == 3
    assert again.log("t-0") is not None
    assert again.log("t-1") is again.log("t") is None
    again.close()


def test_journals_are_durable_one_after_the_other(disk: DataDirectory, bench: Bench) -> None:
    answers: list[OSError | None] = []
    for accepted in (1, 2):
        bench.storage.write_journal(accepted, True, {}, answers.append)
    assert answers == [], "never called from inside"
    bench.loop.run_one()
    assert bench.storage.journal.accepted == 1
    bench.loop.run_one()
    assert answers == [None, None]
    disk.fail(errno.EIO, "sync_file", within=JOURNAL)
    bench.storage.write_journal(3, True, {}, answers.append)
    bench.loop.run_one()
    assert some(answers[2]).errno == errno.EIO
    assert bench.storage.journal.accepted == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [(errno.ENOSPC, "write_at"), (errno.EMFILE, "open"), (errno.ENFILE, "sync_directory")],
)
def test_a_journal_waits_for_room_or_a_descriptor_and_the_newest_is_written(
    disk: DataDirectory, bench: Bench, error: int, kind: str
) -> None:
    answers: list[tuple[int, OSError | None]] = []

    def write(accepted: int) -> None:
        bench.storage.write_journal(
            accepted, True, {}, lambda error: answers.append((accepted, error))
        )

    disk.fail(error, kind, within=JOURNAL if kind != "sync_directory" else "")
    write(1)
    bench.loop.run_one()
    write(2)
    assert (answers, bench.storage.journal.accepted) == ([], 0)
    disk.files.fault = None
    bench.loop.later.pop()()
    bench.loop.run_one()
    assert answers == [(1, None), (2, None)]
    assert bench.storage.journal.accepted == 2
    assert (bench.loop.later, bench.loop.calls.empty()) == ([], True)


def test_copies_that_find_no_room_are_told_and_come_again(
    disk: DataDirectory, bench: Bench
) -> None:
    log = bench.log()
    bench.copy(log, 0, E)
    bench.disk.run()
    disk.fail(errno.ENOSPC, "write_at", within="t-0")
    bench.copy(log, len(E), E)
    bench.disk.run()
    assert [type(error) for error in bench.refusals] == [StorageFull]
    assert (log.state, log.log_end) == (LogState.ONLINE, len(E))
    disk.files.fault = None
    bench.copy(log, len(E), E)
    bench.disk.run()
    assert log.flushed_end == 2 * len(E)
    assert len(bench.refusals) == 1


def test_a_new_segment_that_finds_no_room_is_told(disk: DataDirectory, bench: Bench) -> None:
    log = bench.log()
    bench.copy(log, 0, E)
    bench.copy(log, len(E), E, start=len(E))  # held until the first is flushed
    disk.fail(errno.ENOSPC, "open", within="t-0")
    bench.disk.run()
    assert [type(error) for error in bench.refusals] == [StorageFull]
    assert (log.state, log.log_end, log.is_held) == (LogState.ONLINE, len(E), False)


def test_a_follower_keeps_no_more_than_its_leader(disk: DataDirectory, bench: Bench) -> None:
    log = bench.log()
    for number in range(3):
        bench.copy(log, number * len(E), E, start=number * len(E))
        bench.disk.run()
        bench.disk.run()
    assert bench.logs.retire() == [], "a replica's own policy removes nothing"
    bench.storage.retire_below(log, 2 * len(E))
    assert (log.start_offset, log.high_watermark) == (2 * len(E), 2 * len(E))
    assert disk.names() == [f"{2 * len(E):020d}.kafka"]
    assert bench.storage.copies()["t-0"].start == 2 * len(E)


def test_a_new_log_takes_nothing_before_it_is_opened(bench: Bench) -> None:
    log = bench.logs.get_or_create("t", 0)
    outcome: list[bool] = []
    assert log.append(E, 1, 0) == len(E)
    assert log.is_held
    assert log.room_bytes < 0
    barrier = Barrier(outcome.append)
    log.when_written(len(E), barrier)
    barrier.seal()
    log.flush()
    assert (log.written_end, outcome) == (0, [])
    bench.storage.open_log(log)
    bench.disk.run()
    assert outcome == [True]
    assert bench.watched.seen == [
        ("made", "t-0"),
        ("written", "t-0", len(E)),
        ("flushed", "t-0", len(E)),
    ]


def test_a_new_log_that_was_not_opened_is_when_the_replica_leads_again(bench: Bench) -> None:
    log = bench.logs.get_or_create("t", 0)
    log.append(E, 1, 0)
    bench.storage.stop_leading()
    bench.storage.set_floor(log, 0)
    append_and_flush(log, E)
    assert log.flushed_end == len(E)


def test_what_is_flushed_is_shown_once_it_is_confirmed(bench: Bench) -> None:
    log = bench.log()
    append_and_flush(log, E, E)
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    log.when_confirmed(2 * len(E), barrier)
    barrier.seal()
    bench.storage.set_watermark(log, len(E))
    assert (contents(log), outcome, bench.disk.marks) == (E, [], 1)
    bench.storage.set_watermark(log, 10**6)
    bench.storage.set_watermark(log, 0)
    assert (contents(log), outcome, bench.disk.marks) == (E + E, [True], 2)


def test_barriers_that_are_cancelled_leave_nothing(bench: Bench) -> None:
    """While nothing can be confirmed clients ask again and again."""
    log = bench.log()
    append_and_flush(log, E)
    for _ in range(3):
        barrier = Barrier(lambda _: None)
        log.when_confirmed(len(E), barrier)
        barrier.seal()
        barrier.cancel()
    assert not log.ends._confirm_waiters


def test_a_leadership_that_ends_fails_what_waits(bench: Bench) -> None:
    log = bench.log()
    append_and_flush(log, E)
    bench.storage.set_floor(log, len(E))
    assert log.read(len(E), 10) is None
    outcome: list[bool] = []
    barrier = Barrier(outcome.append)
    log.when_confirmed(len(E), barrier)
    barrier.seal()
    bench.storage.stop_leading()
    assert outcome == [False]


def test_a_leadership_that_ends_takes_nothing_that_waits_for_a_new_segment(bench: Bench) -> None:
    """The disk hangs: the replica follows by now when its flush ends. What was written then would
    stand where the next leader's bytes go, under that one's epoch."""
    log = bench.log()
    append(log, E)
    flush = some(log.begin_flush())
    log._roll_limit = 0
    appender = Appender()
    append(log, E, appender=appender)
    assert log.is_held
    bench.storage.stop_leading()
    flush.run()
    log.complete_flush(flush)
    log.flush()
    assert (log.log_end, log.written_end, appender.failed) == (len(E), len(E), 1)
    bench.copy(log, len(E), E + E)
    log.flush()
    assert log.flushed_end == 3 * len(E)


def test_copies_roll_where_the_leader_has_rolled(bench: Bench) -> None:
    log = bench.log()
    bench.copy(log, 0, E + E)
    bench.copy(log, 2 * len(E), E, start=2 * len(E))
    assert log.is_held, "until the old segment is flushed"
    bench.copy(log, 3 * len(E), E, start=2 * len(E))
    while log.flush_wanted or log.has_gathered:
        bench.disk.run()
    assert [(one.start, one.size, one.time_ms) for one in log.segments] == [
        (0, 2 * len(E), 77_000),
        (2 * len(E), 2 * len(E), 77_000),
    ]
    piece = some(bench.storage.read_written(log, 2 * len(E), 1000))
    assert (piece.segment_start, piece.time_ms, piece.region.count) == (
        2 * len(E),
        77_000,
        2 * len(E),
    )
    piece.region.release()


@pytest.mark.parametrize(("offset", "start"), [(1, 0), (0, 5)])
def test_copies_that_do_not_fit_are_refused(bench: Bench, offset: int, start: int) -> None:
    log = bench.log()
    with pytest.raises(CopyMisplaced):
        bench.copy(log, offset, E, start)
    assert log.log_end == 0


def test_a_plan_is_carried_out_once_all_is_flushed(disk: DataDirectory, bench: Bench) -> None:
    log = bench.log()
    log.append(E + E, 2, 0)
    results: list[CutResult] = []
    steps = {
        "t-0": Step(Action.CUT, len(E), ()),
        "t-1": Step(Action.ANEW, 70, ()),
        "t-2": Step(Action.ASIDE, 0, ()),
        "t-3": Step(Action.KEEP, 5, ()),
    }
    bench.storage.cut_logs(steps, results.append)
    assert (results, log.state) == ([], LogState.ONLINE)
    bench.disk.run()
    bench.loop.run_one()
    assert log.state is LogState.OFFLINE, "while it is being cut"
    bench.loop.run_one()
    assert results == [CutResult(None, disk.quarantine / "cut-000001", len(E))]
    assert (log.state, log.log_end) == (LogState.ONLINE, len(E))
    bench.copy(log, len(E), E)
    assert some(bench.storage.log("t-1")).start_offset == 70
    assert sorted(bench.storage.copies()) == ["t-0", "t-1"]


def test_a_plan_that_finds_no_descriptor_goes_on_later(disk: DataDirectory, bench: Bench) -> None:
    """Nothing else waits for it meanwhile."""
    log = bench.log()
    append_and_flush(log, E + E)
    results: list[CutResult] = []
    disk.fail(errno.EMFILE, "open", within="t-0", nth=2)  # behind the copy
    bench.storage.cut_logs({"t-0": Step(Action.CUT, len(E), ())}, results.append)
    bench.loop.run_one()
    bench.loop.run_one()
    assert (results, log.state, len(bench.loop.later)) == ([], LogState.OFFLINE, 1)
    bench.storage.write_journal(3, True, {}, lambda _: None)
    bench.loop.run_one()
    assert bench.storage.journal.accepted == 3
    bench.loop.later.pop()()
    bench.loop.run_one()
    assert [result.error for result in results] == [None]
    assert (log.state, log.log_end) == (LogState.ONLINE, len(E))


def test_a_plan_for_a_log_that_has_failed_is_not_begun(disk: DataDirectory, bench: Bench) -> None:
    log = bench.log()
    append(log, E)
    disk.fail(errno.EIO, "sync_data")
    results: list[CutResult] = []
    bench.storage.cut_logs({"t-0": Step(Action.CUT, 0, ())}, results.append)
    bench.disk.run()
    bench.loop.run_one()
    assert isinstance(results[0].error, StorageFailed)
    assert bench.watched.seen[-1] == ("failed", "t-0")


def test_copies_are_whole_entries() -> None:
    assert check_copied(b"", 100) == Checked(0, 0)
    assert check_copied(E + E + E[:-1], 100) == Checked(2 * len(E), 2)
    assert check_copied(E[:3], 100) == Checked(0, 0)
    for damaged in (E[:-1] + b"!", b"\xff" * 20, E + b"\0\0\0\1\0", entry(bytes(200))[:50]):
        with pytest.raises(CopyDamaged):
            check_copied(damaged, 100)


def test_who_wrote_what_retention_has_taken_is_forgotten_at_the_next_start(
    disk: DataDirectory,
) -> None:
    """But for 64 epochs, of which readers may know."""
    disk.put(E, 1000)
    lineage = tuple((epoch, epoch) for epoch in range(1, 200))
    bench = Bench(disk)
    bench.storage.write_journal(200, True, {"t-0": lineage}, lambda _: None)
    bench.loop.run_one()
    bench.storage.close()
    disk.close()
    bench = Bench(disk)
    assert bench.storage.copies()["t-0"].lineage == lineage[-LEAST:]
    bench.storage.close()
