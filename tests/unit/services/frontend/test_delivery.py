import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.coordination import paths
from kafka2011.events.monitoring import Heartbeat, decode_monitoring, decode_report
from kafka2011.events.topics import AUDIT
from kafka2011.events.windows import WindowCount
from kafka2011.producer import NotDurable, Producer
from kafka2011.producer.counting.journal import Journal
from kafka2011.protocol.message_set import payloads
from kafka2011.protocol.requests import OffsetsRequest
from kafka2011.services.frontend.delivery import Delivery, DeliveryPolicy, NotDelivered
from tests.support.clock import ManualClock
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker

WINDOW_MS = 1000
EVENTS = [("a", 1000, b"a1"), ("b", 1999, b"b1"), ("a", 2000, b"a2")]
COUNTED = {("a", 1000): 1, ("a", 2000): 1, ("b", 1000): 1}


class Frontend:
    """A broker, a producer and a journal. `now_s` is the time; each look at it takes `look_s`."""

    def __init__(self, server: ScriptedBroker, directory: Path) -> None:
        self.server = server
        self.now_s = 100.0
        self.look_s = 0
        self.stopping = threading.Event()
        self.producer = self.connected()
        self.journal = Journal(directory, "frontend-1", WINDOW_MS)
        self.journal.begin_run("source", 0, bytes(8))

    def connected(self, **properties: str) -> Producer:
        return Producer(
            broker_list=self.server.broker_list,
            connect_timeout_ms=50,
            max_message_bytes=500_000,
            **properties,
        )

    def delivery(self, keyed: Producer | None = None, **policy: int) -> Delivery:
        return Delivery(
            self.producer,
            self.journal,
            keyed=keyed,
            service="site",
            clock=ManualClock(5000),
            policy=DeliveryPolicy(**policy),
            stopping=self.stopping,
            monotonic=self._look,
            sleep=lambda _seconds: None,
        )

    def _look(self) -> float:
        self.now_s += self.look_s
        return self.now_s

    def arrived(self) -> dict[str, list[bytes]]:
        """The payloads of each topic."""
        found: dict[str, list[bytes]] = {}
        for part in self.server.parts():
            found.setdefault(part.topic, []).extend(payloads(bytes(part.message_set)))
        return found

    def reported(self) -> Counter[tuple[str, int]]:
        """Messages by topic and window in the distinct monitoring events that arrived."""
        events = {}
        for event in map(decode_report, self.arrived()[AUDIT]):
            if isinstance(event, Heartbeat):
                continue
            assert events.setdefault(event.identity, event) == event
        totals: Counter[tuple[str, int]] = Counter()
        for event in events.values():
            for cell in event.counts:
                totals[cell.topic, cell.window_start] += cell.count
        return totals


@pytest.fixture
def frontend(tmp_path: Path) -> Iterator[Frontend]:
    with ScriptedBroker() as server:
        made = Frontend(server, tmp_path)
        yield made
        made.journal.close()
        with contextlib.suppress(NotDurable):
            made.producer.close(timeout_ms=0)


def test_events_go_out_by_topic_and_are_counted_when_they_are_durable(frontend: Frontend) -> None:
    delivery = frontend.delivery()
    delivery.send(EVENTS, 3)
    assert (delivery.unconfirmed_messages, frontend.journal.state.position) == (3, None)
    delivery.flush()
    assert (delivery.unconfirmed_messages, frontend.journal.state.position) == (0, 3)
    assert frontend.arrived() == {"a": [b"a1", b"a2"], "b": [b"b1"]}
    assert delivery.stats.messages == {"a": 2, "b": 1}


@pytest.mark.parametrize("failures", [0, 2])
def test_a_failed_barrier_sends_the_same_bytes_again_and_counts_them_once(
    frontend: Frontend, failures: int
) -> None:
    frontend.server.close_at_barrier = failures
    delivery = frontend.delivery()
    delivery.send(EVENTS, 3)
    delivery.finish(is_source_finished=True)
    arrived = frontend.arrived()
    assert arrived["a"] == [b"a1", b"a2"] * (1 + failures)
    assert arrived["b"] == [b"b1"] * (1 + failures)
    assert frontend.reported() == COUNTED
    state = frontend.journal.state
    assert (state.is_finished, bool(state.pending), state.events) == (True, False, [])
    assert delivery.stats.resent_sets == 2 * failures
    assert delivery.stats.failed_barriers == failures
    # The last request of all is a barrier.
    assert frontend.server.frames[-1][4:6] == b"\0\4"


