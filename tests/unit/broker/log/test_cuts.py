"""S23. Cuts of a replica's logs: what goes is in quarantine first, and a crash loses neither."""

import errno
import random
from pathlib import Path

import pytest

from kafka2011.broker.log import dump
from kafka2011.broker.log.cutting import CutJob, CutKind
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.log_cuts import LogCuts, Wanted
from kafka2011.broker.log.quarantine import Quarantine
from kafka2011.broker.log.replica_journal import ReplicaIdentity
from kafka2011.broker.log.tail import CopiedFrom
from tests.support.logs import contents, entry
from tests.unit.broker.data_directory import DataDirectory, append_and_flush, some

A = ReplicaIdentity(1, "a")
SETS = [entry(b"message %d" % number) for number in range(6)]
E = len(SETS[0])
HISTORY = b"".join(SETS)
SHORTER, ANEW, ASIDE = CutKind


def opened(disk: DataDirectory) -> Log:
    """A replica's log with what recovery leaves; segments of two messages."""
    log = disk.log(replica=A, segment_bytes_max=E + 1)
    log.open_for_appends()
    return log


def filled(disk: DataDirectory) -> Log:
    log = opened(disk)
    append_and_flush(log, *SETS)
    log.ends.move_watermark(10**6)
    assert [one.start for one in log.segments] == [0, 2 * E, 4 * E]
    job = disk.manager.begin_marking()
    job.run()
    return log


def cut(disk: DataDirectory, kind: CutKind, offset: int = 0, bytes_max: int = 10**6) -> CutJob:
    """Cut partition 0 of topic `t`."""
    cuts = LogCuts(disk.manager, disk.files, Quarantine(disk.files, disk.quarantine, bytes_max))
    job = cuts.begin({("t", 0): Wanted(kind, offset)})
    job.run()
    cuts.complete(job)
    return job


def kept(disk: DataDirectory) -> bytes:
    """Everything in quarantine, by offset: copies of the history at their places."""
    found = bytearray(len(HISTORY))
    for path in disk.quarantine.rglob("*.kafka"):
        start, data = int(path.stem), path.read_bytes()
        found[start : start + len(data)] = data
    return bytes(found)


@pytest.mark.parametrize("messages", range(7))
def test_a_log_is_cut_at_any_entry_and_goes_on_there(disk: DataDirectory, messages: int) -> None:
    log = filled(disk)
    end = messages * E
    job = cut(disk, SHORTER, end)
    assert (job.error, job.cut_bytes) == (None, len(HISTORY) - end)
    assert (log.flushed_end, log.high_watermark, log.log_end) == (end, end, end)
    assert contents(log) == HISTORY[:end]
    assert kept(disk) == bytes(end) + HISTORY[end:]
    starts = [one.start for one in log.segments]
    assert starts == [start for start in (0, 2 * E, 4 * E) if start < max(end, 1)]
    other = entry(b"other")
    append_and_flush(log, other)
    log.ends.move_watermark(10**6)
    assert contents(log) == HISTORY[:end] + other
    disk.crash()
    assert opened(disk).flushed_end == end + len(other)
    assert some(disk.manager.journal).whole


def test_what_was_cut_is_read_by_the_dump_tool(disk: DataDirectory) -> None:
    filled(disk)
    place = some(cut(disk, SHORTER, 3 * E).quarantined)
    assert place == disk.quarantine / "cut-000001"
    paths = dump.segment_paths(place / "t-0")
    found = [(one.start_offset, one.verdict, one.entry_count) for one in map(dump.summary, paths)]
    assert found == [(3 * E, "clean", 1), (4 * E, "clean", 2)]
    assert [entry.offset for path in paths for entry in dump.entries(path)] == [3 * E, 4 * E, 5 * E]


@pytest.mark.parametrize("offset", [0, 4 * E, 1000])
def test_a_log_begins_anew_at_an_offset(disk: DataDirectory, offset: int) -> None:
    log = filled(disk)
    assert cut(disk, ANEW, offset).error is None
    assert (log.start_offset, log.high_watermark, log.log_end) == (offset, offset, offset)
    assert kept(disk) == HISTORY
    append_and_flush(log, SETS[0])
    disk.crash()
    log = opened(disk)
    assert (log.start_offset, log.flushed_end) == (offset, offset + E)
    assert some(disk.manager.journal).whole


