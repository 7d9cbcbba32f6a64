"""The reader of one broker, driven round by round over a broker that lives in memory."""

import pytest

from kafka2011.coordination.cluster import BrokerAddress
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.protocol.message_set import Codec
from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.books.progress import PartitionKey, TierProgress
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.readers.broker_reader import BrokerReader
from tests.support.clock import ManualClock
from tests.support.waiting import wait_until
from tests.unit.services.audit.samples import (
    SERVER,
    T0,
    WINDOW_MS,
    ScriptedBroker,
    event,
    report,
    totals_of,
)

KEY = PartitionKey("live", PAGE_VIEW, 1, 0)
SECOND = PartitionKey("live", PAGE_VIEW, 1, 1)
ADDRESS = BrokerAddress("broker", 1)
CELL = CellKey(PAGE_VIEW, T0, SERVER)


class Bench:
    """A reader of broker 1 of `live`, its books and its broker."""

    def __init__(self, fetch_bytes: int = 65536) -> None:
        self.clock = ManualClock(T0 + 1000)
        self.state = AuditState(("live", "offline"), WINDOW_MS, self.clock)
        self.broker = ScriptedBroker()
        self.reader = BrokerReader(
            self.state,
            "live",
            1,
            connect=lambda _: self.broker,
            clock=self.clock,
            fetch_bytes=fetch_bytes,
            poll_interval_ms=1,
        )

    def round(self, *partitions: PartitionKey, measure: bool = True) -> bool:
        self.reader.assign(ADDRESS, partitions or (KEY,), first=not measure)
        return self.reader.loop.round()

    @property
    def progress(self) -> TierProgress:
        return self.state.progress_of("live")

    def counted(self, cell: CellKey = CELL) -> int:
        found = self.state.cells().get(cell)
        return found.counted[0] if found else 0


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_messages_are_counted_by_their_window_and_server(bench: Bench) -> None:
    bench.broker.append(PAGE_VIEW, 0, event(1), event(2), event(3, T0 + WINDOW_MS))
    assert bench.round()
    assert bench.counted() == 2
    assert bench.counted(CellKey(PAGE_VIEW, T0 + WINDOW_MS, SERVER)) == 1
    assert bench.state.position(KEY) == len(bench.broker.logs[PAGE_VIEW, 0])
    assert not bench.round()
    assert bench.counted() == 2


def test_monitoring_events_are_the_produced_number_and_no_messages(bench: Bench) -> None:
    bench.broker.append(AUDIT, 0, report(0, [(PAGE_VIEW, T0, 5)]))
    bench.round(PartitionKey("live", AUDIT, 1, 0))
    assert totals_of(bench.state.ledger).produced == [5, 0]
    assert totals_of(bench.state.ledger).counted == [0, 0]


def test_messages_in_wrappers_are_counted_one_by_one(bench: Bench) -> None:
    wrapped = message_set.encode_compressed([event(n) for n in range(10)], Codec.GZIP)
    bench.broker.append_set(PAGE_VIEW, 0, wrapped)
    bench.round()
    assert bench.counted() == 10


def test_messages_without_a_header_are_counted_under_a_name_of_their_own(bench: Bench) -> None:
    bench.broker.append(PAGE_VIEW, 0, b"plain text", event(1))
    bench.round()
    assert bench.counted(CellKey(PAGE_VIEW, -1, "unreadable-header")) == 1
    assert bench.counted() == 1


def test_what_a_fetch_cuts_off_is_read_by_the_next() -> None:
    bench = Bench(fetch_bytes=300)
    bench.broker.append(PAGE_VIEW, 0, *(event(n) for n in range(20)))
    bench.state.set_discovered("live", T0)
    rounds = 0
    while bench.round():
        rounds += 1
        view = bench.progress
        is_read = bench.counted() == 20
        assert view.is_caught_up is is_read
        assert (view.lag_bytes == 0) is is_read
    assert rounds > 3
    assert bench.counted() == 20


def test_a_message_larger_than_the_fetch_size_is_fetched_with_a_larger_one() -> None:
    bench = Bench(fetch_bytes=64)
    bench.broker.append(PAGE_VIEW, 0, event(1), b"x" * 5000, event(2))
    wait_until(lambda: not bench.round() and bench.counted() == 2, "both counted")
    assert bench.counted(CellKey(PAGE_VIEW, -1, "unreadable-header")) == 1


