"""The requests of the original clients, as bytes and as objects, fed in every way."""

import struct

import pytest

from kafka2011.protocol import message_set
from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError
from kafka2011.protocol.requests import (
    EARLIEST,
    LATEST,
    FetchRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    Request,
    decode_request,
    encode_request,
)
from tests.support.frames import NEED_DATA, FrameReader
from tests.vectors import names, vector

V2, S1, S4, S5 = (vector(name) for name in ("V2", "S1", "S4", "S5"))
M1 = message_set.encode([b"m1"])
M2 = message_set.encode([b"m2"])
M3 = message_set.encode([b"m3"])
ZEROS50 = message_set.encode([bytes(200)] * 50)
MIB = 1024 * 1024


def Produce(topic: str, partition: int, data: bytes) -> ProduceRequest:
    return ProduceRequest(topic, partition, data)


REQUESTS: dict[str, Request] = {
    "V7": Produce("test", 0, V2),
    "V8": MultiProduceRequest(
        [Produce("test", 0, V2), Produce("logs", -1, message_set.encode([b"world"], 0))]
    ),
    "V9": FetchRequest("test", 0, 0, 307200),
    "V11": MultiFetchRequest(
        [
            FetchRequest("test", 0, 0, MIB),
            FetchRequest("test", 1, 0, MIB),
            FetchRequest("logs", 9, 0, MIB),
        ]
    ),
    "V13.1": OffsetsRequest("test", 0, LATEST, 10),
    "V13.2": OffsetsRequest("test", 0, EARLIEST, 1),
    "P1": Produce("test", 0, S1),
    "P2": Produce("test", -1, S1),
    "P3": Produce("test", 0, S4),
    "P4": Produce("test", 0, S5),
    "P5": Produce("test", 0, b""),
    "P6": MultiProduceRequest(
        [
            Produce("test", 0, S1),
            Produce("test", 1, S4),
            Produce("logs", -1, message_set.encode([b"x", b"y"])),
        ]
    ),
    "P7": Produce("test", -1, M1),
    "P8": Produce("test", -1, M1 + M2),
    "P9": MultiProduceRequest(
        [Produce("test", -1, M1), Produce("logs", -1, message_set.encode([b"l1", b"l2"]))]
    ),
    "P11": MultiProduceRequest([Produce("test", -1, M1 + M2)]),
    "P14": Produce("test", 0, M1),
    "P15": Produce("test", 1, M1),
    "P16": Produce("test", 0, M1),
    "P17": MultiProduceRequest(
        [Produce("test", 1, M1), Produce("logs", 0, M3), Produce("test", 0, M2)]
    ),
    "P20": Produce("perf", -1, ZEROS50),
    "P21": Produce("perf", -1, message_set.encode([bytes(200)])),
    "P22": MultiProduceRequest([Produce("perf", -1, ZEROS50)]),
    "F1": FetchRequest("test", 0, 0, 1000),
    "F2": FetchRequest("perf", 0, 0, 20000),
    "F3": MultiFetchRequest(
        [
            FetchRequest("test", 0, 0, 15),
            FetchRequest("test", 1, 0, 1000),
            FetchRequest("logs", 9, 0, 1000),
            FetchRequest("nosuch", 0, 0, 1000),
            FetchRequest("test", 0, 9999999, 100),
        ]
    ),
    "F4": MultiFetchRequest([FetchRequest("nest", 0, 0, 1000)]),
    "F5": MultiFetchRequest([FetchRequest("cons", 1, 0, MIB), FetchRequest("cons", 0, 0, MIB)]),
    "F6": MultiFetchRequest(
        [
            FetchRequest("logs", 1, 0, MIB),
            FetchRequest("logs", 0, 0, MIB),
            FetchRequest("cons", 1, 0, MIB),
            FetchRequest("cons", 0, 0, MIB),
        ]
    ),
    "F7": OffsetsRequest("test", 0, -1, 10),
    "F8": OffsetsRequest("test", 0, -2, 10),
    "F9": OffsetsRequest("test", 0, 1000, 10),
    "F10": OffsetsRequest("cons", 0, -2, 1),
    "F11": OffsetsRequest("cons", 0, -1, 1),
}

# Compressed by the original: topic, partition and the messages that its sets must unpack to.
PACKED: dict[str, list[tuple[str, int, list[bytes]]]] = {
    "P10": [("test", -1, [b"m1", b"m2"])],
    "P12": [("test", -1, [b"m1", b"m2"]), ("logs", -1, [b"l1", b"l2"])],
    "P13": [("test", -1, [b"m1", b"m2"])],
    "P18": [("cons", 0, [b"one", b"two", b"three"])],
    "P19": [("cons", 1, [b"one"])],
    "P23": [
        ("nest", -1, [b"out1", b"in1", b"in2"]),
        ("cons", -1, [b"one", b"one", b"two", b"three", b"two"]),
    ],
}


def frames_of(stream: bytes, chunk_size: int) -> tuple[list[bytes], int]:
    reader = FrameReader(10**8)
    frames: list[bytes] = []
    for start in range(0, len(stream), chunk_size):
        reader.receive_data(stream[start : start + chunk_size])
        while (frame := reader.next_frame()) is not NEED_DATA:
            frames.append(bytes(frame))
    return frames, reader.pending_bytes


def test_every_recorded_request_is_expected_here() -> None:
    assert set(names("P", "F")) <= set(REQUESTS) | set(PACKED)


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_decoded_and_encoded_to_the_byte(name: str) -> None:
    assert decode_request(vector(name)[4:]) == REQUESTS[name]
    assert encode_request(REQUESTS[name]) == vector(name)


