"""Fetch and MultiFetch have one answer, the first time a partition is fetched and later."""

import math

import pytest

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.kafka07.handlers import PARTS_AT_A_TIME, RequestHandlers, RequestRefused
from kafka2011.broker.network.sender import FileRegion, Reply
from kafka2011.protocol.requests import (
    FETCH,
    FetchRequest,
    MultiFetchRequest,
    encode_request,
    request_id_of,
)
from kafka2011.runtime.config import documented
from tests.support.logs import broker_config, partitions_of
from tests.support.raw_requests import EMPTY, OUT_OF_RANGE, entry, short
from tests.unit.broker.data_directory import DataDirectory, append_and_flush

E = entry(b"hello")
SIZES = [-(2**31), -100, -1, 0, 1, 15, 20, 29, 31, 10_000, 2**31 - 1]
OFFSETS = [-(2**63), -2, -1, 0, 3, 15, 30, 44, 45, 46, 2**62, 2**63 - 1]


@pytest.fixture
def handlers(disk: DataDirectory) -> RequestHandlers:
    """Two partitions a topic; `t` 0 holds three entries in two segments, `t` 1 has no log."""
    logs = disk.open(segment_bytes_max=20)
    append_and_flush(logs.get_or_create("t", 0), E, E, E)
    config = broker_config(disk.root, num_partitions=2, fetch_bytes_max=25)
    return RequestHandlers(config, partitions_of(config, logs), BrokerMetrics())


def fetched(handlers: RequestHandlers, request: FetchRequest | MultiFetchRequest) -> Reply:
    body = memoryview(encode_request(request)[4:])
    if isinstance(request, FetchRequest):
        return handlers.fetch(body)
    reading = handlers.multi_fetch(body)
    assert reading.go_on(math.inf)
    return reading.reply()


def pieces(reply: Reply) -> list[object]:
    """What would be sent, with regions as where they point."""
    shown: list[object] = []
    for piece in reply.pieces:
        if isinstance(piece, FileRegion):
            shown.append((piece.segment.start, piece.position, piece.count))
            piece.release()
        else:
            shown.append(piece)
    return shown


def expected(offset: int, size: int) -> list[object]:
    if not 0 <= offset <= 45:
        return [OUT_OF_RANGE]
    if size < 0 and offset < 45:
        return [(2 + size).to_bytes(4, "big", signed=True) + b"\0\0"]
    start, end = (0, 30) if offset < 30 else (30, 45)
    count = min(size, 25, end - offset)
    if count <= 0:
        return [EMPTY]
    return [(2 + count).to_bytes(4, "big") + b"\0\0", (start, offset - start, count)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", OFFSETS)
def test_a_fetch_has_one_answer_whether_its_partition_is_known_or_not(
    handlers: RequestHandlers, offset: int, size: int
) -> None:
    for _ in range(2):
        reply = fetched(handlers, FetchRequest("t", 0, offset, size))
        assert pieces(reply) == expected(offset, size)
        assert reply.close_after == (size < 0 and 0 <= offset < 45)


def test_a_partition_that_was_never_appended_to_is_empty_and_not_created(
    handlers: RequestHandlers,
) -> None:
    assert pieces(fetched(handlers, FetchRequest("t", 1, 7, 100))) == [EMPTY]
    assert pieces(fetched(handlers, FetchRequest("unseen", 0, 0, 100))) == [EMPTY]


def test_the_largest_fetch_is_a_limit_of_each_part(handlers: RequestHandlers) -> None:
    """`fetch.bytes.max` was described as one of the response: of 1,000 parts that may be more."""
    part = FetchRequest("t", 0, 0, 1000)
    sent = pieces(fetched(handlers, MultiFetchRequest([part] * 3)))
    assert [piece for piece in sent if isinstance(piece, tuple)] == [(0, 0, 25)] * 3
    (described,) = [row[3] for row in documented(BrokerConfig) if row[0] == "fetch.bytes.max"]
    assert "of one part of a multi-fetch" in described


def test_parts_behind_a_negative_size_are_let_go(handlers: RequestHandlers) -> None:
    parts = [FetchRequest("t", 0, 0, size) for size in (100, -5, 100)]
    reply = fetched(handlers, MultiFetchRequest(parts))
    assert reply.close_after
    assert [shown for shown in pieces(reply) if isinstance(shown, tuple)] == [(0, 0, 25)]


def test_many_parts_are_read_in_turns_with_the_same_answer(handlers: RequestHandlers) -> None:
    parts = [FetchRequest("t", number % 3, 15 * (number % 4), 100) for number in range(100)]
    body = memoryview(encode_request(MultiFetchRequest(parts))[4:])
    reading = handlers.multi_fetch(body)
    turns = 1
    while not reading.go_on(-math.inf):
        turns += 1
    assert turns == 1 + len(parts) // PARTS_AT_A_TIME
    assert pieces(reading.reply()) == pieces(fetched(handlers, MultiFetchRequest(parts)))


def test_a_reading_that_is_cancelled_lets_go_of_its_files(handlers: RequestHandlers) -> None:
    """Or the fixture finds them open."""
    parts = [FetchRequest("t", 0, 0, 100)] * 100
    reading = handlers.multi_fetch(memoryview(encode_request(MultiFetchRequest(parts))[4:]))
    assert not reading.go_on(-math.inf)
    reading.cancel()


@pytest.mark.parametrize(
    "malformed",
    [
        b"\0\1",
        b"\0\1\xff\xff" + bytes(16),
        b"\0\1\x7f\xff" + bytes(16),
        b"\0\1" + short(b"t") + bytes(15),
        b"\0\2\xff\xff",
        b"\0\2\0\2" + short(b"t") + bytes(16),
    ],
)
def test_a_malformed_fetch_is_refused(handlers: RequestHandlers, malformed: bytes) -> None:
    body = memoryview(malformed)
    with pytest.raises(RequestRefused) as caught:
        (handlers.fetch if request_id_of(body) == FETCH else handlers.multi_fetch)(body)
    assert caught.value.reason == "malformed-request"
