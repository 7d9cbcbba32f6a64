"""The clock for ages under wall clocks that jump, creep and stand still (S20)."""

import os

import pytest

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