def test_a_monitoring_event_says_what_is_durable_and_from_where(frontend: Frontend) -> None:
    delivery = frontend.delivery()
    delivery.send(EVENTS, 3)
    delivery.finish(is_source_finished=True)
    event = decode_monitoring(frontend.arrived()[AUDIT][0])
    assert (event.header.server, event.header.service) == ("frontend-1", "site")
    assert (event.sequence, event.window_ms, event.header.time_ms) == (0, WINDOW_MS, 5000)
    assert [cell.bytes for cell in event.counts] == [2, 2, 2]


def test_tick_makes_barriers_and_monitoring_events_when_they_are_due(frontend: Frontend) -> None:
    delivery = frontend.delivery()
    delivery.send(EVENTS, 3)
    # Seconds that pass before a tick -> seconds until the next, barriers, events to be published.
    for passed_s, due_s, barriers, events in [
        (0, 0.15, 0, 0),
        (0.15, 0.85, 1, 0),
        (0.85, 0.15, 1, 1),  # the event is sent, its barrier is to come
        (0.15, 0.85, 2, 0),
        (10, 1, 2, 0),  # nothing new: no event about nothing
    ]:
        frontend.now_s += passed_s
        assert delivery.tick() == pytest.approx(due_s)
        assert frontend.server.barrier_count() == barriers
        assert len(frontend.journal.state.events) == events
    assert delivery.stats.monitoring_events == 1


def test_a_monitoring_event_is_repeated_with_its_identity(frontend: Frontend) -> None:
    delivery = frontend.delivery()
    delivery.send(EVENTS, 3)
    delivery.flush()
    frontend.server.close_at_barrier = 1
    delivery.finish(is_source_finished=False)
    first, second = frontend.arrived()[AUDIT]
    assert first == second
    assert not frontend.journal.state.is_finished
    assert frontend.journal.state.is_stopped
    delivery.send(EVENTS, 6)
    delivery.flush()
    assert not frontend.journal.state.is_stopped


def test_unpublished_events_of_an_earlier_life_are_published_first(
    frontend: Frontend, tmp_path: Path
) -> None:
    first = frontend.delivery()
    first.send(EVENTS, 3)
    first.flush()
    frontend.journal.make_events(777, 500_000)  # and died before it was sent
    frontend.journal.sent(4, [])
    frontend.journal.close()
    frontend.journal = Journal(tmp_path, "frontend-1", WINDOW_MS)
    second = frontend.delivery()
    second.send([("a", 1500, b"a3")], 4)
    second.finish(is_source_finished=False)
    assert frontend.reported() == COUNTED | {("a", 1000): 2}
    times = [decode_monitoring(p).header.time_ms for p in frontend.arrived()[AUDIT]]
    assert times == [777, 5000]


def test_monitoring_events_are_within_the_largest_message(frontend: Frontend) -> None:
    topics = [f"{number:0255}" for number in range(3_000)]
    frontend.journal.sent(1, [WindowCount(topic, 0, 1, 1) for topic in topics])
    frontend.delivery().finish(is_source_finished=False)
    assert max(map(len, frontend.arrived()[AUDIT])) <= 500_000
    assert frontend.reported() == {(topic, 0): 1 for topic in topics}


def test_the_source_waits_while_the_buffer_is_full(frontend: Frontend) -> None:
    delivery = frontend.delivery(messages_max=10)
    for number in range(4):
        delivery.send([("a", 1000, b"x")] * 4, number)
        assert delivery.unconfirmed_messages < 10
    assert frontend.server.barrier_count() == 1
    by_bytes = frontend.delivery(bytes_max=100)
    by_bytes.send([("a", 1000, b"x" * 200)], 9)
    assert by_bytes.unconfirmed_messages == 0


def test_sets_are_bounded_in_number_and_bytes(frontend: Frontend) -> None:
    delivery = frontend.delivery(set_messages_max=4)
    sizes = [1, 1, 1, 1, 1, 200_000, 200_000, 300_000, 5]
    delivery.send([("a", 1000, bytes(size)) for size in sizes], 1)
    delivery.flush()
    parts = frontend.server.parts()
    sets = [[len(payload) for payload in payloads(bytes(part.message_set))] for part in parts]
    assert sets == [[1, 1, 1, 1], [1, 200_000], [200_000], [300_000], [5]]


