"""S22. The mark of the flushed end: below it nothing is a torn ending, whatever it looks like."""

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka2011.broker.log import dump, flushed_mark
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.flushed_mark import NAME, Mark, Marks
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.log_manager import LogManager
from tests.support.logs import contents, entry
from tests.unit.broker.data_directory import DataDirectory, append, append_and_flush

E = entry(b"hello")
# Its payload holds sectors of zeros, as a power loss leaves them.
PADDED = entry(b"begin" + bytes(4096) + b"end")
LAST = len(E)  # where PADDED starts behind E


def mark(logs: LogManager) -> OSError | None:
    """Leave the mark as a running broker does; returns what went wrong."""
    job = logs.begin_marking()
    job.run()
    logs.complete_marking(job)
    return job.error


def flushed(disk: DataDirectory, *sets: bytes) -> Log:
    """A log with these sets, flushed and marked."""
    logs = disk.open()
    log = logs.get_or_create("t", 0)
    append_and_flush(log, *sets)
    assert mark(logs) is None
    return log


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("stop", [DataDirectory.crash, DataDirectory.close])
def test_a_flipped_bit_beside_zeros_is_corrupt_below_the_mark_at_every_start(
    disk: DataDirectory, stop: Callable[[DataDirectory], object]
) -> None:
    path = flushed(disk, E, PADDED).segments[0].path
    stop(disk)
    flip(path, LAST + 12)
    damaged = path.read_bytes()
    for _ in range(3):  # what is offline keeps its mark
        log = disk.log()
        assert log.state is LogState.OFFLINE
        assert f"position {LAST}, below position {LAST + len(PADDED)}" in log.state_reason
    assert path.read_bytes() == damaged
    assert disk.quarantined() == []
    assert dump.summary(path).verdict == "corrupt"


def test_the_same_above_the_mark_is_a_torn_ending(disk: DataDirectory) -> None:
    log = flushed(disk, E)
    append(log, PADDED)
    disk.crash()
    flip(log.segments[0].path, LAST + 12)
    assert contents(disk.log()) == E
    assert len(disk.quarantined()) == 1


MISSING: dict[str, tuple[Callable[[Path], object], str]] = {
    "an entry cut": (lambda path: path.write_bytes((E * 3)[:-1]), "cut entry at position 30"),
    "an entry gone": (lambda path: path.write_bytes(E * 2), "the file ends at position 30"),
    "all entries gone": (lambda path: path.write_bytes(b""), "the file ends at position 0"),
    "a tail of zeros": (lambda path: path.write_bytes(E + bytes(30)), "length 0 of entry"),
    "the file gone": (Path.unlink, "has no segments, and was flushed up to offset 45"),
}


@pytest.mark.parametrize(("damage", "reason"), MISSING.values(), ids=MISSING)
def test_flushed_bytes_that_are_missing_never_have_their_offsets_used_again(
    disk: DataDirectory, damage: Callable[[Path], object], reason: str
) -> None:
    path = flushed(disk, E, E, E).segments[0].path
    disk.crash()
    damage(path)
    log = disk.log()
    assert log.state is LogState.OFFLINE
    assert reason in log.state_reason
    assert disk.quarantined() == []


def test_the_newest_segment_may_not_vanish(disk: DataDirectory) -> None:
    logs = disk.open(segment_bytes_max=1)
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E, E)
    disk.close()
    log.segments[-1].path.unlink()
    assert "below position 30" in disk.log().state_reason


def test_a_directory_that_the_operator_removed_begins_anew(disk: DataDirectory) -> None:
    path = flushed(disk, E, E).segments[0].path
    disk.close()
    path.unlink()
    path.parent.rmdir()
    append_and_flush(disk.log(), E)
    assert contents(disk.log()) == E


@pytest.mark.parametrize("kept", [E + PADDED[:-1], E])
def test_the_operator_s_cut_is_accepted(disk: DataDirectory, kept: bytes) -> None:
    path = flushed(disk, E, PADDED).segments[0].path
    disk.close()
    path.write_bytes(kept)
    assert disk.log().state is LogState.OFFLINE
    disk.close()
    assert (dump.truncate_corrupt(path) is None) == (kept == E)
    assert contents(disk.log()) == E


@pytest.mark.parametrize("kind", ["open", "write_at", "sync_file", "replace", "sync_directory"])
def test_a_mark_that_cannot_be_written_fails_no_flush_and_leaves_the_one_before(
    disk: DataDirectory, kind: str
) -> None:
    log = flushed(disk, E)
    logs = disk.open()
    log = logs.get_or_create("t", 0)
    append_and_flush(log, E)
    disk.fail(errno.ENOSPC, kind)
    error = mark(logs)
    assert error is not None
    assert error.errno == errno.ENOSPC
    assert log.state is LogState.ONLINE
    assert flushed_mark.read(FileLayer(), disk.root).end_of("t-0") in (15, 30)
    assert [path.name for path in disk.root.glob("*flushed*")] == [NAME]
    assert mark(logs) is None
    assert flushed_mark.read(FileLayer(), disk.root).end_of("t-0") == 30


def test_the_mark_never_runs_ahead_of_what_a_power_loss_leaves(tmp_path: Path) -> None:
    for seed in range(30):
        disk = DataDirectory(tmp_path / str(seed))
        log = flushed(disk, E, PADDED)
        append(log, PADDED)
        mark(disk.manager)
        disk.power_loss(random.Random(seed))
        assert contents(disk.log()).startswith(E + PADDED)
        disk.close()


def test_marks_survive_their_bytes_and_one_changed_byte_counts_as_none() -> None:
    marks = Marks({"a b-0": Mark(15, 7), "\udc80-1": Mark(2**62, 0)}, 1_300_000_000_000)
    data = marks.to_bytes()
    assert Marks.from_bytes(data) == marks
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        assert Marks.from_bytes(changed) is None
        assert Marks.from_bytes(data[:position]) is None
    assert Marks({"a\nb-0": Mark(1, 1)}).to_bytes() == Marks().to_bytes()


def test_a_damaged_mark_stops_nothing_and_is_replaced(disk: DataDirectory) -> None:
    flushed(disk, E)
    disk.close()
    flip(disk.root / NAME, 3)
    assert contents(disk.log()) == E
    assert flushed_mark.read(FileLayer(), disk.root).end_of("t-0") == 15


def test_a_mark_that_a_crash_left_half_written_is_passed_over(disk: DataDirectory) -> None:
    flushed(disk, E)
    disk.crash()
    (disk.root / f"{NAME}.new").write_bytes(b"half")
    assert contents(disk.log()) == E
    assert [path.name for path in disk.root.glob("*flushed*")] == [NAME]
