"""A producer that counts: what is reported is stored, whatever breaks, and the goodbye says what
the last report was."""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.consumer.counting.reported import Reported
from kafka2011.coordination.paths import broker_id_path
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.monitoring import Heartbeat, MonitoringEvent, decode_report
from kafka2011.events.topics import AUDIT
from kafka2011.producer import BrokerUnreachable, NotDurable, Part, Producer, SetPart
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.counting import sent_counts
from kafka2011.protocol import message_set
from kafka2011.protocol.compression import Codec
from kafka2011.runtime.config import ConfigError
from tests.support.memory_zookeeper import InMemoryRegistry
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import DEADLINE_S, wait_until
from tests.unit.producer.support import register
from tests.unit.services.audit.samples import T0, WINDOW_MS, event

TOPIC = "page-view"
SERVER = "frontend-1"  # of the samples' events


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as found:
        yield found


@pytest.fixture(autouse=True)
def _reports_by_hand(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The thread reports at the end alone, but where a test is about it."""
    if "by_itself" not in request.node.name:
        monkeypatch.setattr(sent_counts, "PUBLISH_INTERVAL_S", 3600.0)


Make = Callable[..., Producer[bytes]]


@pytest.fixture
def make(broker: ScriptedBroker, tmp_path: Path) -> Iterator[Make]:
    made: list[Producer[bytes]] = []

    def producer(**settings: Any) -> Producer[bytes]:
        usual: dict[str, Any] = {
            "broker_list": broker.broker_list,
            "audit_enable": True,
            "audit_dir": tmp_path / "counts",
            "audit_server": SERVER,
            "window_ms": WINDOW_MS,
            "event_forms": FORMS_2011,
            "queue_time_ms": 10,
        }
        made.append(Producer(**{**usual, **settings}))
        return made[-1]

    yield producer
    for one in made:
        with contextlib.suppress(NotDurable):
            one.close(0)


def reports(broker: ScriptedBroker) -> list[MonitoringEvent | Heartbeat]:
    data = b"".join(log for (topic, _), log in broker.logs.items() if topic == AUDIT)
    return [decode_report(payload) for payload in message_set.payloads(data)] if data else []


def reported(broker: ScriptedBroker) -> Counter[tuple[str, int]]:
    """(topic, window) -> messages, of the distinct monitoring events."""
    events = {one.identity: one for one in reports(broker) if isinstance(one, MonitoringEvent)}
    totals: Counter[tuple[str, int]] = Counter()
    for one in events.values():
        assert one.header.server == SERVER
        for cell in one.counts:
            totals[cell.topic, cell.window_start] += cell.count
    return totals


def goodbyes(broker: ScriptedBroker) -> list[Heartbeat]:
    return [one for one in reports(broker) if isinstance(one, Heartbeat) and one.is_last]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_everything_that_is_sent_is_reported_by_window_with_a_goodbye(
    broker: ScriptedBroker, make: Make, kind: str
) -> None:
    events = [event(n, T0 + n * WINDOW_MS // 4) for n in range(12)]
    with make(producer_type=kind) as producer:
        for payload in events[:4]:  # one by one: the fast path of a single message
            producer.send(TOPIC, payload)
        producer.send(TOPIC, events[4:8])
        producer.send_parts([Part(TOPIC, events[8:9]), Part("login", events[9:10])])
        if kind == "sync":
            producer.send_set(TOPIC, message_set.encode(events[10:11]))
            producer.send_sets([SetPart(TOPIC, -1, message_set.encode(events[11:]))], broker_id=0)
        else:
            producer.send(TOPIC, events[10:])
        producer.send(TOPIC, b"without a header")
        producer.send(TOPIC, event(99, T0, server="another"))
        producer.flush()
    start = T0 - T0 % WINDOW_MS
    expected = Counter((TOPIC, start + n // 4 * WINDOW_MS) for n in range(12) if n != 9)
    expected["login", start + 2 * WINDOW_MS] += 1
    assert reported(broker) == expected
    last = max(one.sequence for one in reports(broker) if isinstance(one, MonitoringEvent))
    assert [one.last_sequence for one in goodbyes(broker)] == [last]


def test_json_is_counted_by_the_fields_that_are_named(broker: ScriptedBroker, make: Make) -> None:
    def sale(number: int, server: str = SERVER) -> bytes:
        return json.dumps({"at": T0 + number * WINDOW_MS, "host": server}).encode()

    with make(
        event_forms="*:2011,sales:json,notes:json",
        event_time_field="sales:at",
        event_server_field="sales:host",
    ) as producer:
        producer.send("sales", [sale(0), sale(0), sale(1), sale(1, "another"), b"poison"])
        producer.send("notes", sale(0))
        producer.flush()
    assert reported(broker) == {("sales", T0): 2, ("sales", T0 + WINDOW_MS): 1}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_it_reports_by_itself_without_a_flush_of_the_application(
    broker: ScriptedBroker, make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_counts, "PUBLISH_INTERVAL_S", 0.01)
    producer = make(producer_type=kind)
    producer.send(TOPIC, event(1, T0))
    wait_until(lambda: reported(broker).total() == 1, "the report of one message")
    producer.close()


@pytest.mark.parametrize("codec", Codec)
def test_reports_are_within_the_largest_message(
    broker: ScriptedBroker, make: Make, codec: Codec
) -> None:
    events = [event(n, T0 + n * WINDOW_MS) for n in range(500)]
    with make(max_message_bytes=2_000, compression_codec=codec) as producer:
        for payload in events:
            producer.send(TOPIC, payload)
        producer.flush()
    assert reported(broker).total() == 500
    assert len(goodbyes(broker)) == 1


def test_parts_for_other_brokers_than_one_that_is_gone_are_counted(
    broker: ScriptedBroker, make: Make, registry: InMemoryRegistry, gone: ScriptedBroker
) -> None:
    """No flush names a loss then: without counts nothing would excuse what is stored."""
    register(registry, 0, broker.address, **{TOPIC: 1})
    register(registry, 1, gone.address, **{TOPIC: 1})
    producer = make(broker_list=(), registry=registry, connect_timeout_ms=10)
    some, others = [event(1, T0), event(2, T0)], [event(3, T0)]
    for parts in ([Part(TOPIC, some, 0), Part(TOPIC, others, 1)], [Part(TOPIC, others, 1)]):
        with pytest.raises(BrokerUnreachable):
            producer.send_parts(parts)
    registry.delete(broker_id_path(1))
    producer.close()
    assert message_set.payloads(broker.log(TOPIC)) == some
    assert reported(broker).total() == len(some)


@pytest.mark.parametrize("codec", Codec)
def test_of_a_list_that_goes_in_several_requests_those_before_a_failure_are_counted(
    broker: ScriptedBroker, make: Make, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    producer = make(
        request_bytes_max=4_096, request_unpacked_bytes_max=4_096, compression_codec=codec
    )
    real_send, calls = BrokerConnection.send, iter(range(3))

    def send(*given: Any, **tail: bytes) -> None:
        if next(calls) == 2:
            raise BrokerUnreachable("a test says so")
        real_send(*given, **tail)

    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnection, "send", send)
        with pytest.raises(BrokerUnreachable):
            producer.send(TOPIC, [event(n, T0) for n in range(200)])
    producer.flush()
    stored = [one for part in broker.parts() for one in message_set.payloads(part.message_set)]
    producer.close()
    assert 0 < reported(broker).total() == len(stored) < 200


def test_what_a_failed_flush_names_is_not_counted_and_the_next_is_another_instance(
    broker: ScriptedBroker, make: Make
) -> None:
    producer = make()
    producer.send(TOPIC, event(1, T0))
    producer.flush()
    producer.send(TOPIC, event(2, T0))
    broker.close_at_barrier = 1
    with pytest.raises(NotDurable):
        producer.flush()
    producer.send(TOPIC, event(2, T0))
    producer.flush()
    producer.close()
    assert reported(broker).total() == 2
    beats = [one.instance for one in reports(broker) if isinstance(one, Heartbeat)]
    assert len(set(beats)) == 2, "the audit is to expect copies, as after a restart"
    with make() as later:
        later.send(TOPIC, event(3, T0))
    first, second = (one.instance for one in goodbyes(broker))
    assert first == second, "a clean stop goes on counting"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_went_to_another_broker_than_one_that_fails_is_counted(
    broker: ScriptedBroker, make: Make, registry: InMemoryRegistry, kind: str
) -> None:
    """It is durable, and no flush names it, so that it was counted nowhere for good."""
    with ScriptedBroker() as other:
        for number, one in enumerate((broker, other)):
            register(registry, number, one.address, **{TOPIC: 1})
        producer = make(
            broker_list=(), registry=registry, producer_type=kind, partitioner=lambda key, _: key
        )
        for number in range(5):
            producer.send(TOPIC, event(number, T0), key=0)
        producer.send(TOPIC, [event(5, T0), event(6, T0)], key=1)
        if kind == "sync":
            producer.send_parts([Part(TOPIC, [event(7, T0)], 0), Part(TOPIC, [event(8, T0)], 1)])
        other.close_at_barrier = 1
        producer._confirm(10_000)
        with pytest.raises(NotDurable) as lost:
            producer.flush()
        assert {part.broker for part in lost.value.unconfirmed} == {f"{other.host}:{other.port}"}
        registry.delete(broker_id_path(1))
        producer.close()
        stored = message_set.payloads(broker.log(TOPIC))
        assert reported(broker).total() == len(stored) == (6 if kind == "sync" else 5)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_went_over_the_connection_after_one_that_broke_is_counted(
    broker: ScriptedBroker, make: Make, kind: str
) -> None:
    """As through a load balancer, which has one address for all brokers."""
    producer = make(producer_type=kind)
    producer.send(TOPIC, event(1, T0))
    producer.flush()
    producer.send(TOPIC, event(2, T0))
    if kind == "sync":
        connection = producer._connections.of(broker.address)
    else:
        (queue,) = producer._queues.by_address.values()
        connection = queue._connection
        wait_until(lambda: queue.stats.sent == 2, "the second is sent")
    connection.disconnect()
    producer.send(TOPIC, [event(3, T0), event(4, T0)])
    producer._confirm(10_000)
    with pytest.raises(NotDurable) as lost:
        producer.flush()
    assert [part.sends for part in lost.value.unconfirmed] == [1]
    producer.close()
    assert reported(broker).total() == 3


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_batch_that_is_sent_again_as_a_whole_is_reported_once(
    broker: ScriptedBroker, make: Make, registry: InMemoryRegistry, kind: str
) -> None:
    """What of it is durable, on another broker, the application cannot know; reported twice it
    would look like a loss beside copies."""
    with ScriptedBroker() as other:
        for number, one in enumerate((broker, other)):
            register(registry, number, one.address, **{TOPIC: 1})
        producer = make(
            broker_list=(), registry=registry, producer_type=kind, partitioner=lambda key, _: key
        )
        batch = [event(number, T0) for number in range(6)]
        for barriers_that_fail in (1, 0):
            for number, payload in enumerate(batch):
                producer.send(TOPIC, payload, key=number % 2)
            other.close_at_barrier = barriers_that_fail
            with contextlib.suppress(NotDurable):
                producer.flush()
        producer.close()
        logs = [one.log(TOPIC) for one in (broker, other)]
        assert [len(message_set.payloads(log)) for log in logs] == [6, 6]
        assert sum(reported(one).total() for one in (broker, other)) == 6


def test_where_the_application_flushes_the_producer_makes_no_flush_of_its_own(
    broker: ScriptedBroker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would count a part of a batch that may be sent again as a whole."""
    producer = make()
    counts = producer._counts
    assert counts is not None
    own: list[int] = []
    monkeypatch.setattr(counts, "_confirm", own.append)
    producer.send(TOPIC, event(1, T0))
    producer.flush()
    producer.send(TOPIC, event(2, T0))
    counts._look()
    assert not own
    counts._look()
    assert own == [sent_counts.FLUSH_TIMEOUT_MS], "it has made none since"


def test_of_a_list_in_several_requests_what_a_planned_reconnect_lost_is_not_counted(
    broker: ScriptedBroker, make: Make
) -> None:
    """Its first set goes over a connection that ends with a barrier, which fails."""
    producer = make(request_bytes_max=4_096, request_unpacked_bytes_max=4_096, reconnect_interval=1)
    broker.close_at_barrier = 1
    producer.send(TOPIC, [event(number, T0) for number in range(200)])
    producer._confirm(10_000)
    with pytest.raises(NotDurable) as lost:
        producer.flush()
    assert [part.sends for part in lost.value.unconfirmed] == [1]
    sets = [
        message_set.payloads(part.message_set) for part in broker.parts() if part.topic == TOPIC
    ]
    assert sum(map(len, sets)) == 200
    producer.close()
    assert reported(broker).total() == 200 - len(sets[0])


def test_a_close_that_reports_at_its_second_attempt_alone_still_ends_the_instance(
    broker: ScriptedBroker, make: Make
) -> None:
    """The next start went on with the sequences of the same instance: what was stored and not
    counted was extra for good."""
    with make() as earlier:
        earlier.send(TOPIC, event(1, T0))
    producer = make()
    producer.send(TOPIC, event(2, T0))
    producer.flush()
    producer.send(TOPIC, event(3, T0))
    broker.close_at_barrier = 2  # that of the messages, then the first of the reports
    with pytest.raises(NotDurable):
        producer.close()
    assert broker.close_at_barrier == 0
    found = Reported(WINDOW_MS)
    for (topic, _), log in broker.logs.items():
        found.add(message_set.payloads(log) if topic == AUDIT else ())
    assert found.restarted_ms(SERVER), "a group is to expect copies at once"
    with make() as later:
        later.send(TOPIC, event(4, T0))
    first, second, third = goodbyes(broker)
    assert len({first.instance, second.instance, third.instance}) == 3, "so is the audit"
    assert first.counting_instance == second.counting_instance != third.counting_instance
    assert second.last_sequence == first.last_sequence + 1


def test_a_loss_that_the_counting_found_is_named_by_the_application_s_flush(
    broker: ScriptedBroker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = make()
    producer.send(TOPIC, event(1, T0))
    broker.close_at_barrier = 1
    producer._confirm(10_000)
    with pytest.raises(NotDurable) as lost:
        producer.flush()
    assert [part.topic for part in lost.value.unconfirmed] == [TOPIC]
    producer.close()


def test_what_a_flush_of_its_own_has_not_confirmed_in_time_is_not_lost_yet(
    broker: ScriptedBroker, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a broker that hung, the last flush named what had been sent and counted since."""
    producer = make(producer_type="async")
    producer.send(TOPIC, event(1, T0))
    (queue,) = producer._queues.by_address.values()
    goes_on, barrier = threading.Event(), queue._barrier

    def held(_: int, requested: int) -> None:
        assert goes_on.wait(DEADLINE_S)
        barrier(time.monotonic_ns() + 10**10, requested)

    monkeypatch.setattr(queue, "_barrier", held)
    producer._confirm(50)
    producer.send(TOPIC, event(2, T0))  # waits in the queue
    producer._confirm(50)
    assert reported(broker).total() == 0
    goes_on.set()
    producer.flush()  # names nothing
    producer.close()
    assert reported(broker).total() == 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_after_a_death_what_was_durable_is_reported_once_and_another_instance_goes_on(
    broker: ScriptedBroker, make: Make, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    died = make(producer_type=kind)
    died.send(TOPIC, [event(1, T0), event(2, T0)])
    died.flush()
    died.send(TOPIC, event(3, T0))  # may be stored, and is counted nowhere
    died._counts._journal.close()  # type: ignore[union-attr] # what a SIGKILL leaves
    monkeypatch.setattr(sent_counts, "PUBLISH_INTERVAL_S", 0.01)
    with make() as later:
        counts = later._counts
        assert counts is not None
        wait_until(lambda: not counts._must_begin_anew, "another instance")
        later.send(TOPIC, event(4, T0))
    assert reported(broker).total() == 3
    instances = {one.instance for one in reports(broker) if isinstance(one, MonitoringEvent)}
    assert len(instances) == 2


def test_a_directory_that_cannot_be_used_is_one_line(broker: ScriptedBroker, make: Make) -> None:
    make()
    with pytest.raises(ConfigError, match="in use by another process"):
        make()
    with pytest.raises(ConfigError, match=r"needs audit\.dir"):
        make(audit_dir=None)
