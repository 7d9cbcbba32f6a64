import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from kafka2011.coordination import paths
from kafka2011.producer import NotDurable, Part, Producer, ProducerClosed, QueueFull
from kafka2011.producer.asynchronous.callbacks import Event, ProducerCallbacks
from kafka2011.producer.requests import SetPart
from kafka2011.protocol.errors import LocalProtocolError, MessageSizeTooLarge
from kafka2011.protocol.message_set import encode, messages, payloads
from kafka2011.protocol.requests import MultiProduceRequest, decode_request
from kafka2011.runtime.config import ConfigError
from tests.support.memory_zookeeper import InMemoryRegistry
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until

# Captures of the original's asynchronous producer (section 2.1).
P11 = (
    "0000002a 0003 0001 0004 74657374 ffffffff 00000018  00000008 01 00 c054072f 6d31  "
    "00000008 01 00 595d5695 6d32"
)
P12 = (
    "0000006b 0003 0002 0004 74657374 ffffffff 00000018  00000008 01 00 c054072f 6d31  "
    "00000008 01 00 595d5695 6d32  0004 6c6f6773 ffffffff 00000033  0000002f 01 01 50ce3882 "
    "1f8b08000000000000ff636060e06064b8e96f969763c800663bb8a55fc93102006405a24918000000"
)
P13 = (
    "0000004a 0003 0001 0004 74657374 ffffffff 00000038  00000034 01 02 b4a88d86 "
    "82534e415050590000000001000000010000001a185c000000080100c054072f6d31000000080100595d56956d32"
)


def new_producer(server: ScriptedBroker, **settings: Any) -> Producer:
    return Producer(
        **{
            "broker_list": server.broker_list,
            "producer_type": "async",
            "queue_time_ms": 60_000,  # nothing goes out by time unless a test says so
            "connect_timeout_ms": 100,
            **settings,
        }
    )


def sent(server: ScriptedBroker) -> list[bytes]:
    return [p for part in server.parts() for p in payloads(bytes(part.message_set))]


# --- the captures ----------------------------------------------------------------------------


def test_a_batch_of_one_topic_is_a_multi_produce_of_one_part(server: ScriptedBroker) -> None:
    with new_producer(server, batch_size=2) as producer:
        producer.send("test", b"m1")
        producer.send("test", b"m2")
        assert server.produce_frames(1) == [bytes.fromhex(P11)]


def test_compressed_topics_names_those_to_compress(server: ScriptedBroker) -> None:
    with new_producer(
        server, batch_size=4, compression_codec="1", compressed_topics="logs"
    ) as producer:
        producer.send("test", [b"m1", b"m2"])
        producer.send("logs", [b"l1", b"l2"])
        frame = server.produce_frames(1)[0]

    def opened(raw: bytes) -> list[tuple[str, int, int, list[tuple[bytes, int]]]]:
        request = decode_request(raw[4:])
        assert isinstance(request, MultiProduceRequest)
        return [
            (p.topic, p.partition, len(p.message_set), messages(bytes(p.message_set), 0))
            for p in request.parts
        ]

    assert opened(frame) == opened(bytes.fromhex(P12))


def test_snappy_batch(server: ScriptedBroker) -> None:
    with new_producer(server, batch_size=2, compression_codec="2") as producer:
        producer.send("test", [b"m1", b"m2"])
        assert server.produce_frames(1) == [bytes.fromhex(P13)]


def test_perf_producer_batch_of_50(server: ScriptedBroker) -> None:
    with new_producer(server, batch_size=50) as producer:
        for _ in range(50):
            producer.send("perf", bytes(200))
        entry = bytes.fromhex("000000ce 01 00 c971a876") + bytes(200)
        head = (
            bytes.fromhex("00002916 0003 0001 0004") + b"perf" + bytes.fromhex("ffffffff 00002904")
        )
        assert server.produce_frames(1) == [head + entry * 50]


# --- when a batch goes -----------------------------------------------------------------------


