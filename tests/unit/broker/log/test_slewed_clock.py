"""The clock for ages under wall clocks that jump, creep and stand still, and what offsets by time
are then (S20)."""

import os

import pytest

from kafka2011.broker.log.log import Log
from kafka2011.broker.log.retention import by_age
from kafka2011.broker.log.slewed_clock import SlewedClock
from tests.support.clock import ManualClock
from tests.support.logs import entry
from tests.unit.broker.data_directory import DataDirectory, append_and_flush

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class Machine:
    """A wall clock and a timer that pass together until the wall clock is set."""

    def __init__(self) -> None:
        self.wall = ManualClock()
        self.timer = ManualClock(0)
        self.start()

    def start(self) -> None:
        """A process starts: its clock believes the wall clock."""
        self.clock = SlewedClock(self.wall, self.timer)

    def passes(self, elapsed_ms: int, step_ms: int = 1000) -> None:
        for _ in range(elapsed_ms // step_ms):
            self.wall.advance(step_ms)
            self.timer.advance(step_ms)
            self.clock()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_it_is_the_wall_clock_while_that_behaves(machine: Machine) -> None:
    machine.passes(HOUR_MS)
    assert machine.clock() == machine.wall()


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, YEAR_MS, -YEAR_MS])
def test_a_jump_is_given_way_to_by_a_tenth_at_most(machine: Machine, jump_ms: int) -> None:
    true_ms = machine.wall()
    machine.wall.advance(jump_ms)
    assert machine.clock() == true_ms
    machine.passes(HOUR_MS)
    assert HOUR_MS * 9 // 10 <= machine.clock() - true_ms <= HOUR_MS * 11 // 10


def test_it_arrives_at_a_corrected_clock_in_the_end(machine: Machine) -> None:
    machine.wall.advance(60_000)
    machine.passes(11 * 60_000)
    assert abs(machine.clock() - machine.wall()) <= 1


def test_it_never_goes_back(machine: Machine) -> None:
    last = machine.clock()
    for step in range(2000):
        machine.wall.advance((-1) ** step * 7919 * step)
        machine.timer.advance(step % 23)
        now = machine.clock()
        assert now >= last
        last = now


def test_a_wall_clock_that_stands_still_does_not_stop_it(machine: Machine) -> None:
    before = machine.clock()
    for _ in range(3600):
        machine.timer.advance(1000)
        machine.clock()
    assert machine.clock() - before >= HOUR_MS * 9 // 10


@pytest.mark.parametrize("jump_ms", [HOUR_MS, YEAR_MS])
def test_a_jump_deletes_nothing_early(disk: DataDirectory, machine: Machine, jump_ms: int) -> None:
    disk.clock = machine.clock
    logs = disk.open(retention=by_age(2 * HOUR_MS))
    append_and_flush(logs.get_or_create("t", 0), entry(b"one"))
    machine.wall.advance(jump_ms)
    machine.passes(HOUR_MS, 60_000)
    assert logs.retire() == []
    machine.passes(2 * HOUR_MS, 60_000)
    assert len(logs.retire()) == 1


def test_touching_a_file_under_a_running_broker_deletes_nothing(disk: DataDirectory) -> None:
    logs = disk.open(retention=by_age(HOUR_MS))
    log = logs.get_or_create("t", 0)
    append_and_flush(log, entry(b"one"))
    os.utime(log.segments[0].path, (1, 1))
    assert logs.retire() == []


# --- offsets by time -----------------------------------------------------------------------------


