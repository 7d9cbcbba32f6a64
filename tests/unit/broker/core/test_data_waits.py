"""Waits for data behind an offset: one call back each, and nothing is left of any of them."""

import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from kafka2011.broker.core.data_waits import DataWait, DataWaits, Waited
from kafka2011.broker.core.errors import TooManyWaits
from kafka2011.broker.log.log import Log
from tests.support.logs import broker_config, entry, partitions_of
from tests.unit.broker.data_directory import DataDirectory, append, append_and_flush

E = entry(b"hello")
FAR_S = 1e9


@dataclass(eq=False)
class Timer:
    """What a loop hands out for a call that is to come."""

    when_s: float
    call: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class LoopOnDemand:
    """A loop's clock, and what it is to call soon or later."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._timers: list[Timer] = []

    def call_at(self, when_s: float, call: Callable[..., object], *arguments: object) -> Timer:
        self._timers.append(Timer(when_s, partial(call, *arguments)))
        return self._timers[-1]

    def call_soon(self, call: Callable[..., object], *arguments: object) -> None:
        self.call_at(self.now_s, call, *arguments)

    def run(self, until_s: float = 0) -> None:
        self.now_s = max(self.now_s, until_s)
        while due := [timer for timer in self._timers if timer.when_s <= self.now_s]:
            self._timers = [timer for timer in self._timers if timer not in due]
            for timer in due:
                if not timer.is_cancelled:
                    timer.call()

    @property
    def timer_count(self) -> int:
        return sum(t.when_s > self.now_s and not t.is_cancelled for t in self._timers)


class Bench:
    """Two logs of one topic, the waits on them, and how they ended."""

    def __init__(self, disk: DataDirectory) -> None:
        self.disk = disk
        self.loop = LoopOnDemand()
        self.waits = DataWaits(self.loop, logs_max=4)
        config = broker_config(disk.root, num_partitions=2)
        self.partitions = partitions_of(config, disk.open(), self.waits)
        self.one = self.partitions.find_or_create("t", 0)
        self.other = self.partitions.find_or_create("t", 1)
        self.ended: list[Waited] = []

    def wait(self, *behind: tuple[Log, int], deadline_s: float = FAR_S) -> DataWait:
        return self.partitions.wait_for_data(dict(behind), deadline_s, self.ended.append)

    def assert_nothing_is_left(self) -> None:
        assert self.waits.log_count == 0
        assert self.loop.timer_count == 0
        for log in (self.one, self.other):
            assert not log.ends._data_waiters


@pytest.fixture
def bench(disk: DataDirectory) -> Bench:
    return Bench(disk)


def test_data_ends_a_wait_when_it_is_durable_and_not_before(bench: Bench) -> None:
    bench.wait((bench.one, 0), (bench.other, 0))
    assert not bench.one.has_flush_waiters, "it asks for no flush"
    append(bench.other, E)
    bench.loop.run()
    assert bench.ended == []
    bench.other.flush()
    assert bench.ended == [], "called back from the loop only"
    bench.loop.run()
    assert bench.ended == [Waited.DATA]
    append_and_flush(bench.one, E)
    bench.loop.run()
    assert bench.ended == [Waited.DATA]
    bench.assert_nothing_is_left()


def test_data_that_is_there_ends_a_wait_at_once_but_from_the_loop(bench: Bench) -> None:
    append_and_flush(bench.one, E)
    bench.wait((bench.one, len(E) - 1))
    bench.wait((bench.other, 0), (bench.one, 0))
    assert bench.ended == []
    bench.loop.run()
    assert bench.ended == [Waited.DATA, Waited.DATA]
    bench.assert_nothing_is_left()


def test_at_the_deadline_a_wait_ends_without_data(bench: Bench) -> None:
    bench.wait((bench.one, 0), (bench.other, 0), deadline_s=101)
    bench.loop.run(until_s=100.5)
    assert bench.ended == []
    bench.loop.run(until_s=101)
    assert bench.ended == [Waited.DEADLINE]
    bench.assert_nothing_is_left()


@pytest.mark.parametrize("already", [False, True])
def test_a_log_that_fails_ends_the_waits_for_it_and_no_others(bench: Bench, already: bool) -> None:
    def fail() -> None:
        bench.disk.fail(errno.EIO, "write_at")
        append(bench.one, E)

    if already:
        fail()
    bench.wait((bench.one, 0), (bench.other, 0))
    healthy = bench.wait((bench.other, 0))
    if not already:
        fail()
    bench.loop.run()
    assert bench.ended == [Waited.FAILED]
    healthy.cancel()
    bench.assert_nothing_is_left()


def test_closing_the_logs_ends_every_wait(bench: Bench) -> None:
    bench.wait((bench.one, 0), (bench.other, 0))
    bench.disk.close()
    bench.loop.run()
    assert bench.ended == [Waited.FAILED]
    bench.assert_nothing_is_left()


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_cancelled_wait_calls_nothing_back(bench: Bench, has_ended: bool) -> None:
    wait = bench.wait((bench.one, 0), (bench.other, 0), deadline_s=101)
    if has_ended:
        append_and_flush(bench.one, E)
    wait.cancel()
    wait.cancel()
    bench.assert_nothing_is_left()
    append_and_flush(bench.other, E)
    bench.loop.run(until_s=200)
    assert bench.ended == []


def test_waits_are_bounded_and_room_comes_back(bench: Bench) -> None:
    held = [bench.wait((bench.one, 0), (bench.other, 0)) for _ in range(2)]
    with pytest.raises(TooManyWaits):
        bench.wait((bench.one, 0))
    held[0].cancel()
    again = bench.wait((bench.one, 0))
    for wait in (held[1], again):
        wait.cancel()
    bench.assert_nothing_is_left()
