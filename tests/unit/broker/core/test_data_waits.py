"""Waits for data behind an offset: one call back each, and nothing is left of any of them."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.broker.core.data_waits import DataWait, DataWaits, Waited
from kafka2011.broker.core.errors import TooManyWaits
from kafka2011.broker.core.partitions import Partitions
from kafka2011.broker.log.log import Log
from kafka2011.broker.log.log_manager import LogManager
from tests.support.faulty_files import Fault, FaultyFileLayer
from tests.support.logs import broker_config, entry, manager, partitions_of

E = entry(b"hello")
FAR_S = 1e9


class LoopOnDemand:
    """A loop's clock, its timers and what it is to call soon."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._soon: list[tuple[object, tuple[object, ...]]] = []
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []
        self._real = asyncio.new_event_loop()

    def call_soon(self, call: object, *arguments: object) -> None:
        self._soon.append((call, arguments))

    def call_at(self, when_s: float, call: object, *arguments: object) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when_s, call, arguments, self._real)  # type: ignore[arg-type]
        self._timers.append((when_s, timer))
        return timer

    def run(self, until_s: float | None = None) -> None:
        self.now_s = until_s or self.now_s
        for when_s, timer in self._timers:
            if when_s <= self.now_s and not timer.cancelled():
                timer._run()
        soon, self._soon = self._soon, []
        for call, arguments in soon:
            call(*arguments)  # type: ignore[operator]

    @property
    def timer_count(self) -> int:
        return sum(not timer.cancelled() and when > self.now_s for when, timer in self._timers)

    def close(self) -> None:
        self._real.close()


class Bench:
    """Two logs of one topic, the waits on them, and how they ended."""

    def __init__(self, root: Path) -> None:
        self.files = FaultyFileLayer(root)
        self.logs: LogManager = manager(root / "logs", self.files)
        self.loop = LoopOnDemand()
        self.waits = DataWaits(self.loop, logs_max=4)
        config = broker_config(root, num_partitions=2)
        self.partitions: Partitions = partitions_of(config, self.logs, self.waits)
        self.one = self.partitions.find_or_create("t", 0)
        self.other = self.partitions.find_or_create("t", 1)
        self.ended: list[Waited] = []

    def wait(self, *behind: tuple[Log, int], deadline_s: float = FAR_S) -> DataWait:
        return self.partitions.wait_for_data(dict(behind), deadline_s, self.ended.append)

    def append(self, log: Log) -> None:
        log.append(E, 1, 0)

    def assert_nothing_is_left(self) -> None:
        assert self.waits.log_count == 0
        assert self.loop.timer_count == 0
        for log in (self.one, self.other):
            assert not log._data_waiters


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.files.fault = None
    made.logs.close()
    made.loop.close()


def test_data_ends_a_wait_when_it_is_durable_and_not_before(bench: Bench) -> None:
    bench.wait((bench.one, 0), (bench.other, 0))
    bench.append(bench.other)
    bench.other.write_gathered()
    bench.loop.run()
    assert bench.ended == []
    bench.other.flush()
    assert bench.ended == [], "called back from the loop only"
    bench.loop.run()
    assert bench.ended == [Waited.DATA]
    bench.append(bench.one)
    bench.one.flush()
    bench.loop.run()
    assert bench.ended == [Waited.DATA]
    bench.assert_nothing_is_left()


def test_data_that_is_there_ends_a_wait_at_once_but_from_the_loop(bench: Bench) -> None:
    bench.append(bench.one)
    bench.one.flush()
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


def test_a_wait_asks_for_no_flush(bench: Bench) -> None:
    bench.wait((bench.one, 0))
    assert not bench.one.has_flush_waiters


@pytest.mark.parametrize("already", [False, True])
def test_a_log_that_fails_ends_the_waits_for_it_and_no_others(bench: Bench, already: bool) -> None:
    def fail() -> None:
        bench.files.fault = Fault(1, errno.EIO, ("write_at",))
        bench.append(bench.one)
        bench.one.write_gathered()

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
    bench.logs.close()
    bench.loop.run()
    assert bench.ended == [Waited.FAILED]
    bench.assert_nothing_is_left()


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_cancelled_wait_calls_nothing_back(bench: Bench, has_ended: bool) -> None:
    wait = bench.wait((bench.one, 0), (bench.other, 0), deadline_s=101)
    if has_ended:
        bench.append(bench.one)
        bench.one.flush()
    wait.cancel()
    wait.cancel()
    bench.assert_nothing_is_left()
    bench.append(bench.other)
    bench.other.flush()
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