def test_delays_are_those_of_messages_that_came_while_the_partition_was_watched(
    bench: Bench,
) -> None:
    bench.broker.append(PAGE_VIEW, 0, event(1))
    bench.round(measure=False)  # stood there before the service started
    assert bench.state.delays["live"].summary().count == 0
    bench.broker.append(PAGE_VIEW, 0, event(2))
    bench.round(measure=False)
    summary = bench.state.delays["live"].summary()
    assert (summary.count, summary.p50_ms) == (1, 1000)


def test_a_partition_found_later_is_measured_from_its_start(bench: Bench) -> None:
    bench.broker.append(PAGE_VIEW, 0, event(1))
    bench.round(measure=True)
    assert bench.state.delays["live"].summary().count == 1


# --- the end of the log -------------------------------------------------------------------------


def test_the_end_of_a_segment_is_not_the_end_of_the_log(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 5000)
    for number in range(3):
        bench.broker.append(PAGE_VIEW, 0, event(number))
        bench.broker.roll(PAGE_VIEW, 0)
    end = len(bench.broker.logs[PAGE_VIEW, 0])
    for _ in range(2):
        bench.round(measure=False)
        view = bench.progress
        assert view.lag_bytes == end - (bench.state.position(KEY) or 0) > 0
        assert not view.is_caught_up
        assert view.read_to_ms == 0
    bench.round(measure=False)
    assert bench.progress.is_caught_up
    assert bench.progress.read_to_ms == T0 + 1000
    # What stood there before the service started says nothing about delays.
    assert bench.state.delays["live"].summary().count == 0


def test_where_empty_answers_follow_the_end_is_not_requested(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 100_000)
    bench.broker.logs[PAGE_VIEW, 0] = b""
    bench.round()
    for number in range(20):
        bench.broker.append(PAGE_VIEW, 0, event(number))
        bench.clock.advance(100)
        bench.round()
        bench.clock.advance(100)
        bench.round()
        assert bench.progress.read_to_ms == bench.clock()
    assert bench.broker.latest_asked == 0


def test_under_traffic_without_a_pause_the_end_is_requested_twice_a_second(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 100_000)
    for number in range(100):
        bench.broker.append(PAGE_VIEW, 0, event(number))
        bench.round()
        bench.clock.advance(50)
    assert bench.broker.latest_asked == 10
    view = bench.progress
    assert view.is_caught_up
    assert view.read_to_ms >= bench.clock() - 600


def test_a_reader_that_never_gets_to_the_end_says_up_to_when_it_has_read() -> None:
    bench = Bench(fetch_bytes=300)
    bench.state.set_discovered("live", T0 + 100_000)
    bench.broker.append(PAGE_VIEW, 0, *(event(n) for n in range(10)))
    for number in range(60):
        bench.broker.append(PAGE_VIEW, 0, *(event(10 * number + n) for n in range(3)))
        bench.round()
        bench.clock.advance(100)
    view = bench.progress
    assert view.lag_bytes > 0
    assert view.read_to_ms > T0 + 3000


# --- what cannot be read ------------------------------------------------------------------------


def test_what_retention_deleted_before_it_was_read_is_entered_as_unread(bench: Bench) -> None:
    bench.broker.append(PAGE_VIEW, 0, event(1))
    bench.round()
    gone = len(bench.broker.logs[PAGE_VIEW, 0])
    bench.broker.append(PAGE_VIEW, 0, event(2))
    deleted = len(bench.broker.logs[PAGE_VIEW, 0])
    bench.broker.append(PAGE_VIEW, 0, event(3))
    bench.broker.retire(PAGE_VIEW, 0, deleted)
    bench.round()
    bench.round()
    assert bench.counted() == 2
    ((_, unread),) = bench.state.progress.unread
    assert (unread.tier, unread.topic, unread.place) == ("live", PAGE_VIEW, "1-0")
    assert (unread.first, unread.last) == (gone, deleted)
    assert "deleted" in unread.reason


