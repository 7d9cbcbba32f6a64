"""Dropping exactly k messages out of 0.7 frames, counted independently by reading what is left."""

import random

import pytest

from kafka2011.protocol.checksum import crc32
from kafka2011.protocol.compression import Codec, compress
from kafka2011.protocol.message import MAGIC1_HEADER
from kafka2011.protocol.message_set import encode, encode_compressed, payloads
from kafka2011.protocol.requests import (
    LATEST,
    FetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    Request,
    decode_request,
    encode_request,
)
from kafka2011.services.proxy.frames import DropPlan, FrameFilter, without_messages

A_TEXTS = [f"a{number}" for number in range(14)]
B_TEXTS = [f"b{number}" for number in range(4)]


def produce(topic: str, *texts: str, codec: Codec = Codec.NONE) -> ProduceRequest:
    return ProduceRequest(topic, 0, encode_compressed([text.encode() for text in texts], codec))


REQUESTS = [
    produce("a", "a0"),
    produce("b", "b0", "b1"),
    OffsetsRequest("a", 0, LATEST, 1),
    produce("a", "a1", "a2", "a3", codec=Codec.GZIP),
    MultiProduceRequest(
        [
            produce("a", "a4", "a5"),
            produce("b", "b2"),
            produce("a", "a6", "a7", "a8", "a9", codec=Codec.SNAPPY),
        ]
    ),
    FetchRequest("a", 0, 0, 1000),
    produce("a", "a10", "a11", "a12"),
    produce("b", "b3"),
    produce("a", "a13"),
]
CONVERSATION = b"".join(map(encode_request, REQUESTS))


def requests_in(stream: bytes) -> list[Request]:
    found = []
    while stream:
        size = int.from_bytes(stream[:4], "big")
        assert len(stream) >= 4 + size, "the last frame is cut"
        found.append(decode_request(stream[4 : 4 + size]))
        stream = stream[4 + size :]
    return found


def texts_in(stream: bytes, topic: str) -> list[str]:
    """The independent count: every message of a topic in a stream of frames."""
    found = []
    for request in requests_in(stream):
        parts = request.parts if isinstance(request, MultiProduceRequest) else [request]
        for part in parts:
            if isinstance(part, ProduceRequest) and part.topic == topic:
                found += [payload.decode() for payload in payloads(part.message_set)]
    return found


def drill(topic: str, count: int) -> tuple[DropPlan, FrameFilter]:
    plan = DropPlan()
    plan.start(topic, count)
    return plan, FrameFilter(plan)


def fed(filter_: FrameFilter, stream: bytes, size: int) -> bytes:
    return b"".join(
        filter_.feed(stream[start : start + size]) for start in range(0, len(stream), size)
    )


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
@pytest.mark.parametrize("count", range(15))
def test_exactly_k_messages_are_gone_and_nothing_else(count, size) -> None:
    plan, filter_ = drill("a", count)
    passed = fed(filter_, CONVERSATION, size)
    assert texts_in(passed, "a") == A_TEXTS[count:]
    assert texts_in(passed, "b") == B_TEXTS
    assert plan.dropped.get("a", 0) == count
    assert not plan.is_active
    others = [r for r in requests_in(passed) if isinstance(r, OffsetsRequest | FetchRequest)]
    assert len(others) == 2
    assert count or passed == CONVERSATION


def test_more_than_there_are_drops_all_and_stays_active() -> None:
    plan, filter_ = drill("a", 20)
    assert texts_in(fed(filter_, CONVERSATION, 5), "a") == []
    assert (plan.dropped, plan.remaining_count) == ({"a": 14}, 6)


def test_drill_that_starts_at_any_byte_takes_effect_at_the_next_frame() -> None:
    last_three = sum(len(encode_request(request)) for request in REQUESTS[-3:])
    for start in range(len(CONVERSATION)):
        plan = DropPlan()
        filter_ = FrameFilter(plan)
        passed = filter_.feed(CONVERSATION[:start]) if start else b""
        plan.start("a", 2)
        passed += fed(filter_, CONVERSATION[start:], 3)
        assert len(texts_in(passed, "a")) == 14 - plan.dropped.get("a", 0)
        assert texts_in(passed, "b") == B_TEXTS
        if start <= len(CONVERSATION) - last_three:
            assert plan.dropped == {"a": 2}


def test_drill_called_off_in_the_middle_of_a_frame_loses_no_byte() -> None:
    for stop in range(1, len(CONVERSATION)):
        plan, filter_ = drill("c", 1)  # nothing of it is there, so every frame is collected
        passed = filter_.feed(CONVERSATION[:stop])
        plan.start("", 0)
        passed += filter_.feed(CONVERSATION[stop:]) + filter_.finish()
        assert passed == CONVERSATION
        plan.start("a", 1)
        assert texts_in(filter_.feed(encode_request(produce("a", "x", "y"))), "a") == ["y"]


def test_two_connections_share_the_count() -> None:
    plan, first = drill("a", 3)
    filters = [first, FrameFilter(plan)]
    rng = random.Random(7)
    streams = [CONVERSATION, CONVERSATION]
    passed = [b"", b""]
    while any(streams):
        which = rng.choice([number for number in (0, 1) if streams[number]])
        size = rng.randint(1, 50)
        passed[which] += filters[which].feed(streams[which][:size])
        streams[which] = streams[which][size:]
    left = sum(len(texts_in(one + f.finish(), "a")) for one, f in zip(passed, filters, strict=True))
    assert left == 28 - 3


@pytest.mark.parametrize(
    "cut_or_unreadable",
    [
        encode_request(produce("a", "whole"))[:-1],
        bytes.fromhex("00000003000041"),  # a whole frame of a produce request that is cut inside
        b"GET / HTTP/1.1\r\n",
        b"\0\0\0\0rest",
        b"\xff\xff\xff\xff..",
    ],
)
def test_what_is_no_readable_frame_passes_untouched(cut_or_unreadable) -> None:
    _, filter_ = drill("a", 3)
    assert fed(filter_, cut_or_unreadable, 2) + filter_.finish() == cut_or_unreadable


def test_after_what_is_not_frames_everything_passes() -> None:
    _, filter_ = drill("a", 3)
    filter_.feed(b"GET / HTTP/1.1\r\n")
    assert filter_.feed(CONVERSATION) == CONVERSATION


def test_magic_0_and_nested_wrappers_keep_their_form() -> None:
    inner = encode_compressed([b"x", b"y"], Codec.GZIP)
    # A wrapper whose content is: a plain entry, a wrapper of x and y, a magic-0 entry.
    packed = compress(Codec.SNAPPY, encode([b"w"]) + inner + encode([b"z"], magic=0))
    outer = MAGIC1_HEADER.pack(len(packed) + 6, 1, Codec.SNAPPY, crc32(packed)) + packed
    for count in range(5):
        shorter, removed = without_messages(outer, count)
        assert (payloads(shorter), removed) == ([b"w", b"x", b"y", b"z"][count:], count)
    assert without_messages(encode([b"m"], magic=0) + encode([b"n"]), 1) == (encode([b"n"]), 1)