def test_a_log_that_was_not_there_begins_at_an_offset(disk: DataDirectory) -> None:
    disk.open(replica=A)
    assert cut(disk, ANEW, 1000).error is None
    log = some(disk.manager.get("t", 0))
    append_and_flush(log, SETS[0])
    assert (log.start_offset, log.flushed_end, log.is_unopened) == (1000, 1000 + E, False)
    assert not list(disk.quarantine.iterdir())


def test_a_log_that_is_set_aside_comes_back_as_the_same_object(disk: DataDirectory) -> None:
    """Protocols keep it: another would be written to by some, and this one by others."""
    log = filled(disk)
    assert cut(disk, ASIDE).error is None
    assert disk.manager.get("t", 0) is None
    assert disk.manager.topics == set()
    assert not (disk.root / "t-0").exists()
    assert kept(disk) == HISTORY
    assert cut(disk, ANEW, 50).error is None
    assert disk.manager.get("t", 0) is log
    assert cut(disk, ASIDE).error is None
    assert disk.manager.get_or_create("t", 0) is log
    log.open_for_appends()
    append_and_flush(log, SETS[0])
    assert log.flushed_end == E
    disk.crash()
    assert opened(disk).flushed_end == E
    assert some(disk.manager.journal).whole


def test_a_log_that_is_offline_begins_anew(disk: DataDirectory) -> None:
    filled(disk)
    disk.close()
    (disk.root / "t-0" / f"{4 * E:020d}.kafka").write_bytes(SETS[4])
    log = disk.log(replica=A)
    assert log.state is LogState.OFFLINE
    assert cut(disk, ANEW, 7).error is None
    append_and_flush(log, SETS[0])
    assert log.flushed_end == 7 + E


@pytest.mark.parametrize("kind", [ANEW, ASIDE])
def test_a_cut_of_a_log_behind_a_symbolic_link_removes_the_link_alone(
    disk: DataDirectory, kind: CutKind
) -> None:
    """Else the next start would find the new log offline, and what an operator moved elsewhere
    would be gone from there."""
    filled(disk)
    disk.close()
    elsewhere = disk.root.parent / "elsewhere"
    (disk.root / "t-0").rename(elsewhere)
    (disk.root / "t-0").symlink_to(elsewhere)
    assert disk.log(replica=A).state is LogState.OFFLINE
    assert cut(disk, kind, 7).error is None
    assert b"".join(path.read_bytes() for path in sorted(elsewhere.iterdir())) == HISTORY
    assert not list(disk.quarantine.iterdir())
    disk.close()
    assert (disk.root / "t-0").is_dir() == (kind is ANEW)
    assert not (disk.root / "t-0").is_symlink()
    log = opened(disk)
    assert (log.state, log.log_end) == (LogState.ONLINE, 7 if kind is ANEW else 0)


@pytest.mark.parametrize("kind", [ANEW, ASIDE])
def test_a_link_beside_segments_stops_no_cut_and_goes_alone(
    disk: DataDirectory, kind: CutKind
) -> None:
    """One that is named as a segment has taken the partition offline."""
    filled(disk)
    disk.close()
    newest = disk.root / "t-0" / f"{4 * E:020d}.kafka"
    elsewhere = disk.root.parent / "elsewhere"
    newest.rename(elsewhere)
    newest.symlink_to(elsewhere)
    (disk.root / "t-0" / "link").symlink_to("nowhere")
    assert disk.log(replica=A).state is LogState.OFFLINE
    assert cut(disk, kind, 4 * E).error is None
    assert elsewhere.read_bytes() == HISTORY[4 * E :]
    assert kept(disk) == HISTORY[: 4 * E] + bytes(2 * E)
    assert (disk.root / "t-0").exists() == (kind is ANEW)
    assert kind is ASIDE or disk.names() == [newest.name]


def operations_of(disk: DataDirectory, kind: CutKind, offset: int) -> int:
    filled(disk)
    disk.operations()
    cut(disk, kind, offset)
    return len(disk.operations())


