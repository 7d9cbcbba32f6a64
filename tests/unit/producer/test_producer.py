"""What both kinds of producer, synchronous and asynchronous, do alike."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from kafka2011.producer import NotDurable, Part, Producer, ProducerClosed, Unconfirmed
from kafka2011.producer.requests import REQUEST_HEAD_BYTES_MAX
from kafka2011.protocol.errors import IllegalTopicName, MessageSizeTooLarge
from kafka2011.protocol.message_set import payloads
from kafka2011.protocol.requests import MultiProduceRequest, decode_request
from tests.unit.producer.support import async_producer, numbered, sent, sync_producer

Kind = Callable[..., Producer]


@pytest.fixture(params=[sync_producer, async_producer])
def new_producer(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


def test_flush_without_new_messages_asks_nothing(server, new_producer) -> None:
    with new_producer(server) as producer:
        producer.flush()
        producer.send("test", b"one")
        producer.flush()
        producer.flush()
    assert server.barrier_count() == 1


def test_a_connection_that_closes_before_the_answer_is_not_durable(server, new_producer) -> None:
    server.close_at_barrier = 1
    broker = f"{server.host}:{server.port}"
    with new_producer(server) as producer:
        producer.send("a", [b"x", b"y"])
        producer.send("b", b"z")
        producer.send("a", b"w")
        with pytest.raises(NotDurable, match=broker) as caught:
            producer.flush()
        sends = Counter(part.topic for part in server.parts())
        assert list(caught.value.unconfirmed) == [
            Unconfirmed(broker, "a", sends["a"], 33),
            Unconfirmed(broker, "b", 1, 11),
        ]
        assert caught.value.retriable
        # The caller sends again on a new connection, and that is durable.
        producer.send("a", [b"x", b"y"])
        producer.flush()
        assert producer.stats.lost_sends == sends.total()


def test_close_delivers_and_then_refuses(server, new_producer) -> None:
    producer = new_producer(server)
    producer.send_parts([Part("a", [b"1"]), Part("b", [b"2"])])
    producer.close()
    producer.close()
    assert sent(server) == [b"1", b"2"]
    assert server.barrier_count() == 1
    with pytest.raises(ProducerClosed):
        producer.send("a", b"3")


def test_close_says_what_it_could_not_deliver(server, new_producer) -> None:
    server.close_at_barrier = 1
    producer = new_producer(server)
    producer.send("a", b"x")
    with pytest.raises(NotDurable):
        producer.close()


def test_an_error_inside_the_block_is_not_hidden(server, new_producer) -> None:
    server.close_at_barrier = 1
    with pytest.raises(KeyError) as caught, new_producer(server) as producer:
        producer.send("a", b"x")
        raise KeyError("mine")
    assert "not known to be durable" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("settings", "bytes_max"),
    [
        ({"max_message_bytes": 10}, 10),
        ({"request_bytes_max": 5000}, 5000 - REQUEST_HEAD_BYTES_MAX - 10),
    ],
)
def test_a_payload_above_the_limit_is_refused_and_counted(
    server, new_producer, settings, bytes_max
) -> None:
    with new_producer(server, **settings) as producer:
        producer.send("a", bytes(bytes_max))
        with pytest.raises(MessageSizeTooLarge, match=f"{bytes_max + 1} bytes"):
            producer.send("a", [b"x", bytes(bytes_max + 1)])
        assert (producer.stats.refused_too_large, producer.stats.messages) == (1, 1)
    assert sent(server) == [bytes(bytes_max)]


def test_a_synchronous_producer_measures_a_compressed_set_packed(server) -> None:
    with sync_producer(server, max_message_bytes=100, compression_codec="1") as producer:
        producer.send("a", bytes(1000))
        with pytest.raises(MessageSizeTooLarge):
            producer.send("a", random.Random(1).randbytes(200))


def test_a_large_payload_arrives_whole_behind_its_head(server, new_producer) -> None:
    large = random.Random(2).randbytes(200_000)
    with new_producer(server) as producer:
        producer.send("a", large)
    assert sent(server) == [large]


@pytest.mark.parametrize("topic", ["", "a/b", "..", "x" * 256])
def test_an_illegal_topic_is_refused_before_anything_is_sent(server, new_producer, topic) -> None:
    with new_producer(server) as producer, pytest.raises(IllegalTopicName):
        producer.send(topic, b"x")
    assert server.connection_count == 0


def test_serializer_makes_payloads(server, new_producer) -> None:
    with new_producer(server, serializer="kafka.serializer.StringEncoder") as producer:
        producer.send("a", ["é", 7])
        producer.send("a", "one")
        producer.send_parts([Part("b", ["x"])])
    assert sent(server) == ["é".encode(), b"7", b"one", b"x"]


def test_no_message_is_left_out_since_its_serializer_found_nothing(server, new_producer) -> None:
    def first_word(words: list[bytes]) -> bytes:
        return next(iter(words))

    with new_producer(server, serializer=first_word) as producer:
        with pytest.raises(StopIteration):
            producer.send("a", [[b"x"], [], [b"y"]])
        with pytest.raises(StopIteration):
            producer.send_parts([Part("a", [[b"x"], []])])
        producer.send("a", [[b"z"]])
    assert sent(server) == [b"z"]


@pytest.mark.parametrize("codec", ["0", "1"])
def test_a_list_above_the_request_s_limits_goes_in_several_requests(
    server, new_producer, codec
) -> None:
    messages = [one * 200 for one in numbered(100)]
    with new_producer(
        server,
        batch_size=50,
        compression_codec=codec,
        request_bytes_max=5000,
        request_unpacked_bytes_max=5000,
    ) as producer:
        producer.send("t", messages[:50])
        producer.send_parts([Part("t", messages[50:60]), Part("t", messages[60:])])
        producer.flush()
        assert (producer.stats.messages, producer.stats.failed) == (100, 0)
    assert sent(server) == messages
    for frame in server.produce_frames(8):
        request = decode_request(frame[4:])
        parts = request.parts if isinstance(request, MultiProduceRequest) else [request]
        unpacked = [one for part in parts for one in payloads(bytes(part.message_set))]
        assert len(frame) - 4 <= 5000
        assert sum(len(one) + 10 for one in unpacked) <= 5000


def test_many_parts_go_in_several_requests(server, new_producer) -> None:
    with new_producer(server, request_parts_max=3) as producer:
        producer.send_parts([Part(f"t{number}", [b"x"]) for number in range(8)])
    requests = [decode_request(frame[4:]) for frame in server.produce_frames(3)]
    topics = [[part.topic for part in request.parts] for request in requests]
    assert topics == [["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6", "t7"]]