def test_a_log_that_was_replaced_is_read_anew_and_reported(bench: Bench) -> None:
    bench.broker.append(PAGE_VIEW, 0, event(1), event(2))
    bench.round()
    bench.broker.logs[PAGE_VIEW, 0] = message_set.encode([event(3)])
    bench.round()
    bench.round()
    assert bench.counted() == 3
    ((_, unread),) = bench.state.progress.unread
    assert "lost or replaced" in unread.reason


def test_a_damaged_entry_is_left_out_and_reported_and_the_rest_is_counted(bench: Bench) -> None:
    first = len(message_set.encode([event(1)]))
    damaged = bytearray(message_set.encode([event(n) for n in range(1, 4)]))
    damaged[2 * first - 1] ^= 1
    bench.broker.append_set(PAGE_VIEW, 0, bytes(damaged))
    bench.round()
    assert bench.counted() == 2
    ((_, unread),) = bench.state.progress.unread
    assert (unread.first, unread.last) == (first, 2 * first)
    assert bench.state.position(KEY) == len(damaged)


def test_an_impossible_length_stops_its_partition_and_no_other(bench: Bench) -> None:
    good = message_set.encode([event(1)])
    bench.broker.append_set(PAGE_VIEW, 0, good + b"\0\0\0\1" + b"x" * 100)
    bench.broker.append(PAGE_VIEW, 1, event(2))
    for _ in range(3):
        bench.round(KEY, SECOND)
    assert bench.counted() == 2
    assert bench.state.position(KEY) == len(good)
    view = bench.progress
    assert "unreadable from offset" in view.unreachable
    assert any("unreadable from offset" in note for note in bench.state.notes())
    # It is tried again, and when it can be read all is forgotten.
    bench.broker.logs[PAGE_VIEW, 0] = good + message_set.encode([event(3)])
    bench.clock.advance(2000)
    bench.round()
    assert bench.counted() == 3
    assert bench.progress.unreachable == ""


def test_a_partition_that_the_broker_refuses_is_reported_with_its_answer(bench: Bench) -> None:
    bench.broker.append(PAGE_VIEW, 1, event(1))
    bench.round(KEY, SECOND)
    assert bench.counted() == 1
    assert "no such partition" in bench.progress.unreachable


def test_progress_is_the_time_before_the_fetch_that_found_the_end(bench: Bench) -> None:
    bench.broker.append(PAGE_VIEW, 0, event(1))
    bench.state.set_discovered("live", T0 + 5000)
    bench.round()
    assert bench.progress.read_to_ms == T0 + 1000


# --- the thread ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (ConnectionRefusedError("refused"), "live broker 1 does not answer: refused"),
        (ZeroDivisionError("a bug"), "an internal error"),
    ],
)
def test_a_failure_is_reported_and_reading_goes_on_when_it_is_over(
    bench: Bench, failure: Exception, reported: str
) -> None:
    bench.broker.append(PAGE_VIEW, 0, event(1))
    bench.broker.failure = failure
    bench.reader.assign(ADDRESS, [KEY], first=False)
    bench.reader.start()
    try:
        wait_until(lambda: reported in bench.progress.unreachable, "reported as away")
        assert any(reported in note for note in bench.state.notes())
        bench.broker.failure = None
        wait_until(lambda: bench.counted() == 1, "counted")
        wait_until(lambda: not bench.progress.unreachable, "reported as back")
    finally:
        bench.reader.close()
    assert bench.broker.closed


def test_a_broker_that_never_registered_is_reported(bench: Bench) -> None:
    bench.reader.assign(None, [KEY], first=True)
    bench.reader.start()
    try:
        wait_until(lambda: "not registered" in bench.progress.unreachable, "reported")
    finally:
        bench.reader.close()


@pytest.mark.parametrize("fetch_bytes", [100, 333, 65536])
def test_whatever_the_fetch_size_each_message_counts_once(fetch_bytes: int) -> None:
    bench = Bench(fetch_bytes)
    for number in range(50):
        if number % 5:
            bench.broker.append(PAGE_VIEW, 0, event(number))
        else:
            wrapped = message_set.encode_compressed([event(number), event(-number)], Codec.SNAPPY)
            bench.broker.append_set(PAGE_VIEW, 0, wrapped)
        if number % 7 == 0:
            bench.round()
    end = len(bench.broker.logs[PAGE_VIEW, 0])
    wait_until(lambda: not bench.round() and bench.state.position(KEY) == end, "all read")
    assert bench.counted() == 60
