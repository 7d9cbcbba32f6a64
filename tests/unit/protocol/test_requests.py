"""The requests of the original clients, as bytes and as objects, fed in every way."""

import struct

import pytest

from kafka2011.protocol import message_set
from kafka2011.protocol.errors import LocalProtocolError, RemoteProtocolError
from kafka2011.protocol.requests import (
    EARLIEST,
    LATEST,
    FetchRequest,
    LineageRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    Request,
    decode_request,
    encode_request,
)
from tests.vectors import names, vector

V2, S1, S4, S5 = (vector(name) for name in ("V2", "S1", "S4", "S5"))
ZEROS50 = message_set.encode([bytes(200)] * 50)
MIB = 1024 * 1024


def messages(*payloads: bytes) -> bytes:
    return message_set.encode(payloads)


M1, M2 = messages(b"m1"), messages(b"m2")


def multi_produce(*parts: tuple[str, int, bytes]) -> MultiProduceRequest:
    return MultiProduceRequest([ProduceRequest(*part) for part in parts])


def multi_fetch(*parts: tuple[str, int, int, int]) -> MultiFetchRequest:
    return MultiFetchRequest([FetchRequest(*part) for part in parts])


REQUESTS: dict[str, Request] = {
    "V7": ProduceRequest("test", 0, V2),
    "V8": multi_produce(("test", 0, V2), ("logs", -1, message_set.encode([b"world"], 0))),
    "V9": FetchRequest("test", 0, 0, 307200),
    "V11": multi_fetch(("test", 0, 0, MIB), ("test", 1, 0, MIB), ("logs", 9, 0, MIB)),
    "V13.1": OffsetsRequest("test", 0, LATEST, 10),
    "V13.2": OffsetsRequest("test", 0, EARLIEST, 1),
    "P1": ProduceRequest("test", 0, S1),
    "P2": ProduceRequest("test", -1, S1),
    "P3": ProduceRequest("test", 0, S4),
    "P4": ProduceRequest("test", 0, S5),
    "P5": ProduceRequest("test", 0, b""),
    "P6": multi_produce(("test", 0, S1), ("test", 1, S4), ("logs", -1, messages(b"x", b"y"))),
    "P7": ProduceRequest("test", -1, M1),
    "P8": ProduceRequest("test", -1, M1 + M2),
    "P9": multi_produce(("test", -1, M1), ("logs", -1, messages(b"l1", b"l2"))),
    "P11": multi_produce(("test", -1, M1 + M2)),
    "P14": ProduceRequest("test", 0, M1),
    "P15": ProduceRequest("test", 1, M1),
    "P16": ProduceRequest("test", 0, M1),
    "P17": multi_produce(("test", 1, M1), ("logs", 0, messages(b"m3")), ("test", 0, M2)),
    "P20": ProduceRequest("perf", -1, ZEROS50),
    "P21": ProduceRequest("perf", -1, messages(bytes(200))),
    "P22": multi_produce(("perf", -1, ZEROS50)),
    "F1": FetchRequest("test", 0, 0, 1000),
    "F2": FetchRequest("perf", 0, 0, 20000),
    "F3": multi_fetch(
        ("test", 0, 0, 15),
        ("test", 1, 0, 1000),
        ("logs", 9, 0, 1000),
        ("nosuch", 0, 0, 1000),
        ("test", 0, 9999999, 100),
    ),
    "F4": multi_fetch(("nest", 0, 0, 1000)),
    "F5": multi_fetch(("cons", 1, 0, MIB), ("cons", 0, 0, MIB)),
    "F6": multi_fetch(
        ("logs", 1, 0, MIB), ("logs", 0, 0, MIB), ("cons", 1, 0, MIB), ("cons", 0, 0, MIB)
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


def test_every_recorded_request_is_expected_here() -> None:
    assert set(names("P", "F")) <= REQUESTS.keys() | PACKED.keys()


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_decoded_and_encoded_to_the_byte(name: str) -> None:
    assert decode_request(vector(name)[4:]) == REQUESTS[name]
    assert encode_request(REQUESTS[name]) == vector(name)


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
def test_trailing_bytes_are_ignored_and_every_cut_request_is_refused(name: str) -> None:
    body = vector(name)[4:]
    assert decode_request(body + b"ignored") == decode_request(body)
    sizes = range(len(body)) if len(body) < 300 else [*range(40), len(body) - 1]
    for size in sizes:
        with pytest.raises(RemoteProtocolError):
            decode_request(body[:size])


def test_a_lineage_request_goes_round_and_every_cut_one_is_refused() -> None:
    frame = encode_request(LineageRequest("test", 3))
    assert decode_request(frame[4:]) == LineageRequest("test", 3)
    for size in range(len(frame) - 4):
        with pytest.raises(RemoteProtocolError):
            decode_request(frame[4:][:size])


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


MALFORMED = {
    "produce: null topic": body("P1", 2, b"\xff\xff"),
    "produce: topic length -2": body("P1", 2, b"\xff\xfe"),
    "produce: topic longer than the body": body("P1", 2, b"\x7f\xff"),
    "produce: set size 100, 15 follow": body("P1", 12, b"\0\0\0\x64"),
    "produce: set size -1": body("P1", 12, b"\xff\xff\xff\xff"),
    "multi-produce: count -1": body("P11", 2, b"\xff\xff"),
    "multi-produce: count 32767, one part": body("P11", 2, b"\x7f\xff"),
    "fetch: null topic": body("F1", 2, b"\xff\xff"),
    "multi-fetch: count -1": body("F3", 2, b"\xff\xff"),
    "multi-fetch: one part missing": body("F3", 2, b"\0\6"),
    "frame of one byte": b"\0",
    "empty frame": b"",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_requests_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request(data)


ODD = {
    "no part to produce": (b"\0\3\0\0", multi_produce()),
    "no part to fetch": (b"\0\2\0\0", multi_fetch()),
    "partition -2": (body("P1", 8, b"\xff\xff\xff\xfe"), ProduceRequest("test", -2, S1)),
    "a topic that is a path": (body("P1", 4, b"a/.."), ProduceRequest("a/..", 0, S1)),
    "a set smaller than the body": (
        body("P1", 12, b"\0\0\0\x0a"),
        ProduceRequest("test", 0, S1[:10]),
    ),
    # The original answers with a size that says so, and closes.
    "size -1": (body("F1", 20, b"\xff\xff\xff\xff"), FetchRequest("test", 0, 0, -1)),
    # Negative counts matter only where there is a log.
    "count -1": (body("F7", 20, b"\xff\xff\xff\xff"), OffsetsRequest("test", 0, -1, -1)),
    # What is not UTF-8 becomes a character that no topic may hold.
    "no UTF-8": (body("F1", 4, b"\xff\xfe\xfd\xfc"), FetchRequest("\ufffd" * 4, 0, 0, 1000)),
    "an empty topic": (
        struct.pack(">hhiqi", 1, 0, 0, -5, 2**31 - 1),
        FetchRequest("", 0, -5, 2**31 - 1),
    ),
    "a topic beyond ASCII": (
        encode_request(OffsetsRequest("thème-日本", -7, 5, 0))[4:],
        OffsetsRequest("thème-日本", -7, 5, 0),
    ),
}


@pytest.mark.parametrize(("data", "request_"), ODD.values(), ids=ODD)
def test_legal_oddities_are_left_to_the_broker(data: bytes, request_: Request) -> None:
    assert decode_request(data) == request_


@pytest.mark.parametrize(
    "request_",
    [
        ProduceRequest("t" * 32768, 0, b""),
        ProduceRequest("t", 2**31, b""),
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