def test_nothing_goes_before_there_is_a_batch_and_flush_sends_the_rest(
    server: ScriptedBroker,
) -> None:
    with new_producer(server, batch_size=10) as producer:
        for number in range(9):
            producer.send("a", b"%d" % number)
        assert server.connection_count == 0
        producer.flush()
        assert sent(server) == [b"%d" % number for number in range(9)]
        assert server.barrier_count() == 1
        producer.flush()
        assert server.barrier_count() == 1


def test_queue_time_sends_what_is_there(server: ScriptedBroker) -> None:
    with new_producer(server, batch_size=1000, queue_time_ms=20) as producer:
        producer.send("a", b"x")
        server.produce_frames(1)
        producer.send("a", b"y")
        server.produce_frames(2)


def test_queue_time_of_0_sends_each_message_when_it_comes(server: ScriptedBroker) -> None:
    with new_producer(server, queue_time_ms=0) as producer:
        for number in range(1, 4):
            producer.send("a", b"x")
            wait_until(lambda number=number: len(sent(server)) == number, "the message")


def test_order_is_kept_within_a_partition_over_many_batches(server: ScriptedBroker) -> None:
    with new_producer(server, batch_size=7, enqueue_timeout_ms=-1, queue_size=50) as producer:
        for number in range(2000):
            producer.send("a", b"%d" % number)
    assert sent(server) == [b"%d" % number for number in range(2000)]


