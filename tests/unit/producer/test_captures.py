"""Bytes that the original 0.7.2 clients sent (captures P1 to P22), sent by ours."""

import random
from collections.abc import Iterator

import pytest

from kafka2011.coordination import paths
from kafka2011.producer import Part, Producer
from kafka2011.producer.requests import SetPart
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.message_set import encode, encode_compressed, messages
from kafka2011.protocol.requests import ProduceRequest, decode_request
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker

# The recorded client's gzip header names another operating system (and so another CRC) than the
# older JVMs whose header ours writes: such frames are compared with the header replaced.
P1 = "0000001f 0000 0004 74657374 00000000 0000000f  0000000b 01 00 3610a686 68656c6c6f"
P2 = "0000001f 0000 0004 74657374 ffffffff 0000000f  0000000b 01 00 3610a686 68656c6c6f"
P3 = (
    "00000049 0000 0004 74657374 00000000 00000039  00000035 01 01 729f38fd 1f8b08000000000000ff"
    "636060e06664301358d696919a9393cf00e65a950b3a97e717e5a40000a5d2eb831e000000"
)
P4 = (
    "0000004e 0000 0004 74657374 00000000 0000003e  0000003a 01 02 ffe58540 82534e41505059000000"
    "000100000001000000201e740000000b01003610a68668656c6c6f0000000b01003a771143776f726c64"
)
P5 = "00000010 0000 0004 74657374 00000000 00000000"
P6 = (
    "0000008c 0003 0003 0004 74657374 00000000 0000000f  0000000b 01 00 3610a686 68656c6c6f  "
    "0004 74657374 00000001 00000039  00000035 01 01 729f38fd 1f8b08000000000000ff636060e0666430"
    "1358d696919a9393cf00e65a950b3a97e717e5a40000a5d2eb831e000000  0004 6c6f6773 ffffffff "
    "00000016  00000007 01 00 8cdc1683 78  00000007 01 00 fbdb2615 79"
)
P7 = "0000001c 0000 0004 74657374 ffffffff 0000000c  00000008 01 00 c054072f 6d31"
P8 = (
    "00000028 0000 0004 74657374 ffffffff 00000018  00000008 01 00 c054072f 6d31  "
    "00000008 01 00 595d5695 6d32"
)
P9 = (
    "00000044 0003 0002 0004 74657374 ffffffff 0000000c  00000008 01 00 c054072f 6d31  "
    "0004 6c6f6773 ffffffff 00000018  00000008 01 00 d94f366e 6c31  00000008 01 00 404667d4 6c32"
)
P10 = (
    "00000043 0000 0004 74657374 ffffffff 00000033  0000002f 01 01 8f27c13a 1f8b08000000000000ff"
    "636060e060643810c2ae9f6bc8006647c6864dcd350200d5e59b9f18000000"
)
P14 = "0000001c 0000 0004 74657374 00000000 0000000c  00000008 01 00 c054072f 6d31"
P15 = "0000001c 0000 0004 74657374 00000001 0000000c  00000008 01 00 c054072f 6d31"
P16 = P14


@pytest.fixture
def low(server: ScriptedBroker) -> Iterator[Producer]:
    """A producer used as 0.7's low-level one: it says which partition."""
    with Producer(broker_list=server.broker_list) as producer:
        yield producer


def parsed(frame: bytes) -> object:
    """The request with its message sets opened, for gzip bytes that depend on the machine."""

    def opened(part: ProduceRequest) -> tuple[str, int, int, list[tuple[bytes, int]]]:
        data = bytes(part.message_set)
        return part.topic, part.partition, len(data), [tuple(m) for m in messages(data, 0)]

    request = decode_request(frame[4:])
    parts = [request] if isinstance(request, ProduceRequest) else request.parts
    return frame[:6], [opened(part) for part in parts]


HELLO = [b"hello"]
HELLO_WORLD = [b"hello", b"world"]


@pytest.mark.parametrize(
    ("capture", "partition", "message_set"),
    [
        (P1, 0, encode(HELLO)),
        (P2, -1, encode(HELLO)),
        (P4, 0, encode_compressed(HELLO_WORLD, Codec.SNAPPY)),
        (P5, 0, encode([])),
        (P5, 0, encode_compressed([], Codec.GZIP)),
    ],
)
def test_low_level_sends(
    server: ScriptedBroker, low: Producer, capture: str, partition: int, message_set: bytes
) -> None:
    low.send_set("test", message_set, partition=partition)
    assert server.produce_frames(1) == [bytes.fromhex(capture)]