def test_an_event_above_the_limit_is_refused_and_not_counted(frontend: Frontend) -> None:
    delivery = frontend.delivery()
    delivery.send([("a", 1000, bytes(500_001)), ("a", 1000, b"x")], 2)
    delivery.finish(is_source_finished=False)
    assert frontend.arrived()["a"] == [b"x"]
    assert frontend.reported() == {("a", 1000): 1}
    assert delivery.stats.refused_too_large == 1
    assert frontend.journal.state.position == 2


def test_brokers_away_at_the_start_are_waited_for(frontend: Frontend) -> None:
    frontend.server.close()
    delivery = frontend.delivery()
    delivery.send(EVENTS, 3)
    frontend.stopping.set()
    frontend.look_s = 1
    with pytest.raises(NotDelivered, match="3 messages"):
        delivery.flush()
    assert frontend.journal.state.position is None  # the next start sends them


def test_inputs_that_come_in_an_outage_are_journalled_in_it(frontend: Frontend) -> None:
    """And are in what is journalled behind it: this process may end right then."""
    frontend.journal.sent(["old"], [])
    frontend.server.close_at_barrier = 1
    frontend.stopping.set()  # so that it pauses by the `sleep` given here
    delivery = Delivery(
        frontend.producer,
        frontend.journal,
        service="site",
        clock=ManualClock(5000),
        stopping=frontend.stopping,
        with_new_files=lambda position: [*position, "new"],
        sleep=lambda _seconds: stored.append(frontend.journal.state.position),
    )
    stored: list[object] = []
    delivery.send(EVENTS, ["old", "read on"])
    delivery.flush()
    assert [*stored, frontend.journal.state.position] == [["old", "new"], ["old", "read on", "new"]]


@pytest.mark.parametrize("stops_after_s", [0.0, 1.0, 9.5])
def test_a_stop_is_over_in_time_also_when_a_barrier_is_under_way(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch, stops_after_s: float
) -> None:
    """A broker that takes everything and says nothing: each barrier waits for all of its time."""
    stopped_at_s = frontend.now_s + stops_after_s

    def flush(timeout_ms: int) -> None:
        frontend.now_s += timeout_ms / 1000
        if frontend.now_s >= stopped_at_s:
            frontend.stopping.set()
        raise NotDurable([], "no response")

    monkeypatch.setattr(frontend.producer, "flush", flush)
    delivery = frontend.delivery(barrier_timeout_ms=10_000, stop_timeout_ms=10_000)
    delivery.send(EVENTS, 3)
    if not stops_after_s:
        frontend.stopping.set()
    with pytest.raises(NotDelivered, match="3 messages"):
        delivery.flush()
    assert frontend.now_s - stopped_at_s <= 12.6, "the supervisor waits for 15 s"


def test_every_message_of_a_compressed_delivery_arrives(frontend: Frontend) -> None:
    messages = [b"%d" % number for number in range(1000)]
    with frontend.connected(compression_codec="1") as frontend.producer:
        delivery = frontend.delivery()
        delivery.send([("a", 1000, message) for message in messages], 1)
        delivery.finish(is_source_finished=True)
    assert frontend.arrived()["a"] == messages


def test_heartbeats_go_out_with_nothing_to_send_and_the_last_says_so(frontend: Frontend) -> None:
    delivery = frontend.delivery(heartbeat_interval_ms=5000)
    for _ in range(12):
        assert delivery.tick() <= 1.0
        frontend.now_s += 1.0
    delivery.finish(is_source_finished=True)
    beats = [decode_report(payload) for payload in frontend.arrived()[AUDIT]]
    assert [(type(beat), beat.header.server, beat.is_last) for beat in beats] == [  # type: ignore[union-attr]
        (Heartbeat, "frontend-1", is_last) for is_last in (False, False, False, True)
    ]
    assert frontend.journal.state.events == []
    assert delivery.unconfirmed_messages == 0


def test_heartbeats_are_of_another_instance_once_something_was_sent_again(
    frontend: Frontend,
) -> None:
    """So that a group that counts knows why there is more than was reported."""

    def instances() -> list[str]:
        reports = map(decode_report, frontend.arrived().get(AUDIT, []))
        return [each.instance for each in reports if isinstance(each, Heartbeat)]

    frontend.journal.stopped()
    own = frontend.journal.state.instance
    delivery = frontend.delivery(heartbeat_interval_ms=5000)
    delivery.tick()
    delivery.flush()
    assert instances() == [own]
    frontend.server.close_at_barrier = 1
    delivery.send(EVENTS, 3)
    delivery.flush()
    delivery.tick()  # at once, not after the interval
    delivery.finish(is_source_finished=True)
    assert instances() == [own, f"{own}+5000", f"{own}+5000"]
    assert frontend.reported() == COUNTED
    # A process that died may have sent what its journal does not have.
    frontend.journal.begin_run("other", 0)
    again = frontend.delivery(heartbeat_interval_ms=5000)
    again.finish(is_source_finished=False)
    assert instances()[-1] == f"{own}+5000"


