"""Dropping exactly k messages out of 0.7 frames, counted independently by reading what is left."""

import random

import pytest

from kafka2011.protocol.compression import Codec
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


def produce(topic: str, *texts: str, codec: Codec = Codec.NONE) -> ProduceRequest:
    return ProduceRequest(topic, 0, encode_compressed([text.encode() for text in texts], codec))


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


def conversation() -> bytes:
    """Frames of every kind, `a` with 14 messages and `b` with 4."""
    return b"".join(
        encode_request(request)
        for request in (
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
        )
    )


def fed(filter_: FrameFilter, stream: bytes, size: int) -> bytes:
    return b"".join(
        filter_.feed(stream[start : start + size]) for start in range(0, len(stream), size)
    )


A_TEXTS = [f"a{number}" for number in range(14)]
B_TEXTS = [f"b{number}" for number in range(4)]


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
def test_without_a_drill_everything_passes(size: int) -> None:
    assert fed(FrameFilter(DropPlan()), conversation(), size) == conversation()


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
@pytest.mark.parametrize("count", range(1, 15))
def test_exactly_k_messages_are_gone_and_nothing_else(count: int, size: int) -> None:
    plan = DropPlan()
    plan.start("a", count)
    passed = fed(FrameFilter(plan), conversation(), size)
    assert texts_in(passed, "a") == A_TEXTS[count:]
    assert texts_in(passed, "b") == B_TEXTS
    assert plan.dropped == {"a": count}
    assert not plan.is_active
    others = [r for r in requests_in(passed) if isinstance(r, OffsetsRequest | FetchRequest)]
    assert len(others) == 2


def test_more_than_there_are_drops_all_and_stays_active() -> None:
    plan = DropPlan()
    plan.start("a", 20)
    passed = fed(FrameFilter(plan), conversation(), 5)
    assert texts_in(passed, "a") == []
    assert (plan.dropped, plan.remaining_count) == ({"a": 14}, 6)


def test_drill_that_starts_at_any_byte_takes_effect_at_the_next_frame() -> None:
    stream = conversation()
    last_frames = len(encode_request(produce("b", "b3")) + encode_request(produce("a", "a13")))
    for start in range(len(stream)):
        plan = DropPlan()
        filter_ = FrameFilter(plan)
        passed = filter_.feed(stream[:start]) if start else b""
        plan.start("a", 2)
        passed += fed(filter_, stream[start:], 3)
        left = texts_in(passed, "a")
        assert len(left) == 14 - plan.dropped.get("a", 0)
        assert texts_in(passed, "b") == B_TEXTS
        if start <= len(stream) - last_frames - len(encode_request(produce("a", *A_TEXTS[10:13]))):
            assert plan.dropped == {"a": 2}


def test_drill_called_off_in_the_middle_of_a_frame_loses_no_byte() -> None:
    stream = conversation()
    for stop in range(1, len(stream)):
        plan = DropPlan()
        plan.start("c", 1)  # nothing of it is there, so every frame is collected
        filter_ = FrameFilter(plan)
        passed = filter_.feed(stream[:stop])
        plan.start("", 0)
        passed += filter_.feed(stream[stop:]) + filter_.finish()
        assert passed == stream
        plan.start("a", 1)
        assert texts_in(filter_.feed(encode_request(produce("a", "x", "y"))), "a") == ["y"]


def test_two_connections_share_the_count() -> None:
    plan = DropPlan()
    plan.start("a", 3)
    filters = [FrameFilter(plan), FrameFilter(plan)]
    rng = random.Random(7)
    streams = [conversation(), conversation()]
    passed = [b"", b""]
    while any(streams):
        which = rng.choice([number for number in (0, 1) if streams[number]])
        size = rng.randint(1, 50)
        passed[which] += filters[which].feed(streams[which][:size])
        streams[which] = streams[which][size:]
    left = sum(len(texts_in(one + f.finish(), "a")) for one, f in zip(passed, filters, strict=True))
    assert left == 28 - 3


def test_end_in_the_middle_of_a_frame_passes_the_cut_frame() -> None:
    plan = DropPlan()
    plan.start("a", 3)
    filter_ = FrameFilter(plan)
    cut = encode_request(produce("a", "whole"))[:-1]
    assert filter_.feed(cut) == b""
    assert filter_.finish() == cut


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n", b"\0\0\0\0rest", b"\xff\xff\xff\xff.."])
def test_what_is_not_frames_passes_untouched(junk: bytes) -> None:
    plan = DropPlan()
    plan.start("a", 3)
    filter_ = FrameFilter(plan)
    assert fed(filter_, junk, 2) + filter_.finish() == junk
    assert filter_.feed(conversation()) == conversation()


def test_unreadable_request_passes_untouched() -> None:
    plan = DropPlan()
    plan.start("a", 3)
    frame = bytes.fromhex("00000003000041")  # a produce request that is cut inside
    assert FrameFilter(plan).feed(frame) == frame


def test_magic_0_and_nested_wrappers_keep_their_form() -> None:
    inner = encode_compressed([b"x", b"y"], Codec.GZIP)
    nested = encode_compressed([b"never used"], Codec.NONE)[:0]
    # A wrapper whose content is: a plain entry, a wrapper of x and y, a magic-0 entry.
    content = encode([b"w"]) + inner + encode([b"z"], magic=0)
    from kafka2011.protocol.checksum import crc32
    from kafka2011.protocol.compression import compress
    from kafka2011.protocol.message import MAGIC1_HEADER

    packed = compress(Codec.SNAPPY, content)
    outer = MAGIC1_HEADER.pack(len(packed) + 6, 1, Codec.SNAPPY, crc32(packed)) + packed
    assert payloads(outer + nested) == [b"w", b"x", b"y", b"z"]
    for count, left in ((1, [b"x", b"y", b"z"]), (2, [b"y", b"z"]), (3, [b"z"]), (4, [])):
        shorter, removed = without_messages(outer, count)
        assert (payloads(shorter), removed) == (left, count)
    assert without_messages(encode([b"m"], magic=0) + encode([b"n"]), 1) == (encode([b"n"]), 1)