def test_low_level_gzip(server: ScriptedBroker, low: Producer) -> None:
    low.send_set("test", encode_compressed(HELLO_WORLD, Codec.GZIP), partition=0)
    assert parsed(server.produce_frames(1)[0]) == parsed(bytes.fromhex(P3))


def test_low_level_multi_send(server: ScriptedBroker, low: Producer) -> None:
    low.send_sets(
        [
            SetPart("test", 0, encode(HELLO)),
            SetPart("test", 1, encode_compressed(HELLO_WORLD, Codec.GZIP)),
            SetPart("logs", -1, encode([b"x", b"y"])),
        ],
        broker_id=0,
    )
    assert parsed(server.produce_frames(1)[0]) == parsed(bytes.fromhex(P6))


def test_static_list_sends_partition_minus_one(server: ScriptedBroker, low: Producer) -> None:
    low.send("test", b"m1")
    assert server.produce_frames(1) == [bytes.fromhex(P7)]


def test_static_list_ignores_the_key(server: ScriptedBroker, low: Producer) -> None:
    low.send("test", [b"m1", b"m2"], key="k1")
    assert server.produce_frames(1) == [bytes.fromhex(P8)]


def test_two_topics_in_one_call_become_a_multi_produce(
    server: ScriptedBroker, low: Producer
) -> None:
    low.send_parts([Part("test", [b"m1"]), Part("logs", [b"l1", b"l2"])])
    assert server.produce_frames(1) == [bytes.fromhex(P9)]


def test_one_part_in_a_call_is_a_plain_produce(server: ScriptedBroker, low: Producer) -> None:
    low.send_parts([Part("test", [b"m1"])])
    assert server.produce_frames(1) == [bytes.fromhex(P7)]


def test_sync_gzip_compresses_every_topic(server: ScriptedBroker) -> None:
    with Producer(
        broker_list=server.broker_list, compression_codec="1", compressed_topics="logs"
    ) as producer:
        producer.send("test", [b"m1", b"m2"])
        assert parsed(server.produce_frames(1)[0]) == parsed(bytes.fromhex(P10))


@pytest.fixture
def registry(server: ScriptedBroker) -> Iterator[InMemoryRegistry]:
    """Two partitions of topic `test` on one broker, as the captures had."""
    found = InMemoryRegistry(InMemoryZooKeeper())
    found.start()
    found.create(paths.broker_id_path(0), paths.encode_broker(*server.address, 1_300_000_000_000))
    found.create(paths.topic_broker_path("test", 0), b"2")
    yield found
    found.close()


@pytest.mark.parametrize(("key", "capture"), [("a", P15), ("b", P16)])
def test_a_key_chooses_the_partition_through_zookeeper(
    server: ScriptedBroker, registry: InMemoryRegistry, key: str, capture: str
) -> None:
    with Producer(registry=registry) as producer:
        producer.send("test", b"m1", key=key)
        assert server.produce_frames(1) == [bytes.fromhex(capture)]


def test_no_key_chooses_an_explicit_partition_at_random(
    server: ScriptedBroker, registry: InMemoryRegistry
) -> None:
    with Producer(registry=registry, rng=random.Random(1)) as producer:
        for _ in range(40):
            producer.send("test", b"m1")
        frames = server.produce_frames(40)
    assert set(frames) == {bytes.fromhex(P14), bytes.fromhex(P15)}


def test_perf_producer_batches_of_50_and_of_1(server: ScriptedBroker, low: Producer) -> None:
    low.send("perf", [bytes(200)] * 50)
    low.send("perf", bytes(200))
    fifty, one = server.produce_frames(2)
    entry = bytes.fromhex("000000ce 01 00 c971a876") + bytes(200)
    head = bytes.fromhex("00002914 0000 0004") + b"perf" + bytes.fromhex("ffffffff 00002904")
    assert fifty == head + entry * 50
    assert (
        one
        == bytes.fromhex("000000e2 0000 0004")
        + b"perf"
        + bytes.fromhex("ffffffff 000000d2")
        + entry
    )
