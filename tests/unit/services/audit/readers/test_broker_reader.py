"""The reader of one broker, driven round by round over a scripted broker."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.coordination.cluster import BrokerAddress
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from kafka2011.protocol.message_set import Codec
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.readers.broker_reader import BEYOND_MS, BrokerReader
from tests.support.bombs import BOMBS_COUNT, bombs, bounded_memory
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.services.audit.readers.samples import NO_HEADER, LiveTier
from tests.unit.services.audit.samples import SERVER, T0, WINDOW_MS, event, report, totals_of

KEY = PartitionKey("live", PAGE_VIEW, 1, 0)
SECOND = PartitionKey("live", PAGE_VIEW, 1, 1)


class Bench(LiveTier):
    """With a reader of the broker."""

    def __init__(self, broker: ScriptedBroker, fetch_bytes: int) -> None:
        super().__init__(broker, now_ms=T0 + 1000)
        self.address = BrokerAddress(broker.host, broker.port)
        self.reader = self.make_reader(fetch_bytes=fetch_bytes)

    def round(self, *partitions: PartitionKey, measure: bool = True) -> bool:
        self.reader.assign(self.address, partitions or (KEY,), first=not measure)
        return self.reader.loop.round()


@pytest.fixture
def fetch_bytes() -> int:
    return 65536


@pytest.fixture
def bench(fetch_bytes: int) -> Iterator[Bench]:
    with ScriptedBroker() as broker:
        broker.can_wait = True
        made = Bench(broker, fetch_bytes)
        yield made
        made.reader.close()


@pytest.mark.parametrize(
    ("payloads", "codec", "counts"),
    [
        (
            [event(1), event(2), event(3, T0 + WINDOW_MS)],
            Codec.NONE,
            {(T0, SERVER): 2, (T0 + WINDOW_MS, SERVER): 1},
        ),
        ([event(number) for number in range(10)], Codec.GZIP, {(T0, SERVER): 10}),
        ([b"plain text", event(1)], Codec.NONE, {NO_HEADER: 1, (T0, SERVER): 1}),
    ],
    ids=["windows", "a wrapper", "no header"],
)
def test_messages_are_counted_once_by_their_window_and_server(
    bench: Bench, payloads: list[bytes], codec: Codec, counts: dict[tuple[int, str], int]
) -> None:
    end = bench.append(*payloads, codec=codec)
    assert bench.round()
    assert bench.counts() == counts
    assert bench.state.position(KEY) == end
    assert not bench.round()
    assert bench.counts() == counts


def test_bombs_are_counted_piece_by_piece_in_bounded_memory(bench: Bench) -> None:
    bench.broker.logs[PAGE_VIEW, 0] += bombs() * 2
    end = bench.append(event(1))
    with bounded_memory():
        rounds = 0
        while bench.round():
            rounds += 1
    assert bench.counts() == {(T0, SERVER): 1, NO_HEADER: 2 * BOMBS_COUNT}
    assert bench.state.position(KEY) == end
    assert rounds > 1, "the other partitions come to their turn"


def test_monitoring_events_are_the_produced_number_and_no_messages(bench: Bench) -> None:
    bench.broker.append(AUDIT, 0, [report(0, [(PAGE_VIEW, T0, 5)])])
    bench.round(PartitionKey("live", AUDIT, 1, 0))
    assert totals_of(bench.state.ledger) == ([5, 0], [5, 5], [0, 0])


@pytest.mark.parametrize("fetch_bytes", [300])
def test_what_a_fetch_cuts_off_is_read_by_the_next(bench: Bench) -> None:
    bench.append(*(event(n) for n in range(20)))
    bench.state.set_discovered("live", T0)
    rounds = 0
    while bench.round():
        rounds += 1
        is_read = bench.counted() == 20
        assert bench.progress.is_caught_up is is_read
        assert (bench.progress.lag_bytes == 0) is is_read
    assert rounds > 3
    assert bench.counted() == 20


@pytest.mark.parametrize("fetch_bytes", [64, 100, 333, 65536])
def test_whatever_the_fetch_size_each_message_counts_once(bench: Bench) -> None:
    bench.append(b"x" * 5000)
    for number in range(50):
        if number % 5:
            end = bench.append(event(number))
        else:
            end = bench.append(event(number), event(-number), codec=Codec.SNAPPY)
        if number % 7 == 0:
            bench.round()
    wait_until(lambda: not bench.round() and bench.state.position(KEY) == end, "all read")
    assert bench.counts() == {(T0, SERVER): 60, NO_HEADER: 1}


def test_delays_are_of_messages_that_came_while_the_partition_was_watched(bench: Bench) -> None:
    bench.append(event(1))
    bench.round(measure=False)  # stood there before the service started
    assert bench.measured() == 0
    bench.append(event(2))
    bench.round(measure=False)
    summary = bench.state.delays["live"].summary()
    assert (summary.count, summary.p50_ms) == (1, 1000)


def test_a_pause_of_the_audit_is_no_delay_and_one_of_the_broker_is(bench: Bench) -> None:
    """An audit that was paused for five minutes said that half of all messages took as long."""

    def newest() -> int | None:
        bench.append(event(1, bench.clock() - 200))
        bench.clock.advance(100)
        bench.round()
        return bench.state.delays["live"].summary().max_ms

    bench.round()
    assert newest() == 300
    bench.append(event(2, bench.clock()))
    bench.clock.advance(300_000)
    bench.round()
    assert (sum(bench.counts().values()), newest()) == (2, 300)
    bench.append(event(3, bench.clock()))
    bench.clock.advance(300_000)
    bench.reader.note_silence()  # by the other thread, which goes on first
    bench.round()
    assert (sum(bench.counts().values()), newest()) == (4, 300)
    bench.append(event(4, bench.clock()))
    for _ in range(10):  # it looks, and the broker does not answer
        bench.clock.advance(1_000)
        bench.reader.note_silence()
    bench.round()
    assert bench.state.delays["live"].summary().max_ms == pytest.approx(10_000, rel=0.01)


# --- the end of the log -------------------------------------------------------------------------


def test_the_end_of_a_segment_is_not_the_end_of_the_log(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 5000)
    ends = [bench.append(event(number)) for number in range(3)]
    bench.broker.damage = lambda _, data: data[: ends[0]]  # each in a segment of its own
    for end in ends[:2]:
        bench.round(measure=False)
        assert bench.progress.lag_bytes == ends[2] - end
        assert not bench.progress.is_caught_up
        assert bench.progress.read_to_ms == 0
    bench.round(measure=False)
    assert bench.progress.is_caught_up
    assert bench.progress.read_to_ms == T0 + 1000
    # What stood there before the service started says nothing about delays.
    assert bench.measured() == 0


def test_where_empty_answers_follow_the_end_is_not_requested(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 100_000)
    bench.round()
    for number in range(20):
        bench.append(event(number))
        for _ in range(2):
            bench.clock.advance(100)
            bench.round()
        assert bench.progress.read_to_ms == bench.clock()
    assert bench.broker.barrier_count() == 0


def test_under_traffic_without_a_pause_the_end_is_requested_twice_a_second(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 100_000)
    for number in range(100):
        bench.append(event(number))
        bench.round()
        bench.clock.advance(50)
    assert bench.broker.barrier_count() == 10
    assert bench.progress.is_caught_up
    assert bench.progress.read_to_ms >= bench.clock() - 600


@pytest.mark.parametrize("fetch_bytes", [300])
def test_a_reader_that_never_gets_to_the_end_says_up_to_when_it_has_read(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 100_000)
    bench.append(*(event(n) for n in range(10)))
    for number in range(60):
        bench.append(*(event(10 * number + n) for n in range(3)))
        bench.round()
        bench.clock.advance(100)
    assert bench.progress.lag_bytes > 0
    assert bench.progress.read_to_ms > T0 + 3000


def test_after_the_clock_went_back_the_end_and_the_beginning_are_asked_for_as_before(
    bench: Bench,
) -> None:
    bench.append(event(1))
    bench.round()
    bench.clock.advance(-86_400_000)
    bench.state.set_discovered("live", bench.clock())
    asked = bench.broker.barrier_count()
    bench.append(event(2))
    bench.round()
    assert bench.progress.read_to_ms == bench.clock()
    assert bench.broker.barrier_count() > asked


# --- what cannot be read ------------------------------------------------------------------------


def test_what_retention_deleted_before_it_was_read_is_entered_as_unread(bench: Bench) -> None:
    gone = bench.append(event(1))
    bench.round()
    deleted = bench.append(event(2))
    bench.append(event(3))
    bench.broker.retire(PAGE_VIEW, 0, deleted)
    bench.round()
    bench.round()
    assert bench.counted() == 2
    assert bench.unread()[1:6] == ("live", PAGE_VIEW, "1-0", gone, deleted)
    assert "deleted" in bench.unread().reason


def test_what_retention_deleted_before_the_first_look_is_not_audited(bench: Bench) -> None:
    """From then on that the first messages that are left were made, and a minute."""
    later = [event(number, T0 - 200_000 + number) for number in range(10)]
    bench.append(*(event(number, T0 - 400_000) for number in range(10)))
    first = bench.broker.end(PAGE_VIEW, 0)
    bench.append(*later)
    bench.broker.retire(PAGE_VIEW, 0, first)
    reports = [report(n, [(PAGE_VIEW, T0, 1)], time_ms=T0 - 100_000 + n * 1000) for n in range(4)]
    size = bench.broker.append(AUDIT, 0, reports[:2])
    bench.broker.append(AUDIT, 0, reports[2:])
    bench.broker.retire(AUDIT, 0, size)
    audit = PartitionKey("live", AUDIT, 1, 0)
    for _ in range(4):
        bench.round(KEY, audit)
    retained = bench.state.ledger.retained
    assert retained.from_ms == {
        ("live", PAGE_VIEW): T0 - 200_000 + 9 + 60_000,
        ("live", AUDIT): T0 - 97_000 + 60_000,
    }
    assert bench.state.reports.gaps() == ([], [])
    bench.broker.retire(PAGE_VIEW, 0, bench.append(event(99)))
    bench.append(event(100))
    bench.round(KEY)
    assert retained.from_ms["live", PAGE_VIEW] < T0, "what it did not read in time is another case"


def test_a_log_that_was_replaced_is_read_anew_and_reported(bench: Bench) -> None:
    bench.append(event(1), event(2))
    bench.round()
    bench.broker.logs.clear()
    bench.append(event(3))
    bench.round()
    bench.round()
    assert bench.counted() == 3
    assert "lost or replaced" in bench.unread().reason


def test_a_log_that_is_gone_is_reported_while_nothing_is_written_to_a_new_one(bench: Bench) -> None:
    """A broker answers a fetch of a partition that it does not have with nothing, as at its end."""
    bench.state.set_discovered("live", T0 + 100_000)
    end = bench.append(event(1), event(2))
    bench.round()
    bench.round()
    assert bench.progress.read_to_ms == T0 + 1000
    bench.broker.logs.clear()
    bench.broker.hang_up()  # it was started on an empty disk
    bench.clock.advance(100)
    bench.round()
    assert bench.unread()[1:6] == ("live", PAGE_VIEW, "1-0", end, 0)
    assert "lost or replaced" in bench.unread().reason
    assert bench.progress.read_to_ms == T0 + 1000, "no answer was its end"
    bench.append(event(3), event(4), event(5))
    bench.round()
    assert bench.counted() == 5


@pytest.mark.parametrize("is_grown", [True, False])
def test_a_log_that_was_replaced_and_reaches_to_the_old_offset_is_read_anew(
    bench: Bench, is_grown: bool
) -> None:
    """It has an entry boundary there, too."""
    end = bench.append(event(1), event(2))
    bench.round()
    bench.broker.logs.clear()
    assert bench.append(event(3), event(4)) == end
    if is_grown:
        bench.append(event(5))
    bench.broker.hang_up()
    for _ in range(3):
        bench.round()
    assert bench.counted() == (5 if is_grown else 4)
    assert bench.unread()[1:6] == ("live", PAGE_VIEW, "1-0", end, 0)
    assert "is not what was read there" in bench.unread().reason
    bench.broker.hang_up()
    bench.append(event(6))
    bench.round()
    assert bench.counted() == (6 if is_grown else 5)


def test_the_log_is_the_same_where_retention_deleted_what_was_read(bench: Bench) -> None:
    end = bench.append(event(1))
    bench.round()
    bench.append(event(2))
    bench.broker.retire(PAGE_VIEW, 0, end)
    bench.broker.hang_up()
    bench.round()
    assert bench.counted() == 2


def test_a_set_whose_log_is_another_waits_for_the_election_that_explains_it(bench: Bench) -> None:
    bench.append(event(1), event(2))
    bench.round()
    bench.reader.elected([])
    bench.broker.logs.clear()
    bench.append(event(3), event(4))
    bench.broker.hang_up()
    bench.round()
    assert bench.counted() == 2
    assert "was read of it" in bench.progress.unreachable
    bench.clock.advance(BEYOND_MS)
    for _ in range(3):
        bench.round()
    assert bench.counted() == 4


def test_whether_the_log_is_the_same_is_asked_once_a_connection(bench: Bench) -> None:
    bench.state.set_discovered("live", T0 + 100_000)
    bench.state.begin(KEY, bench.append(event(1)))  # of an earlier run
    for asked in (1, 2):
        for _ in range(5):
            bench.clock.advance(100)
            bench.round()
            assert bench.progress.read_to_ms == bench.clock()
        assert bench.broker.barrier_count() == asked
        bench.broker.hang_up()
    bench.append(event(2))
    bench.round()
    asked = bench.broker.barrier_count()
    bench.round()
    assert bench.broker.barrier_count() == asked, "what was read there shows it, too"


def test_a_damaged_entry_is_left_out_and_reported_and_the_rest_is_counted(bench: Bench) -> None:
    first, second, third = (bench.append(event(number)) for number in range(1, 4))
    bench.broker.logs[PAGE_VIEW, 0][second - 1] ^= 1
    bench.round()
    assert bench.counted() == 2
    assert (bench.unread().first, bench.unread().last) == (first, second)
    assert bench.state.position(KEY) == third


@pytest.mark.parametrize("moved_ms", [2_000, -86_400_000])
def test_an_impossible_length_stops_its_partition_and_no_other(bench: Bench, moved_ms: int) -> None:
    """Whether the clock goes on or back by a day, it is tried again."""
    good = bench.append(event(1))
    log = bench.broker.logs[PAGE_VIEW, 0]
    log += b"\0\0\0\1" + b"x" * 100
    bench.append(event(2), partition=1)
    for _ in range(3):
        bench.round(KEY, SECOND)
    assert bench.counted() == 2
    assert bench.state.position(KEY) == good
    assert "unreadable from offset" in bench.progress.unreachable
    assert any("unreadable from offset" in note for note in bench.state.notes())
    # It is tried again, and when it can be read all is forgotten.
    log[good:] = message_set.encode([event(3)])
    bench.clock.advance(moved_ms)
    bench.round()
    assert bench.counted() == 3
    assert bench.progress.unreachable == ""


def test_a_partition_that_the_broker_refuses_is_reported_with_its_answer(bench: Bench) -> None:
    bench.broker.errors[PAGE_VIEW, 0] = 3
    bench.append(event(1), partition=1)
    bench.round(KEY, SECOND)
    assert bench.counted() == 1
    assert "answered with error 3" in bench.progress.unreachable


# --- the thread ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (ConnectionRefusedError("refused"), "live broker 1 does not answer: refused"),
        (ZeroDivisionError("a bug"), "an internal error"),
    ],
    ids=["away", "a bug"],
)
def test_a_failure_is_reported_and_reading_goes_on_when_it_is_over(
    bench: Bench, failure: Exception, reported: str
) -> None:
    bench.append(event(1))
    bench.failure = failure
    bench.reader.assign(bench.address, [KEY], first=False)
    bench.reader.start()
    wait_until(lambda: reported in bench.progress.unreachable, "reported as away")
    assert any(reported in note for note in bench.state.notes())
    bench.failure = None
    wait_until(lambda: bench.counted() == 1, "counted")
    wait_until(lambda: not bench.progress.unreachable, "reported as back")
    bench.reader.close()
    (connection,) = bench.broker.connections
    wait_until(lambda: connection.fileno() < 0, "disconnected")


def test_a_broker_whose_messages_are_counted_is_not_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question in between was told that all is there, and that the broker does not answer."""
    bench.append(event(1))
    bench.reader.broker_failed(ConnectionRefusedError("refused"))
    seen = []

    def count(*what: Any) -> Any:
        seen.append(bench.progress.unreachable)
        return BrokerReader._count(bench.reader, *what)

    monkeypatch.setattr(bench.reader, "_count", count)
    bench.round()
    assert (seen, bench.counted()) == ([""], 1)


