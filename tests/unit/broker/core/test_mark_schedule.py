"""When the mark of the flushed ends is written: soon after a flush, and not with every one."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka2011.broker.core.mark_schedule import (
    FLUSHED_BYTES_MAX,
    IDLE_INTERVAL_S,
    INTERVAL_S,
    MarkSchedule,
)
from tests.unit.broker.data_directory import DataDirectory


class Bench:
    """A schedule on a loop whose time the test moves, with jobs that end when it says so."""

    def __init__(self, disk: DataDirectory) -> None:
        self.now_s = 1000.0
        self.due: dict[Any, tuple[float, Callable[[], None]]] = {}
        self.running: list[Callable[[], None]] = []
        self.count = 0
        self.schedule = MarkSchedule(disk.open(), self, self.run)
        self.schedule.start()

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        class Timer:
            cancel = staticmethod(lambda: self.due.pop(timer, None))

        timer = Timer()
        self.due[timer] = (self.now_s + delay_s, callback)
        return timer

    def run(self, job: Any, done: Callable[[Any], None]) -> None:
        self.count += 1
        job.run()
        self.running.append(lambda: done(job))

    def finish(self) -> None:
        self.running.pop()()

    def passes(self, elapsed_s: float) -> None:
        self.now_s += elapsed_s
        for timer, (at_s, callback) in list(self.due.items()):
            if at_s <= self.now_s:
                del self.due[timer]
                callback()


@pytest.fixture
def bench(disk: DataDirectory) -> Bench:
    return Bench(disk)


def test_the_first_flush_is_marked_at_once_and_those_of_the_next_second_together(
    bench: Bench,
) -> None:
    bench.schedule.flushed(10)
    assert bench.count == 1
    bench.finish()
    for _ in range(5):
        bench.schedule.flushed(10)
    assert bench.count == 1
    bench.passes(INTERVAL_S)
    assert bench.count == 2


def test_many_bytes_are_marked_before_the_second_is_over(bench: Bench) -> None:
    bench.schedule.flushed(10)
    bench.finish()
    bench.schedule.flushed(FLUSHED_BYTES_MAX - 1)
    assert bench.count == 1
    bench.schedule.flushed(1)
    assert bench.count == 2


def test_what_is_flushed_while_a_mark_is_written_gets_another(bench: Bench) -> None:
    bench.schedule.flushed(10)
    bench.schedule.flushed(FLUSHED_BYTES_MAX)
    assert bench.count == 1
    bench.finish()
    assert bench.count == 2


def test_without_a_flush_it_is_written_for_its_time_only(bench: Bench) -> None:
    bench.schedule.flushed(0)
    bench.passes(IDLE_INTERVAL_S - 1)
    assert bench.count == 0
    bench.passes(1)
    bench.finish()
    bench.passes(IDLE_INTERVAL_S)
    assert bench.count == 2


def test_none_begins_after_the_stop(bench: Bench) -> None:
    bench.schedule.flushed(10)
    bench.schedule.flushed(10)
    bench.schedule.stop()
    bench.finish()
    bench.schedule.flushed(10)
    bench.passes(IDLE_INTERVAL_S)
    assert bench.count == 1
