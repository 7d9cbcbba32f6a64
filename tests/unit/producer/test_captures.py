"""Requests that clients of the original 0.7.2 sent (P1 to P22), sent by ours."""

import random

import pytest

from kafka2011.producer import Part, Producer
from kafka2011.producer.requests import SetPart
from kafka2011.protocol.message_set import encode, encode_compressed, messages
from kafka2011.protocol.requests import ProduceRequest, decode_request
from tests.support.memory_zookeeper import InMemoryRegistry
from tests.support.scripted_server import ScriptedBroker
from tests.unit.producer.support import async_producer, register, sync_producer
from tests.vectors import vector

HELLO = encode([b"hello"])
GZIP, SNAPPY = (encode_compressed([b"hello", b"world"], codec) for codec in (1, 2))
X_Y = encode([b"x", b"y"])
THREE_SETS = [SetPart("test", 0, HELLO), SetPart("test", 1, GZIP), SetPart("logs", -1, X_Y)]
M1_M2 = Part("test", [b"m1", b"m2"])
L1_L2 = Part("logs", [b"l1", b"l2"])
ZEROS = bytes(200)
GZIP_OF_LOGS = {"compression_codec": "1", "compressed_topics": "logs"}


def comparable(frame: bytes) -> object:
    """The frame; one with gzip, whose bytes depend on the machine, with its message sets opened."""
    if b"\x1f\x8b\x08" not in frame:
        return frame
    request = decode_request(frame[4:])
    parts = [request] if isinstance(request, ProduceRequest) else request.parts
    return frame[:6], [
        (part.topic, part.partition, len(part.message_set), messages(bytes(part.message_set), 0))
        for part in parts
    ]


def check(broker: ScriptedBroker, *captures: str) -> None:
    """The produce requests that arrived are these captures."""
    frames = broker.produce_frames(len(captures))
    assert list(map(comparable, frames)) == [comparable(vector(name)) for name in captures]


@pytest.mark.parametrize(
    ("capture", "send"),
    [
        ("P1", lambda low: low.send_set("test", HELLO, partition=0)),
        ("P2", lambda low: low.send_set("test", HELLO)),
        ("P3", lambda low: low.send_set("test", GZIP, partition=0)),
        ("P4", lambda low: low.send_set("test", SNAPPY, partition=0)),
        ("P5", lambda low: low.send_set("test", encode([]), partition=0)),
        ("P5", lambda low: low.send_set("test", encode_compressed([], 1), partition=0)),
        ("P6", lambda low: low.send_sets(THREE_SETS, broker_id=0)),
        ("P7", lambda high: high.send("test", b"m1")),
        ("P7", lambda high: high.send_parts([Part("test", [b"m1"])])),
        ("P8", lambda high: high.send("test", [b"m1", b"m2"], key="k1")),
        ("P9", lambda high: high.send_parts([Part("test", [b"m1"]), L1_L2])),
        ("P20", lambda high: high.send("perf", [ZEROS] * 50)),
        ("P21", lambda high: high.send("perf", ZEROS)),
    ],
)
def test_synchronous(server, capture, send) -> None:
    with sync_producer(server) as producer:
        send(producer)
        check(server, capture)


def test_a_synchronous_producer_compresses_every_topic(server) -> None:
    with sync_producer(server, **GZIP_OF_LOGS) as producer:
        producer.send_parts([M1_M2])
        check(server, "P10")


@pytest.mark.parametrize(
    ("capture", "settings", "parts"),
    [
        ("P11", {"batch_size": 2}, [M1_M2]),
        ("P12", {"batch_size": 4, **GZIP_OF_LOGS}, [M1_M2, L1_L2]),
        ("P13", {"batch_size": 2, "compression_codec": "2"}, [M1_M2]),
        ("P22", {"batch_size": 50}, [Part("perf", [ZEROS] * 50)]),
    ],
)
def test_asynchronous(server, capture, settings, parts) -> None:
    with async_producer(server, **settings) as producer:
        for part in parts:
            for payload in part.payloads:
                producer.send(part.topic, payload)
        check(server, capture)


@pytest.fixture
def zookeeper(registry: InMemoryRegistry, server: ScriptedBroker) -> InMemoryRegistry:
    register(registry, 0, server.address, test=2, logs=1)
    return registry


def test_a_key_chooses_the_partition(server, zookeeper) -> None:
    with Producer(registry=zookeeper) as producer:
        for key in ("a", "b"):
            producer.send("test", b"m1", key=key)
        check(server, "P15", "P16")


def test_no_key_chooses_an_explicit_partition_at_random(server, zookeeper) -> None:
    with Producer(registry=zookeeper, rng=random.Random(1)) as producer:
        for _ in range(40):
            producer.send("test", b"m1")
        assert set(server.produce_frames(40)) == {vector("P14"), vector("P15")}


def test_a_batch_has_one_part_for_each_topic_and_partition(server, zookeeper) -> None:
    """The original puts the parts in the order of its hash map."""
    with Producer(registry=zookeeper, producer_type="async", batch_size=3) as producer:
        producer.send("test", b"m1", key="a")
        producer.send("logs", b"m3")
        producer.send("test", b"m2", key="b")
        check(server, "P17")