def test_several_threads_lose_nothing(server: ScriptedBroker) -> None:
    with new_producer(server, batch_size=13, enqueue_timeout_ms=-1, queue_size=40) as producer:

        def work(name: int) -> None:
            for number in range(500):
                producer.send("a", b"%d-%d" % (name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert producer.stats.messages == 2000
    found = sent(server)
    assert len(found) == 2000
    for name in range(4):
        own = [p for p in found if p.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, number) for number in range(500)]


# --- a full queue ----------------------------------------------------------------------------


class Held(ProducerCallbacks):
    """Holds the sender's thread until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.holds = threading.Event()

    def after_dequeuing(self, events: Sequence[Event]) -> Sequence[Event]:
        self.holds.set()
        self.go.wait(30)
        return events


def full_queue(server: ScriptedBroker, held: Held, **settings: Any) -> Producer:
    producer = new_producer(server, batch_size=1, queue_size=3, callbacks=held, **settings)
    producer.send("a", b"taken")
    held.holds.wait(30)
    producer.send("a", [b"1", b"2", b"3"])
    return producer


@pytest.mark.parametrize("timeout_ms", [0, 20])
def test_a_full_queue_drops_at_once_or_after_the_timeout_and_says_so(
    server: ScriptedBroker, timeout_ms: int
) -> None:
    held = Held()
    producer = full_queue(server, held, enqueue_timeout_ms=timeout_ms)
    with pytest.raises(QueueFull) as caught:
        producer.send("a", [b"4", b"5"])
    assert caught.value.retriable
    assert producer.stats.dropped == 2
    assert producer.stats.messages == 4
    held.go.set()
    producer.close()
    assert sent(server) == [b"taken", b"1", b"2", b"3"]


def test_part_of_a_list_that_finds_room_is_sent_and_the_rest_counted(
    server: ScriptedBroker,
) -> None:
    held = Held()
    producer = new_producer(server, batch_size=1, queue_size=3, callbacks=held)
    producer.send("a", b"taken")
    held.holds.wait(30)
    with pytest.raises(QueueFull):
        producer.send("a", [b"%d" % n for n in range(5)])
    assert (producer.stats.messages, producer.stats.dropped) == (4, 2)
    held.go.set()
    producer.close()
    assert sent(server) == [b"taken", b"0", b"1", b"2"]


def test_a_negative_timeout_waits_for_room(server: ScriptedBroker) -> None:
    held = Held()
    producer = full_queue(server, held, enqueue_timeout_ms=-1)
    waiting = threading.Thread(target=producer.send, args=("a", b"4"))
    waiting.start()
    held.go.set()
    waiting.join(30)
    producer.close()
    assert sent(server) == [b"taken", b"1", b"2", b"3", b"4"]
    assert producer.stats.dropped == 0


# --- failures --------------------------------------------------------------------------------


def test_messages_for_a_broker_that_is_away_are_counted_and_told_by_flush() -> None:
    with ScriptedBroker() as gone:
        brokers = gone.broker_list
    producer = Producer(
        broker_list=brokers, producer_type="async", batch_size=2, connect_timeout_ms=10
    )
    producer.send("a", [b"1", b"2"])
    producer.send("b", [b"3", b"4"])
    with pytest.raises(NotDurable, match="cannot connect") as caught:
        producer.flush()
    assert {part.topic for part in caught.value.unconfirmed} == {"a", "b"}
    assert producer.stats.failed == 4
    producer.flush()  # told once
    producer.send("a", b"5")
    with pytest.raises(NotDurable):
        producer.close()
    assert producer.stats.failed == 5


def test_a_broken_barrier_is_told_by_flush(server: ScriptedBroker) -> None:
    server.close_at_barrier = 1
    with new_producer(server) as producer:
        producer.send("a", [b"1", b"2"])
        with pytest.raises(NotDurable) as caught:
            producer.flush()
        assert [(p.topic, p.sends, p.set_bytes) for p in caught.value.unconfirmed] == [
            ("a", 1, len(encode([b"1", b"2"])))
        ]
        producer.send("a", b"3")
        producer.flush()


def test_num_retries_sends_the_same_bytes_again(
    server: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.producer.asynchronous.broker_queue.RETRY_PAUSE_S", 0)
    fails = iter([True, True, False])

    def send(self: Any, frame: bytes, topic: str, size: int, more: Any = ()) -> None:
        real_send(self, frame, topic, size, more)
        if next(fails, False):
            self._break("a test says so")
            from kafka2011.producer import BrokerUnavailable

            raise BrokerUnavailable("a test says so")

    from kafka2011.producer.connection import BrokerConnection

    real_send = BrokerConnection.send
    monkeypatch.setattr(BrokerConnection, "send", send)
    with new_producer(server, batch_size=2, num_retries=2) as producer:
        producer.send("a", [b"1", b"2"])
        producer.flush()  # durable in the end: what the first attempts left unknown was sent again
        assert producer.stats.failed == 0
    frames = server.produce_frames(3)
    assert frames[0] == frames[1] == frames[2]


def test_flush_that_runs_out_of_time_says_what_is_still_queued(server: ScriptedBroker) -> None:
    held = Held()
    producer = full_queue(server, held)
    with pytest.raises(NotDurable, match="before the deadline") as caught:
        producer.flush(timeout_ms=20)
    assert [(part.topic, part.sends) for part in caught.value.unconfirmed] == [("a", 3)]
    held.go.set()
    producer.close()
    assert len(sent(server)) == 4


def test_close_delivers_and_then_refuses(server: ScriptedBroker) -> None:
    producer = new_producer(server)
    producer.send_parts([Part("a", [b"1"]), Part("b", [b"2"])])
    producer.close()
    assert sent(server) == [b"1", b"2"]
    with pytest.raises(ProducerClosed):
        producer.send("a", b"3")
    producer.close()


def test_a_payload_above_the_limit_is_refused_before_it_is_queued(server: ScriptedBroker) -> None:
    with new_producer(server, max_message_bytes=5) as producer:
        with pytest.raises(MessageSizeTooLarge):
            producer.send("a", [b"ok", b"too large"])
        assert producer.stats.refused_too_large == 1
        assert producer.stats.messages == 0


def test_a_batch_that_compresses_to_too_much_is_cut(server: ScriptedBroker) -> None:
    import random

    noise = [random.Random(n).randbytes(400) for n in range(20)]
    with new_producer(
        server, max_message_bytes=1000, batch_size=20, compression_codec="1"
    ) as producer:
        producer.send("a", noise)
    assert sent(server) == noise
    assert all(len(part.message_set) <= 1010 for part in server.parts())


@pytest.mark.parametrize("codec", ["0", "1"])
def test_a_batch_above_the_request_s_limits_goes_in_several_requests(
    server: ScriptedBroker, codec: str
) -> None:
    messages = [b"%04d" % number * 100 for number in range(50)]
    with new_producer(
        server,
        batch_size=50,
        compression_codec=codec,
        request_bytes_max=5000,
        request_unpacked_bytes_max=5000,
    ) as producer:
        producer.send("a", messages)
        producer.flush()
        assert producer.stats.failed == 0
    assert sent(server) == messages
    frames = server.produce_frames(1)
    assert len(frames) >= 4
    for frame in frames:
        request = decode_request(frame[4:])
        assert isinstance(request, MultiProduceRequest)
        assert len(frame) - 4 <= 5000
        found = [p for part in request.parts for p in payloads(bytes(part.message_set))]
        assert sum(len(p) + 10 for p in found) <= 5000


def test_a_batch_of_many_topics_goes_in_several_requests(server: ScriptedBroker) -> None:
    with new_producer(server, batch_size=20, request_parts_max=8) as producer:
        for number in range(20):
            producer.send(f"t{number}", b"%d" % number)
    assert sent(server) == [b"%d" % number for number in range(20)]
    requests = [decode_request(frame[4:]) for frame in server.produce_frames(3)]
    assert [len(r.parts) for r in requests if isinstance(r, MultiProduceRequest)] == [8, 8, 4]


def test_a_payload_that_no_request_has_room_for_is_refused(server: ScriptedBroker) -> None:
    with new_producer(server, request_bytes_max=5000) as producer:
        with pytest.raises(MessageSizeTooLarge, match=r"request\.bytes\.max"):
            producer.send("a", bytes(5000))
        producer.send("a", bytes(3000))
    assert sent(server) == [bytes(3000)]


def test_encoded_sets_are_for_the_synchronous_kind(server: ScriptedBroker) -> None:
    with new_producer(server) as producer, pytest.raises(LocalProtocolError):
        producer.send_set("a", encode([b"x"]))


# --- hooks -----------------------------------------------------------------------------------


class Recorder(ProducerCallbacks):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def before_enqueue(self, event: Event) -> Event:
        return event._replace(payload=event.payload.upper())

    def after_enqueue(self, event: Event, accepted: bool) -> None:
        self.calls.append(f"queued {event.payload!r} {accepted}")

    def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
        return [event for event in events if event.payload != b"SECRET"]

    def last_batch_before_close(self) -> Sequence[Event]:
        return [Event("a", -1, b"goodbye")]

    def close(self) -> None:
        self.calls.append("closed")


def test_callbacks_see_and_change_what_passes(server: ScriptedBroker) -> None:
    recorder = Recorder()
    with new_producer(server, callbacks=recorder) as producer:
        producer.send("a", [b"one", b"secret", b"two"])
    assert sent(server) == [b"ONE", b"TWO", b"goodbye"]
    assert recorder.calls[0] == "queued b'ONE' True"
    assert recorder.calls[-1] == "closed"


def test_a_callback_that_raises_does_not_end_the_sender(server: ScriptedBroker) -> None:
    class Broken(ProducerCallbacks):
        def before_sending(self, events: Sequence[Event]) -> Sequence[Event]:
            raise RuntimeError("mine")

    with new_producer(server, callbacks=Broken()) as producer:
        producer.send("a", b"x")
    assert sent(server) == [b"x"]


def test_an_event_handler_makes_the_parts(server: ScriptedBroker) -> None:
    def handler(events: Sequence[Event]) -> Sequence[SetPart]:
        return [SetPart("all", 3, encode([b"+".join(event.payload for event in events)]))]

    with new_producer(server, event_handler=handler) as producer:
        producer.send_parts([Part("a", [b"1"]), Part("b", [b"2"])])
    assert sent(server) == [b"1+2"]
    assert (server.parts()[0].topic, server.parts()[0].partition) == ("all", 3)


def test_an_event_handler_that_raises_loses_its_batch_and_says_so(server: ScriptedBroker) -> None:
    def handler(events: Sequence[Event]) -> Sequence[SetPart]:
        raise RuntimeError("mine")

    producer = new_producer(server, event_handler=handler)
    producer.send("a", [b"1", b"2"])
    with pytest.raises(NotDurable, match="mine"):
        producer.flush()
    assert producer.stats.failed == 2
    producer.close()


@pytest.mark.parametrize(
    "parts",
    [
        [SetPart("a", None, encode([b"x"]))],  # type: ignore[arg-type]
        [SetPart("a", 0, "text")],  # type: ignore[arg-type]
        [SetPart("a", 0, None)],  # type: ignore[arg-type]
        [SetPart("a", 2**31, encode([b"x"]))],
        [None],
        None,
    ],
)
def test_parts_of_a_handler_that_make_no_request_lose_their_batch_and_not_the_sender(
    server: ScriptedBroker, parts: Any
) -> None:
    answers = iter([parts, [SetPart("a", 0, encode([b"good"]))]])
    producer = new_producer(server, event_handler=lambda _events: next(answers))
    producer.send("a", [b"1", b"2"])
    with pytest.raises(NotDurable, match="not encoded"):
        producer.flush(5000)
    assert producer.stats.failed == 2
    producer.send("a", b"3")
    producer.close()
    assert sent(server) == [b"good"]


def test_a_hook_that_returns_no_events_loses_its_batch_and_not_the_sender(
    server: ScriptedBroker,
) -> None:
    class Broken(ProducerCallbacks):
        def before_sending(self, events: Sequence[Event]) -> Any:
            return [7] if events[0].payload == b"bad" else events

    producer = new_producer(server, callbacks=Broken())
    producer.send("a", b"bad")
    with pytest.raises(NotDurable, match="not encoded"):
        producer.flush(5000)
    assert producer.stats.failed == 1
    producer.send("a", b"good")
    producer.close()
    assert sent(server) == [b"good"]


def test_what_is_no_bytes_is_refused_at_once_and_harms_no_other_message(
    server: ScriptedBroker,
) -> None:
    with new_producer(server) as producer:
        producer.send("a", b"1")
        for bad in ("text", 5, None, ["text"], [b"not sent", "text"]):
            with pytest.raises(TypeError, match="must be bytes"):
                producer.send("a", bad)
        with pytest.raises(TypeError, match="must be bytes"):
            producer.send_parts([Part("a", ["text"])])
        producer.send("a", b"2")
    assert sent(server) == [b"1", b"2"]
    with new_producer(server, serializer="kafka.serializer.StringEncoder") as producer:
        producer.send("a", "text")
        producer.send("a", 5)
    assert sent(server)[2:] == [b"text", b"5"]


def test_something_like_bytes_is_copied_when_it_is_sent(server: ScriptedBroker) -> None:
    class Mutable(ProducerCallbacks):
        def before_enqueue(self, event: Event) -> Event:
            return event._replace(payload=bytearray(event.payload))  # type: ignore[arg-type]

    with new_producer(server) as producer, new_producer(server, callbacks=Mutable()) as hooked:
        for one in (producer, hooked):
            buffer = bytearray(b"before")
            one.send("a", buffer)
            one.send("a", [memoryview(buffer)])
            buffer[:] = b"after!"
            one.flush()
    assert sent(server) == [b"before"] * 4


def test_keys_and_topics_through_zookeeper_make_one_part_each(
    server: ScriptedBroker, registry: InMemoryRegistry
) -> None:
    """Capture P17; the original puts the parts in the order of its hash map."""
    registry.create(paths.broker_id_path(0), paths.encode_broker(*server.address, 1))
    for topic, count in (("test", b"2"), ("logs", b"1")):
        registry.create(paths.topic_broker_path(topic, 0), count)
    with Producer(registry=registry, producer_type="async", batch_size=3) as producer:
        producer.send("test", b"m1", key="a")
        producer.send("logs", b"m3")
        producer.send("test", b"m2", key="b")
        frame = server.produce_frames(1)[0]
    captured = bytes.fromhex(
        "00000052 0003 0003 0004 74657374 00000001 0000000c  00000008 01 00 c054072f 6d31  "
        "0004 6c6f6773 00000000 0000000c  00000008 01 00 2e5a6603 6d33  "
        "0004 74657374 00000000 0000000c  00000008 01 00 595d5695 6d32"
    )
    assert frame == captured


# --- a broker's death ------------------------------------------------------------------------


@pytest.fixture
def dead_and_alive(server: ScriptedBroker) -> str:
    """A static list of a broker that nobody answers for, and `server`."""
    with ScriptedBroker() as gone:
        dead = gone.address[1]
    return f"7:127.0.0.1:{dead},8:127.0.0.1:{server.address[1]}"


def test_a_batch_that_its_broker_does_not_take_goes_to_another(
    server: ScriptedBroker, dead_and_alive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.producer.asynchronous.broker_queue.RETRY_PAUSE_S", 0)
    with new_producer(
        server,
        broker_list=dead_and_alive,
        num_retries=1,
        connect_timeout_ms=10,
        batch_size=7,
        enqueue_timeout_ms=-1,
    ) as producer:
        for number in range(100):
            producer.send("a", b"%d" % number)
        producer.flush()
        assert producer.stats.failed == 0
        assert 0 < producer.stats.rerouted < 100
    assert sorted(sent(server), key=int) == [b"%d" % number for number in range(100)]


def test_without_retries_a_dead_brokers_share_is_counted_and_named(
    server: ScriptedBroker, dead_and_alive: str
) -> None:
    producer = new_producer(server, broker_list=dead_and_alive, connect_timeout_ms=10)
    for number in range(100):
        producer.send("a", b"%d" % number)
    with pytest.raises(NotDurable, match="cannot connect"):
        producer.close()
    assert producer.stats.failed + len(sent(server)) == 100


def test_a_key_is_placed_anew_when_its_broker_left_the_registry(
    server: ScriptedBroker, registry: InMemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.producer.asynchronous.broker_queue.RETRY_PAUSE_S", 0)
    with ScriptedBroker() as gone:
        dead = gone.address
    registry.create(paths.topic_path("a"))
    for broker_id, address in ((1, dead), (2, server.address)):
        node = paths.broker_id_path(broker_id)
        registry.create_ephemeral(node, paths.encode_broker(*address, 1))
        registry.create_ephemeral(paths.topic_broker_path("a", broker_id), b"2")
    with Producer(
        registry=registry,
        producer_type="async",
        queue_time_ms=60_000,
        connect_timeout_ms=10,
        num_retries=2,
    ) as producer:
        for key in range(4):
            producer.send("a", b"%d" % key, key)
        registry.delete(paths.broker_id_path(1))
        producer.flush()
    # By the default partitioner over what is left: keys 0 and 2 to 2-0, keys 1 and 3 to 2-1.
    placed = {(p.partition, one) for p in server.parts() for one in payloads(bytes(p.message_set))}
    assert placed >= {(0, b"0"), (1, b"1")}
    assert {one for _, one in placed} == {b"0", b"1", b"2", b"3"}


# --- hooks by their names --------------------------------------------------------------------


class NamedCallbacks(Recorder):
    properties: ClassVar[dict[str, str]] = {}

    def init(self, properties: Mapping[str, str]) -> None:
        NamedCallbacks.properties = dict(properties)


class Joining:
    """An event handler with properties, as 0.7's has."""

    def init(self, properties: Mapping[str, str]) -> None:
        self.glue = properties["glue"].encode()

    def __call__(self, events: Sequence[Event]) -> Sequence[SetPart]:
        return [SetPart("all", 0, encode([self.glue.join(event.payload for event in events)]))]


def test_hooks_named_in_the_settings_take_effect(server: ScriptedBroker) -> None:
    here = __name__
    with new_producer(
        server,
        callback_handler=f"{here}.NamedCallbacks",
        callback_handler_props="a=1,b=x=y",
        event_handler=f"{here}:Joining",
        event_handler_props="glue=+",
    ) as producer:
        producer.send("a", [b"one", b"two"])
        producer.flush()
        assert sent(server) == [b"ONE+TWO"]
    assert NamedCallbacks.properties == {"a": "1", "b": "x=y"}


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("callback_handler", "no.such.Thing", "cannot be imported"),
        ("callback_handler", "collections.OrderedDict", "is not a ProducerCallbacks"),
        ("event_handler", "collections.OrderedDict", "is not a function"),
        ("event_handler", "Word", "package.module.Name"),
        ("callback_handler_props", "word", "name=value"),
    ],
)
def test_a_name_that_leads_nowhere_is_a_setting_that_cannot_be_used(
    server: ScriptedBroker, setting: str, value: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        new_producer(server, **{setting: value})
