import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.events.monitoring import Heartbeat, decode_monitoring, decode_report
from kafka2011.events.topics import AUDIT
from kafka2011.producer import Producer
from kafka2011.protocol.message_set import payloads
from kafka2011.services.frontend.delivery import (
    SET_BYTES_MAX,
    Delivery,
    DeliveryPolicy,
    NotDelivered,
)
from kafka2011.services.frontend.journal import Journal
from tests.support.clock import ManualClock
from tests.support.scripted_server import ScriptedBroker

WINDOW_MS = 1000


class ManualTime:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as running:
        yield running


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path, "frontend-1", WINDOW_MS) as opened:
        opened.begin_run("source", 0, bytes(8))
        yield opened


@pytest.fixture
def producer(server: ScriptedBroker) -> Iterator[Producer]:
    made = Producer(
        broker_list=server.broker_list, connect_timeout_ms=50, max_message_bytes=500_000
    )
    yield made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "_flush", lambda _timeout_ms: ([], ""))
        made.close()


@pytest.fixture
def passing() -> ManualTime:
    return ManualTime()


@pytest.fixture
def delivery(producer: Producer, journal: Journal, passing: ManualTime) -> Delivery:
    return new_delivery(producer, journal, passing)


def new_delivery(
    producer: Producer,
    journal: Journal,
    passing: ManualTime,
    policy: DeliveryPolicy | None = None,
    stopping: threading.Event | None = None,
) -> Delivery:
    return Delivery(
        producer,
        journal,
        service="site",
        clock=ManualClock(5000),
        policy=policy,
        stopping=stopping,
        monotonic=passing,
        sleep=lambda _seconds: None,
    )


def by_topic(server: ScriptedBroker) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for part in server.parts():
        found.setdefault(part.topic, []).extend(payloads(bytes(part.message_set)))
    return found


def reported(server: ScriptedBroker) -> Counter[tuple[str, int]]:
    """Messages by topic and window in the distinct monitoring events that arrived."""
    events = {}
    for payload in by_topic(server).get(AUDIT, []):
        event = decode_monitoring(payload)
        assert events.setdefault(event.identity, event) == event
    totals: Counter[tuple[str, int]] = Counter()
    for event in events.values():
        for cell in event.counts:
            totals[cell.topic, cell.window_start] += cell.count
    return totals


EVENTS = [("a", 1000, b"a1"), ("b", 1999, b"b1"), ("a", 2000, b"a2")]


def test_events_go_out_by_topic_and_are_counted_when_they_are_durable(
    server: ScriptedBroker, journal: Journal, delivery: Delivery
) -> None:
    delivery.send(EVENTS, 3)
    assert delivery.unconfirmed_messages == 3
    assert journal.state.position is None
    delivery.flush()
    assert by_topic(server) == {"a": [b"a1", b"a2"], "b": [b"b1"]}
    assert journal.state.position == 3
    assert delivery.stats.messages == {"a": 2, "b": 1}
    assert delivery.unconfirmed_messages == 0


def test_finish_publishes_what_was_counted_and_the_rest_is_nothing(
    server: ScriptedBroker, journal: Journal, delivery: Delivery
) -> None:
    delivery.send(EVENTS, 3)
    delivery.finish(is_source_finished=True)
    assert reported(server) == {("a", 1000): 1, ("a", 2000): 1, ("b", 1000): 1}
    assert journal.state.is_finished
    assert not journal.state.pending
    assert journal.state.events == []
    event = decode_monitoring(by_topic(server)[AUDIT][0])
    assert (event.header.server, event.header.service) == ("frontend-1", "site")
    assert (event.sequence, event.window_ms, event.header.time_ms) == (0, WINDOW_MS, 5000)
    assert [cell.bytes for cell in event.counts] == [2, 2, 2]
    # The last request of all is a barrier.
    assert server.frames[-1][4:6] == b"\0\4"


def test_tick_makes_the_barrier_and_the_monitoring_event_when_they_are_due(
    server: ScriptedBroker, journal: Journal, delivery: Delivery, passing: ManualTime
) -> None:
    delivery.send(EVENTS, 3)
    assert delivery.tick() == pytest.approx(0.15)
    assert server.barrier_count() == 0
    passing.now += 0.15
    assert delivery.tick() == pytest.approx(0.85)
    assert server.barrier_count() == 1
    passing.now += 0.85
    assert delivery.tick() == pytest.approx(0.15)  # the event is sent, its barrier is to come
    assert journal.state.events
    passing.now += 0.15
    delivery.tick()
    assert journal.state.events == []
    assert delivery.stats.monitoring_events == 1
    passing.now += 10
    delivery.tick()  # nothing new: no event about nothing
    assert delivery.stats.monitoring_events == 1
    assert server.barrier_count() == 2


def test_a_failed_barrier_sends_the_same_bytes_again_and_counts_them_once(
    server: ScriptedBroker, journal: Journal, delivery: Delivery
) -> None:
    server.close_at_barrier = 2
    delivery.send(EVENTS, 3)
    delivery.finish(is_source_finished=True)
    arrived = by_topic(server)
    assert arrived["a"] == [b"a1", b"a2"] * 3
    assert arrived["b"] == [b"b1"] * 3
    assert reported(server) == {("a", 1000): 1, ("a", 2000): 1, ("b", 1000): 1}
    assert delivery.stats.resent_sets == 4
    assert delivery.stats.failed_barriers == 2