def test_a_broker_that_hangs_is_reported_long_before_its_connection_gives_up(bench: Bench) -> None:
    bench.append(event(1))
    bench.round()
    bench.reader.requesting()
    seen = []
    for passed_ms in (0, 4_999, 1, 60_000):
        bench.clock.current_ms += passed_ms
        bench.reader.note_silence()
        seen.append(bench.progress.unreachable)
    silent = "live broker 1 has not answered a request made at 07:06:41 UTC"
    assert seen == ["", "", silent, silent]
    bench.append(event(2))
    bench.round()
    bench.reader.requesting()
    bench.clock.current_ms -= 86_400_000  # it was a day ahead
    bench.reader.note_silence()
    assert bench.progress.unreachable == ""
    bench.clock.current_ms += 5_000
    bench.reader.note_silence()
    assert bench.progress.unreachable
    bench.round()
    bench.clock.current_ms += 60_000  # it counts what was answered, and asks nothing
    bench.reader.note_silence()
    assert (bench.progress.unreachable, bench.counted()) == ("", 2)


def test_a_broker_that_never_registered_is_reported(bench: Bench) -> None:
    bench.reader.assign(None, [KEY], first=True)
    bench.reader.start()
    wait_until(lambda: "not registered" in bench.progress.unreachable, "reported")
