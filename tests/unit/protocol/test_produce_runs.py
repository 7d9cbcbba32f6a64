"""The broker's fast path: it takes what is plainly good, and stops before everything else."""

import random
from types import ModuleType

import pytest

from kafka2011.protocol import message_set, requests
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.requests import decode_route, encode_request
from tests.vectors import vector

V = vector("V2")
GOOD = vector("P1")
LIMIT = 10**6

Run = tuple[str, int, bytes, int, int]  # topic, partition, sets, messages, frames


def produce(topic: str, partition: int, data: bytes) -> bytes:
    return encode_request(requests.ProduceRequest(topic, partition, data))


def taken(
    twin: ModuleType, data: bytes, frame_bytes_max: int = LIMIT, message_bytes_max: int = LIMIT
) -> tuple[int, list[Run]]:
    buffer = bytearray(data)
    stop, runs = twin.produce_runs(buffer, 0, len(data), frame_bytes_max, message_bytes_max)
    assert buffer[stop:] == data[stop:], "what was not taken is untouched"
    return stop, [
        (*decode_route(route), bytes(buffer[start:end]), message_count, frame_count)
        for route, start, end, message_count, frame_count in runs
    ]


def test_frames_to_one_partition_become_one_run(twin: ModuleType) -> None:
    others = produce("test", 1, V) + produce("logs", 0, V + vector("V1")) + produce("logs", 0, V)
    data = GOOD * 3 + others + GOOD + GOOD[:20]
    stop, runs = taken(twin, data)
    assert stop == len(data) - 20
    assert runs == [
        ("test", 0, V * 3, 3, 3),
        ("test", 1, V, 1, 1),
        ("logs", 0, V + vector("V1") + V, 3, 2),
        ("test", 0, V, 1, 1),
    ]


def test_positions_are_those_of_the_buffer(twin: ModuleType) -> None:
    buffer = bytearray(b"head" + GOOD * 2 + b"tail")
    stop, runs = twin.produce_runs(buffer, 4, 4 + 2 * len(GOOD), LIMIT, LIMIT)
    assert stop == 4 + 2 * len(GOOD)
    assert runs == [(GOOD[6:16], 4 + 20, 4 + 20 + 30, 2, 2)]
    assert (buffer[:4], buffer[-4:]) == (b"head", b"tail")
    assert requests.produce_runs(memoryview(buffer), 0, 4, LIMIT, LIMIT) == (0, [])


def test_requests_for_any_partition_are_merged_as_any_others(twin: ModuleType) -> None:
    assert taken(twin, vector("P2") * 3 + GOOD)[1] == [
        ("test", -1, V * 3, 3, 3),
        ("test", 0, V, 1, 1),
    ]


def test_a_large_set_starts_a_run_and_is_never_moved(twin: ModuleType) -> None:
    large = message_set.encode([bytes(40_000)])
    small = produce("test", 0, V)
    data = small + produce("test", 0, large) + small
    assert taken(twin, data)[1] == [("test", 0, V, 1, 1), ("test", 0, large + V, 2, 2)]


def test_empty_sets_count_as_frames(twin: ModuleType) -> None:
    assert taken(twin, vector("P5")) == (20, [("test", 0, b"", 0, 1)])
    assert taken(twin, vector("P5") + GOOD + vector("P5"))[1] == [("test", 0, V, 1, 3)]


def test_bytes_behind_the_set_inside_a_frame_are_skipped(twin: ModuleType) -> None:
    frame = bytearray(GOOD + b"extra")
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    assert taken(twin, bytes(frame * 2) + GOOD)[1] == [("test", 0, V * 3, 3, 3)]


def damaged(at: int, replacement: bytes) -> bytes:
    frame = bytearray(GOOD)
    frame[at : at + len(replacement)] = replacement
    return bytes(frame)


STOPS = {
    "another request": encode_request(requests.FetchRequest("test", 0, 0, 1)),
    "multi-produce": encode_request(requests.MultiProduceRequest([])) + bytes(8),
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
    data = GOOD * 2 + STOPS[name] + GOOD
    assert taken(twin, data, 1000, 100) == (2 * len(GOOD), [("test", 0, V * 2, 2, 2)])
    assert taken(twin, STOPS[name], 1000, 100) == (0, [])


def test_every_cut_frame_is_left_for_later(twin: ModuleType) -> None:
    for end in range(len(GOOD), 2 * len(GOOD)):
        stop, _ = twin.produce_runs(bytearray(GOOD * 2), 0, end, LIMIT, LIMIT)
        assert stop == len(GOOD)


def test_random_streams_arrive_complete_and_in_order(twin: ModuleType) -> None:
    rng = random.Random(11)
    for _ in range(30):
        expected: dict[tuple[str, int], bytes] = {}
        data = b""
        for _ in range(rng.randint(1, 60)):
            topic, partition = rng.choice(["a", "b"]), rng.randint(-1, 1)
            sent = message_set.encode([rng.randbytes(rng.randint(0, 300))] * rng.randint(0, 3))
            data += produce(topic, partition, sent)
            expected[topic, partition] = expected.get((topic, partition), b"") + sent
        stop, runs = taken(twin, data)
        assert stop == len(data)
        arrived: dict[tuple[str, int], bytes] = {}
        for topic, partition, sets, message_count, _ in runs:
            arrived[topic, partition] = arrived.get((topic, partition), b"") + sets
            assert len(message_set.payloads(sets)) == message_count
        assert arrived == expected


def test_our_own_mistakes_are_refused(twin: ModuleType) -> None:
    for start, end in ((-1, 3), (3, 2), (0, 36)):
        with pytest.raises(ValueError, match="start and end"):
            twin.produce_runs(bytearray(GOOD), start, end, 10, 10)
    with pytest.raises(BufferError):
        twin.produce_runs(GOOD, 0, len(GOOD), 10, 10)


def test_a_route_that_is_not_text_is_no_legal_topic() -> None:
    assert decode_route(b"\0\1a\xff\xff\xff\xff") == ("a", -1)
    assert decode_route(b"\0\1\xff\0\0\0\0") == ("\ufffd", 0)