@pytest.mark.parametrize(("kind", "offset"), [(SHORTER, 3 * E), (ANEW, 1000), (ASIDE, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_a_cut_that_stops_anywhere_leaves_a_beginning_of_the_log(
    tmp_path: Path, kind: CutKind, offset: int, seed: int
) -> None:
    """An operation fails, then power is lost. Nothing is lost beside: it is in the log, or in
    quarantine. The same cut again comes to the same end."""
    counted = DataDirectory(tmp_path / "count")
    count = operations_of(counted, kind, offset)
    counted.drop()
    rng = random.Random(seed)
    for nth in range(1, count + 2):
        disk = DataDirectory(tmp_path / str(nth))
        filled(disk)
        disk.fail(errno.EIO, nth=nth)
        job = cut(disk, kind, offset)
        disk.files.fault = None
        assert (job.error is None) == (nth > count)
        log = disk.manager.get("t", 0)
        if job.error is not None:
            assert log is not None
            assert log.state is (LogState.FAILED if job.has_begun else LogState.ONLINE)
            assert job.has_begun or contents(log) == HISTORY
        disk.power_loss(rng)
        log = opened(disk)
        assert log.state is LogState.ONLINE, log.state_reason
        assert some(disk.manager.journal).whole
        if log.start_offset == 0:
            log.ends.move_watermark(10**6)
            left = contents(log)
            assert left == HISTORY[: len(left)]
            assert len(left) % E == 0
            assert kind is not SHORTER or len(left) >= offset
            gone = len(left)
        else:
            gone = 0
        assert kept(disk)[gone:] == HISTORY[gone:]
        if kind is not ASIDE:
            assert cut(disk, kind, offset).error is None
            assert some(disk.manager.get("t", 0)).log_end == offset
        disk.drop()


def test_quarantine_keeps_the_newest_cuts_within_its_bound(disk: DataDirectory) -> None:
    log = filled(disk)
    for _ in range(5):
        cut(disk, SHORTER, 4 * E, bytes_max=5 * E)
        append_and_flush(log, *SETS[4:])
    assert sorted(path.name for path in disk.quarantine.iterdir()) == ["cut-000004", "cut-000005"]
    cut(disk, SHORTER, 0, bytes_max=5 * E)
    assert [path.name for path in disk.quarantine.iterdir()] == ["cut-000006"]
    assert kept(disk) == HISTORY, "the newest stays, whatever its size"


@pytest.mark.parametrize("kind", [SHORTER, ASIDE])
def test_a_cut_that_is_tried_again_and_again_pushes_nothing_out_of_quarantine(
    disk: DataDirectory, kind: CutKind
) -> None:
    """A full disk beside a quarantine elsewhere: what each attempt copied is in the log, too."""
    log = filled(disk)
    older = disk.quarantine / "cut-000001" / "t-9" / f"{0:020d}.kafka"
    older.parent.mkdir(parents=True)
    older.write_bytes(HISTORY)
    disk.fail(errno.ENOSPC, "write_at", persistent=True, within=".kafka2011_flushed")
    for _ in range(5):
        job = cut(disk, kind, bytes_max=2 * len(HISTORY))
        assert some(job.error).errno == errno.ENOSPC
        assert (job.has_begun, job.quarantined, log.state) == (False, None, LogState.ONLINE)
    assert [path for path in disk.quarantine.rglob("*") if path.is_file()] == [older]
    log.ends.move_watermark(10**6)
    assert contents(log) == HISTORY
    disk.files.fault = None
    assert cut(disk, kind, bytes_max=2 * len(HISTORY)).error is None
    assert older.exists()
    assert kept(disk) == HISTORY


@pytest.mark.parametrize(("kind", "offset"), [(SHORTER, 3 * E), (ANEW, 1000), (ASIDE, 0)])
def test_a_cut_that_has_begun_goes_on_when_there_is_a_descriptor(
    tmp_path: Path, kind: CutKind, offset: int
) -> None:
    """Every step of it may be the one that finds none."""
    counted = DataDirectory(tmp_path / "count")
    count = operations_of(counted, kind, offset)
    counted.drop()
    has_waited = 0
    for nth in range(1, count + 1):
        disk = DataDirectory(tmp_path / str(nth))
        log = filled(disk)
        cuts = LogCuts(disk.manager, disk.files, Quarantine(disk.files, disk.quarantine))
        disk.fail(errno.EMFILE, "open", "sync_directory", nth=nth)
        job = cuts.begin({("t", 0): Wanted(kind, offset)})
        job.run()
        has_waited += job.is_postponed
        if job.is_postponed:
            assert log.state is LogState.OFFLINE, "while it is being cut"
            job.run()
            assert not job.is_postponed
        cuts.complete(job)
        assert log.state is not LogState.FAILED, log.state_reason
        if job.error is not None:
            assert not job.has_begun
            assert cut(disk, kind, offset).error is None
        gone = offset if kind is SHORTER else 0
        assert kept(disk)[gone:] == HISTORY[gone:]
        if kind is not ASIDE:
            assert some(disk.manager.get("t", 0)).log_end == offset
        disk.drop()
    assert has_waited >= 2


def test_what_an_operator_left_in_quarantine_stops_no_cut_and_stays(
    disk: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(disk)
    assert cut(disk, SHORTER, 4 * E).error is None
    old = disk.quarantine / "cut-000001"
    (old / "README.txt").write_text("looked at")
    (old / "link").symlink_to(disk.root)
    (old / "t-0" / "mine").mkdir()
    (old / "t-0" / "mine" / "note").write_text("looked at")
    (old / "t-0" / "nowhere").symlink_to("nowhere")
    (disk.quarantine / "cut-000002").write_text("no directory")
    (disk.quarantine / "cut-000003").symlink_to(disk.root)
    for number in range(4, 7):
        append_and_flush(log, *SETS[4:])
        job = cut(disk, SHORTER, 4 * E, bytes_max=2 * E)
        assert (job.error, job.quarantined) == (None, disk.quarantine / f"cut-{number:06d}")
    names = sorted(str(path.relative_to(disk.quarantine)) for path in disk.quarantine.rglob("*"))
    assert names == [
        "cut-000001",
        "cut-000001/README.txt",
        "cut-000001/link",
        "cut-000001/t-0",
        "cut-000001/t-0/mine",
        "cut-000001/t-0/mine/note",
        "cut-000002",
        "cut-000003",
        "cut-000006",
        "cut-000006/t-0",
        f"cut-000006/t-0/{4 * E:020d}.kafka",
    ]
    removed = [line for line in caplog.messages if "cut_removed" in line]
    assert len(removed) == 3, "what is left of the first is not removed each time"
    assert kept(disk)[4 * E :] == HISTORY[4 * E :]


def test_marks_collected_before_a_cut_do_not_replace_its_own(disk: DataDirectory) -> None:
    log = filled(disk)
    append_and_flush(log, *SETS)
    before = disk.manager.begin_marking()
    assert cut(disk, SHORTER, E).error is None
    before.run()
    disk.crash()
    assert opened(disk).state is LogState.ONLINE


def test_files_that_cannot_have_a_second_name_are_copied(disk: DataDirectory) -> None:
    """A quarantine on another file system."""
    filled(disk)
    disk.fail(errno.EXDEV, "link", persistent=True)
    assert cut(disk, ASIDE).error is None
    assert kept(disk) == HISTORY


@pytest.mark.parametrize("seed", range(12))
def test_a_roll_that_is_taken_back_survives_a_power_loss(disk: DataDirectory, seed: int) -> None:
    """The removal of the empty segment may come undone, although the one before it has grown."""
    log = opened(disk)
    append_and_flush(log, SETS[0])
    log.append_copied(E, b"", 0, CopiedFrom(E, 1))
    assert [one.start for one in log.segments] == [0, E]
    log.append_copied(E, SETS[1], 1, CopiedFrom(0, 1))
    log.write_gathered()
    disk.power_loss(random.Random(seed))
    log = opened(disk)
    assert log.state is LogState.ONLINE, log.state_reason
    assert log.flushed_end in (E, 2 * E)
    append_and_flush(log, SETS[2])
    disk.crash()
    assert opened(disk).state is LogState.ONLINE
