"""S21. A clock that is wrong at one start makes nothing older than it is, nor keeps it for ever."""

import pytest

from kafka2011.broker.log.file_times import FileTimes
from kafka2011.broker.log.retention import by_age
from tests.support.clock import ManualClock
from tests.support.logs import entry
from tests.unit.broker.data_directory import DataDirectory, append_and_flush

E = entry(b"hello")
DAY_MS = 24 * 3_600_000
WEEK = {"retention": by_age(7 * DAY_MS)}
# Later than this machine's own clock, which a killed process leaves in its files.
NOW_MS = 2**41


@pytest.fixture
def disk(disk: DataDirectory) -> DataDirectory:
    disk.clock.current_ms = NOW_MS
    return disk


def run(disk: DataDirectory, *, topics: str = "", killed: bool = False, ms: int = 0) -> None:
    """A start that appends to these topics after so much time, then ends."""
    logs = disk.open(**WEEK)
    disk.clock.advance(ms)
    for topic in topics:
        append_and_flush(logs.get_or_create(topic, 0), E)
    job = logs.begin_marking()
    job.run()
    if killed:
        disk.crash()
    else:
        disk.close()


def retired(disk: DataDirectory, ms: int = 0) -> set[str]:
    """The topics that a round of retention takes old data from, so much time after a start."""
    logs = disk.open(**WEEK)
    disk.clock.advance(ms)
    found = set()
    for log, job in logs.retire():
        job.run()
        log.complete_retirement(job)
        found.add(log.topic)
    disk.close()
    return found


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("behind_days", [1, 30, 3000])
def test_a_clock_behind_at_one_start_deletes_nothing_early_and_nothing_late(
    disk: DataDirectory, killed: bool, behind_days: int
) -> None:
    """`a` was written before, `b` before and meanwhile, `c` meanwhile only; then it is right."""
    run(disk, topics="ab")
    disk.clock.advance(-behind_days * DAY_MS)
    run(disk, topics="bc", killed=killed, ms=2 * DAY_MS)
    disk.clock.advance(behind_days * DAY_MS)
    assert retired(disk) == set()
    disk.clock.advance(5 * DAY_MS - 1)
    assert retired(disk) == set()
    disk.clock.advance(2)
    assert retired(disk) == {"a"}
    disk.clock.advance(2 * DAY_MS)
    assert retired(disk) == {"b", "c"}


def test_what_was_only_looked_at_with_a_wrong_clock_keeps_its_time(disk: DataDirectory) -> None:
    run(disk, topics="a")
    path = disk.root / "a-0" / "00000000000000000000.kafka"
    before = path.stat().st_mtime_ns
    for days in (-30, 60, -30):
        disk.clock.advance(days * DAY_MS)
        run(disk)
    assert path.stat().st_mtime_ns == before


def test_an_idle_broker_s_clock_is_remembered(disk: DataDirectory) -> None:
    run(disk, topics="a")
    run(disk, ms=6 * DAY_MS)
    disk.clock.advance(-30 * DAY_MS)
    run(disk, topics="b")
    disk.clock.advance(32 * DAY_MS)
    assert retired(disk) == {"a"}


@pytest.mark.parametrize("ahead_days", [30, 3000])
def test_once_a_clock_ahead_is_right_again_ages_go_on_from_where_they_were(
    disk: DataDirectory, ahead_days: int
) -> None:
    """While it is ahead, old data goes: that is not to be distinguished from a long rest."""
    run(disk, topics="a")
    disk.clock.advance(ahead_days * DAY_MS)
    run(disk, topics="b", ms=DAY_MS)
    disk.clock.advance(-ahead_days * DAY_MS)
    run(disk, topics="c", ms=DAY_MS)
    assert retired(disk, 5 * DAY_MS) == set()
    assert retired(disk, 1) == {"a"}
    assert retired(disk, DAY_MS) == {"b"}
    assert retired(disk, DAY_MS) == {"c"}


def test_a_wall_clock_that_is_put_right_meanwhile_is_what_files_get() -> None:
    clock, wall = ManualClock(NOW_MS), ManualClock(NOW_MS)
    times = FileTimes(clock, wall)
    times.begin(0)
    wall.advance(30 * DAY_MS)
    assert times.to_file(clock() - 5) == wall() - 5
    wall.advance(-60 * DAY_MS)
    assert times.to_file(clock()) == clock()