def test_events_with_keys_go_to_their_partition_and_after_a_failure_to_the_one_of_then(
    frontend: Frontend,
) -> None:
    """A barrier fails while the topic gets a third partition. What has no key goes its own way."""
    registry = InMemoryZooKeeper().client()
    registry.start()
    address = f"x-1-1:{frontend.server.host}:{frontend.server.port}"
    registry.create(f"{paths.BROKER_IDS}/0", address.encode())
    topic = f"{paths.topic_path('k')}/0"
    registry.create(topic, b"2")
    keyed = Producer(registry=registry, connect_timeout_ms=50)
    delivery = frontend.delivery(keyed)
    events = [("k", 1000, b"k%d" % key) for key in range(4)] + [("u", 1000, b"u")]

    def grow() -> None:
        if registry.get(topic).value == b"2":
            registry.put(topic, b"3")
            registry.create(f"{paths.topic_path('k')}/9", b"0")  # the watch is on the children

    frontend.server.close_at_barrier = 1
    frontend.server.on_offsets = grow
    delivery.send(events, 5, [*range(4), None])
    assert delivery.unconfirmed_messages == 5
    delivery.flush()
    found: dict[tuple[str, int], list[bytes]] = {}
    for part in frontend.server.parts():
        name = (part.topic, part.partition)
        found.setdefault(name, []).extend(payloads(bytes(part.message_set)))
    assert found == {
        ("k", 0): [b"k0", b"k2", b"k0", b"k3"],
        ("k", 1): [b"k1", b"k3", b"k1"],
        ("k", 2): [b"k2"],
        ("u", -1): [b"u", b"u"],
    }
    assert delivery.stats.messages == {"k": 4, "u": 1}
    assert delivery.stats.keyed_bytes == {0: 4 * (10 + 2)}  # each once, however often it was sent
    assert (delivery.unconfirmed_messages, delivery.stats.failed_barriers) == (0, 1)
    keyed.close()
    registry.close()


def test_events_of_a_key_that_are_sent_again_stay_in_order(frontend: Frontend) -> None:
    """A barrier fails while no broker is known for what came since the last one."""
    registry = InMemoryZooKeeper().client()
    registry.start()
    broker = f"{paths.BROKER_IDS}/0"
    address = f"x-1-1:{frontend.server.host}:{frontend.server.port}".encode()
    registry.create(broker, address)
    registry.create(f"{paths.topic_path('k')}/0", b"1")
    keyed = Producer(registry=registry, connect_timeout_ms=50)
    delivery = frontend.delivery(keyed)
    delivery.send([("k", 1000, b"first")], 1, [7])
    registry.delete(broker)
    delivery.send([("k", 1000, b"second")], 2, [7])
    frontend.server.close_at_barrier = 1
    frontend.server.on_offsets = lambda: registry.exists(broker) or registry.create(broker, address)
    delivery.flush()
    assert frontend.arrived()["k"] == [b"first", b"first", b"second"]
    keyed.close()
    registry.close()


def test_a_broker_that_hangs_is_found_by_all_connections_in_one_round(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what has no key waits for a deadline of its own, behind that of the keys."""
    registry = InMemoryZooKeeper().client()
    registry.start()
    address = f"x-1-1:{frontend.server.host}:{frontend.server.port}"
    registry.create(f"{paths.BROKER_IDS}/0", address.encode())
    registry.create(f"{paths.topic_path('k')}/0", b"1")
    barriers: list[int] = []

    def goes_on(_pause_s: float) -> None:
        requests = frontend.server.requests()
        barriers.append(sum(isinstance(each, OffsetsRequest) for each in requests))
        frontend.server.is_silent = False

    monkeypatch.setattr(frontend.stopping, "wait", goes_on)  # before the next round
    frontend.server.is_silent = True
    with Producer(registry=registry, connect_timeout_ms=50) as keyed:
        delivery = frontend.delivery(keyed, barrier_timeout_ms=300)
        delivery.send([("k", 1000, b"k"), ("u", 1000, b"u")], 2, [1, None])
        delivery.flush()
    assert barriers == [2]
    assert delivery.stats.failed_barriers == 1
    assert delivery.stats.messages == {"k": 1, "u": 1}
    registry.close()