@pytest.mark.parametrize("name", [*REQUESTS, *PACKED])
def test_request_survives_whole_byte_by_byte_and_with_trailing_bytes(name: str) -> None:
    frame = vector(name)
    body = frame[4:]
    assert frames_of(frame, len(frame)) == ([body], 0)
    assert frames_of(frame, 1) == ([body], 0)
    assert frames_of(frame + frame[:7], 5) == ([body], 7), "trailing bytes stay untouched"
    assert frames_of(frame * 3, 11) == ([body] * 3, 0), "pipelined"
    assert decode_request(body + b"ignored") == decode_request(body)


@pytest.mark.parametrize("name", PACKED)
def test_compressed_request_unpacks_to_what_was_sent(name: str) -> None:
    request = decode_request(vector(name)[4:])
    assert isinstance(request, ProduceRequest | MultiProduceRequest)
    parts = [request] if isinstance(request, ProduceRequest) else request.parts
    assert [
        (part.topic, part.partition, message_set.payloads(part.message_set)) for part in parts
    ] == PACKED[name]
    assert encode_request(request) == vector(name)


@pytest.mark.parametrize("name", [*REQUESTS, *PACKED])
def test_every_cut_request_is_refused(name: str) -> None:
    body = vector(name)[4:]
    sizes = range(len(body)) if len(body) < 300 else [*range(40), len(body) - 1]
    for size in sizes:
        with pytest.raises(RemoteProtocolError):
            decode_request(body[:size])


def test_message_sets_are_views_not_copies() -> None:
    body = bytearray(vector("P1")[4:])
    request = decode_request(memoryview(body))
    assert isinstance(request, ProduceRequest)
    assert isinstance(request.message_set, memoryview)
    assert request.message_set.obj is body


@pytest.mark.parametrize("request_id", [5, -1, 32767, -32768])
def test_unknown_request_ids_are_refused(request_id: int) -> None:
    with pytest.raises(RemoteProtocolError, match="request id"):
        decode_request(struct.pack(">h", request_id) + bytes(40))


def body(name: str, at: int, replacement: bytes) -> bytes:
    """The body of a vector with `replacement` written over the bytes at `at`."""
    data = bytearray(vector(name)[4:])
    data[at : at + len(replacement)] = replacement
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(body("P1", 2, b"\xff\xff"), id="produce: null topic"),
        pytest.param(body("P1", 2, b"\xff\xfe"), id="produce: topic length -2"),
        pytest.param(body("P1", 2, b"\x7f\xff"), id="produce: topic longer than the body"),
        pytest.param(body("P1", 12, b"\0\0\0\x64"), id="produce: set size 100, 15 follow"),
        pytest.param(body("P1", 12, b"\xff\xff\xff\xff"), id="produce: set size -1"),
        pytest.param(body("P11", 2, b"\xff\xff"), id="multi-produce: count -1"),
        pytest.param(body("P11", 2, b"\x7f\xff"), id="multi-produce: count 32767, one part"),
        pytest.param(body("F1", 2, b"\xff\xff"), id="fetch: null topic"),
        pytest.param(body("F3", 2, b"\xff\xff"), id="multi-fetch: count -1"),
        pytest.param(body("F3", 2, b"\0\6"), id="multi-fetch: one part missing"),
        pytest.param(b"\0", id="frame of one byte"),
        pytest.param(b"", id="empty frame"),
    ],
)
def test_malformed_requests_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request(data)


def test_legal_oddities_are_left_to_the_broker() -> None:
    assert decode_request(b"\0\3\0\0") == MultiProduceRequest([])
    assert decode_request(b"\0\2\0\0") == MultiFetchRequest([])
    assert decode_request(body("P1", 8, b"\xff\xff\xff\xfe")) == Produce("test", -2, S1)
    assert decode_request(body("P1", 4, b"a/..")) == Produce("a/..", 0, S1)
    assert decode_request(body("P1", 12, b"\0\0\0\x0a")) == Produce("test", 0, S1[:10])
    # The original answers with a size that says so, and closes.
    negative = decode_request(body("F1", 20, b"\xff\xff\xff\xff"))
    assert negative == FetchRequest("test", 0, 0, -1)
    # Negative counts matter only where there is a log.
    no_count = decode_request(body("F7", 20, b"\xff\xff\xff\xff"))
    assert no_count == OffsetsRequest("test", 0, -1, -1)
    # What is not UTF-8 becomes a character that no topic may hold.
    garbled = decode_request(body("F1", 4, b"\xff\xfe\xfd\xfc"))
    assert garbled == FetchRequest("\ufffd" * 4, 0, 0, 1000)
    empty_topic = struct.pack(">hhiqi", 1, 0, 0, -5, 2**31 - 1)
    assert decode_request(empty_topic) == FetchRequest("", 0, -5, 2**31 - 1)
    unicode_topic = encode_request(OffsetsRequest("thème-日本", -7, 5, 0))
    assert decode_request(unicode_topic[4:]) == OffsetsRequest("thème-日本", -7, 5, 0)


@pytest.mark.parametrize(
    "request_",
    [
        Produce("t" * 32768, 0, b""),
        Produce("t", 2**31, b""),
        FetchRequest("t", 0, 2**63, 0),
        FetchRequest("t", 0, 0, 2**31),
        OffsetsRequest("\ud800", 0, 0, 0),
        MultiFetchRequest([FetchRequest("t", 0, 0, 0)] * 32768),
    ],
    ids=["topic", "partition", "offset", "size", "surrogate", "count"],
)
def test_what_does_not_fit_is_our_own_error(request_: Request) -> None:
    with pytest.raises(LocalProtocolError):
        encode_request(request_)
