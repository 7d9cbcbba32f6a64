"""The broker's fast path: it takes what is plainly good, and stops before everything else."""

from types import ModuleType

import pytest

from protocol import message_set
from protocol.compression import Codec
from protocol.requests import (
    FetchRequest,
    MultiProduceRequest,
    ProduceRequest,
    encode_request,
    produce_frames,
)
from tests.vectors import vector

V = vector("V2")
GOOD = vector("P1")


def produce(topic: str, partition: int, data: bytes) -> bytes:
    return encode_request(ProduceRequest(topic, partition, data))


def test_complete_frames_are_taken_with_their_positions(twin: ModuleType) -> None:
    other = produce("logs", -1, V + vector("V1"))
    buffer = bytearray(b"junk" + GOOD + other + GOOD + GOOD[:20] + b"behind")
    end = len(buffer) - 6
    stop, frames = twin.produce_frames(buffer, 4, end, 10**6, 10**6)
    assert stop == 4 + 2 * len(GOOD) + len(other)
    assert [frame[:2] + frame[4:] for frame in frames] == [
        (b"test", 0, 1),
        (b"logs", -1, 2),
        (b"test", 0, 1),
    ]
    sets = [bytes(buffer[start:set_end]) for _, _, start, set_end, _ in frames]
    assert sets == [V, V + vector("V1"), V]
    assert produce_frames(buffer, 4, end, 10**6, 10**6) == (stop, frames)


def test_an_empty_set_is_a_frame_with_no_messages(twin: ModuleType) -> None:
    stop, frames = twin.produce_frames(vector("P5"), 0, 20, 10**6, 10**6)
    assert (stop, frames) == (20, [(b"test", 0, 20, 20, 0)])


def test_bytes_behind_the_set_inside_a_frame_are_skipped(twin: ModuleType) -> None:
    frame = bytearray(GOOD + b"extra")
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    stop, frames = twin.produce_frames(frame + GOOD, 0, len(frame) + len(GOOD), 10**6, 10**6)
    assert stop == len(frame) + len(GOOD)
    assert [frame[4] for frame in frames] == [1, 1]


def damaged(at: int, replacement: bytes) -> bytes:
    frame = bytearray(GOOD)
    frame[at : at + len(replacement)] = replacement
    return bytes(frame)


STOPS = {
    "another request": encode_request(FetchRequest("test", 0, 0, 1)),
    "multi-produce": encode_request(MultiProduceRequest([])) + bytes(8),
    "a compressed set": produce("test", 0, message_set.encode_compressed([b"x"], Codec.GZIP)),
    "codec bits 3": damaged(25, b"\3"),
    "a wrong CRC": damaged(34, b"!"),
    "a cut tail": produce("test", 0, V + bytes(3)),
    "a cut first entry": produce("test", 0, V[:9]),
    "a payload above the limit": produce("test", 0, message_set.encode([bytes(101)])),
    "frame size 0": damaged(0, bytes(4)),
    "frame size -1": damaged(0, b"\xff\xff\xff\xff"),
    "a frame above the limit": produce("test", 0, message_set.encode([bytes(90)] * 12)),
    "a null topic": damaged(6, b"\xff\xff"),
    "a topic longer than the frame": damaged(6, b"\0\x64"),
    "a set size of -1": damaged(16, b"\xff\xff\xff\xff"),
    "a set longer than the frame": damaged(16, b"\0\0\0\x10"),
    "an unknown request id": damaged(4, b"\1\0"),
    "an unknown magic": damaged(24, b"\2"),
}


@pytest.mark.parametrize("name", STOPS)
def test_it_stops_before(twin: ModuleType, name: str) -> None:
    buffer = GOOD + STOPS[name] + GOOD
    stop, frames = twin.produce_frames(buffer, 0, len(buffer), 1000, 100)
    assert stop == len(GOOD)
    assert len(frames) == 1
    stop, frames = twin.produce_frames(STOPS[name], 0, len(STOPS[name]), 1000, 100)
    assert (stop, frames) == (0, [])


def test_every_cut_frame_is_left_for_later(twin: ModuleType) -> None:
    buffer = GOOD * 2
    for end in range(len(GOOD), 2 * len(GOOD)):
        assert twin.produce_frames(buffer, 0, end, 10**6, 10**6)[0] == len(GOOD)


def test_positions_outside_the_buffer_are_our_own_mistake(twin: ModuleType) -> None:
    for start, end in ((-1, 3), (3, 2), (0, 36)):
        with pytest.raises(ValueError, match="start and end"):
            twin.produce_frames(GOOD, start, end, 10, 10)