def test_a_monitoring_event_whose_barrier_fails_is_repeated_with_its_identity(
    server: ScriptedBroker, journal: Journal, delivery: Delivery
) -> None:
    delivery.send(EVENTS, 3)
    delivery.flush()
    server.close_at_barrier = 1
    delivery.finish(is_source_finished=False)
    repeated = by_topic(server)[AUDIT]
    assert len(repeated) == 2
    assert repeated[0] == repeated[1]
    assert not journal.state.is_finished


def test_unpublished_events_of_an_earlier_life_are_published_first(
    server: ScriptedBroker, producer: Producer, tmp_path: Path, passing: ManualTime
) -> None:
    with Journal(tmp_path, "frontend-1", WINDOW_MS) as journal:
        journal.begin_run("source", 0, bytes(8))
        first = new_delivery(producer, journal, passing)
        first.send(EVENTS, 3)
        first.flush()
        journal.make_events(777)  # and died before it was sent
        journal.sent(4, [])
    with Journal(tmp_path, "frontend-1", WINDOW_MS) as journal:
        second = new_delivery(producer, journal, passing)
        second.send([("a", 1500, b"a3")], 4)
        second.finish(is_source_finished=False)
        assert reported(server) == {("a", 1000): 2, ("a", 2000): 1, ("b", 1000): 1}
        times = [decode_monitoring(p).header.time_ms for p in by_topic(server)[AUDIT]]
        assert times == [777, 5000]


def test_the_source_waits_while_the_buffer_is_full(
    server: ScriptedBroker, producer: Producer, journal: Journal, passing: ManualTime
) -> None:
    delivery = new_delivery(producer, journal, passing, DeliveryPolicy(messages_max=10))
    for number in range(4):
        delivery.send([("a", 1000, b"x")] * 4, number)
        assert delivery.unconfirmed_messages < 10
    assert server.barrier_count() == 1
    by_bytes = new_delivery(producer, journal, passing, DeliveryPolicy(bytes_max=100))
    by_bytes.send([("a", 1000, b"x" * 200)], 9)
    assert by_bytes.unconfirmed_messages == 0


def test_sets_are_bounded_in_number_and_bytes(
    server: ScriptedBroker, producer: Producer, journal: Journal, passing: ManualTime
) -> None:
    delivery = new_delivery(producer, journal, passing, DeliveryPolicy(set_messages_max=4))
    sizes = [1, 1, 1, 1, 1, 200_000, 200_000, 300_000, 5]
    delivery.send([("a", 1000, bytes(size)) for size in sizes], 1)
    delivery.flush()
    sets = [[len(p) for p in payloads(bytes(part.message_set))] for part in server.parts()]
    assert sets == [[1, 1, 1, 1], [1, 200_000], [200_000], [300_000], [5]]
    assert all(sum(found) <= SET_BYTES_MAX or len(found) == 1 for found in sets)


def test_an_event_above_the_limit_is_refused_and_not_counted(
    server: ScriptedBroker, journal: Journal, delivery: Delivery
) -> None:
    delivery.send([("a", 1000, bytes(500_001)), ("a", 1000, b"x")], 2)
    delivery.finish(is_source_finished=False)
    assert by_topic(server)["a"] == [b"x"]
    assert reported(server) == {("a", 1000): 1}
    assert delivery.stats.refused_too_large == 1
    assert journal.state.position == 2


def test_brokers_away_at_the_start_are_waited_for(journal: Journal, passing: ManualTime) -> None:
    with ScriptedBroker() as server:
        address = server.address
    producer = Producer(broker_list=f"0:127.0.0.1:{address[1]}", connect_timeout_ms=1)
    stopping = threading.Event()
    delivery = new_delivery(producer, journal, passing, stopping=stopping)
    delivery.send(EVENTS, 3)
    stopping.set()
    attempts = iter(range(100))

    def later() -> float:
        return 100.0 + next(attempts)  # a second passes at each look

    delivery._monotonic = later
    with pytest.raises(NotDelivered, match="3 messages"):
        delivery.flush()
    assert journal.state.position is None  # the next start sends them
    producer.close(timeout_ms=0)


def test_every_message_of_a_compressed_delivery_arrives(
    server: ScriptedBroker, journal: Journal, passing: ManualTime
) -> None:
    with Producer(broker_list=server.broker_list, compression_codec="1") as producer:
        delivery = new_delivery(producer, journal, passing)
        delivery.send([("a", 1000, b"%d" % n) for n in range(1000)], 1)
        delivery.finish(is_source_finished=True)
    assert by_topic(server)["a"] == [b"%d" % n for n in range(1000)]


def test_heartbeats_go_out_with_nothing_to_send_and_the_last_says_so(
    server: ScriptedBroker, producer: Producer, journal: Journal, passing: ManualTime
) -> None:
    delivery = new_delivery(producer, journal, passing, DeliveryPolicy(heartbeat_interval_ms=5000))
    for _ in range(12):
        assert delivery.tick() <= 1.0
        passing.now += 1.0
    delivery.finish(is_source_finished=True)
    beats = [decode_report(payload) for payload in by_topic(server)[AUDIT]]
    assert all(isinstance(beat, Heartbeat) for beat in beats)
    assert [beat.is_last for beat in beats] == [False, False, False, True]  # type: ignore[union-attr]
    assert {beat.header.server for beat in beats} == {"frontend-1"}
    assert journal.state.events == []
    assert delivery.unconfirmed_messages == 0