class Writer:
    """Writes a segment for each entry and remembers, by the true time, where the log ended."""

    def __init__(self, disk: DataDirectory, machine: Machine) -> None:
        self.disk, self.machine = disk, machine
        self.machine.wall.current_ms = TRUE_MS
        self.true_ms = TRUE_MS
        self.written: list[tuple[int, int]] = []
        self.log = self.start()

    def start(self) -> Log:
        """A broker starts on the directory; the one before it is stopped."""
        self.disk.close()
        self.machine.start()
        self.disk.clock = self.machine.clock
        log = self.disk.log(segment_bytes_max=10, wall=self.machine.wall)
        self.log = log
        return log

    def passes(self, elapsed_ms: int) -> None:
        self.machine.passes(elapsed_ms, min(elapsed_ms, 60_000))
        self.true_ms += elapsed_ms

    def is_paused(self, elapsed_ms: int) -> None:
        """As a virtual machine, which does not notice."""
        self.machine.wall.advance(elapsed_ms)
        self.true_ms += elapsed_ms

    def writes(self, count: int = 1, each_ms: int = 10 * 60_000) -> None:
        for _ in range(count):
            append_and_flush(self.log, entry(b"hello"))
            self.written.append((self.true_ms, self.log.high_watermark))
            self.passes(each_ms)

    def skipped(self) -> list[int]:
        """How much too late the answer is for moments between two writes; negative: too early."""
        off = []
        for (time_ms, end), (next_ms, _) in zip(self.written, self.written[1:], strict=False):
            found = self.log.offsets_before((time_ms + next_ms) // 2, 1)
            start = end - len(entry(b"hello"))
            off.append((found[0] if found else start) - start)
        return off


TRUE_MS = 2**41  # later than this machine's own clock


@pytest.fixture
def writer(disk: DataDirectory, machine: Machine) -> Writer:
    return Writer(disk, machine)


def assert_right(writer: Writer, since: int = 0) -> None:
    """Lookups skip nothing, and read no segment too much of what was written from that write on,
    also after a restart."""
    for _ in range(2):
        off = writer.skipped()
        assert max(off) <= 0
        assert not any(off[since:])
        writer.start()


def test_lookups_are_right_after_a_pause_that_no_timer_counts(writer: Writer) -> None:
    writer.writes(3)
    writer.is_paused(5 * HOUR_MS)
    writer.writes(5)
    writer.writes(each_ms=10 * HOUR_MS)  # the clock for ages is still behind, by less
    writer.writes(2)
    # The one before the pause is finished after it, which may have been when the clock was set.
    assert_right(writer, since=3)


def test_lookups_are_right_once_a_clock_is_right_that_was_behind_at_the_start(
    writer: Writer,
) -> None:
    """As of a machine without a battery, before it has asked for the time."""
    writer.writes(6, HOUR_MS)
    writer.machine.wall.advance(-34 * HOUR_MS)
    log = writer.start()
    writer.passes(60_000)
    writer.machine.wall.advance(34 * HOUR_MS)
    assert not any(writer.skipped())
    writer.writes(5, HOUR_MS)
    assert not any(writer.skipped())
    assert log.offsets_before(writer.true_ms, 1) == [log.high_watermark]
    assert_right(writer)


def test_what_was_written_with_a_clock_behind_is_not_passed_over(writer: Writer) -> None:
    writer.writes(3, HOUR_MS)
    writer.machine.wall.advance(-34 * HOUR_MS)
    writer.start()
    writer.writes(3, 60_000)
    writer.machine.wall.advance(34 * HOUR_MS)
    assert not any(writer.skipped())


def test_lookups_are_right_after_a_start_with_the_clock_ahead_once(writer: Writer) -> None:
    writer.machine.wall.advance(720 * HOUR_MS)
    writer.start()
    writer.writes(3)
    writer.machine.wall.advance(-720 * HOUR_MS)
    writer.start()
    writer.writes(3)
    assert_right(writer)


def test_a_wall_clock_that_was_wrong_for_a_while_makes_readers_skip_nothing(
    writer: Writer,
) -> None:
    for jump_ms in (YEAR_MS, -YEAR_MS):
        writer.writes(2)
        writer.machine.wall.advance(jump_ms)
        writer.writes(each_ms=60_000)
        writer.machine.wall.advance(-jump_ms)
        writer.writes(2)
        assert writer.log.offsets_before(writer.true_ms, 1) == [writer.log.high_watermark]
    assert_right(writer, since=len(writer.written))


def test_a_clock_ahead_that_is_put_right_meanwhile_makes_readers_skip_nothing(
    writer: Writer,
) -> None:
    writer.machine.wall.advance(HOUR_MS)
    log = writer.start()
    writer.writes(3)
    writer.machine.wall.advance(-HOUR_MS)
    writer.writes(3)
    assert log.offsets_before(writer.true_ms, 1) == [log.high_watermark]
    assert_right(writer, since=len(writer.written))
