"""Fetch and MultiFetch have one answer, the first time a partition is fetched and later."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.broker.core.counters import BrokerMetrics
from kafka2011.broker.kafka07.handlers import RequestHandlers, RequestRefused
from kafka2011.broker.network.sender import FileRegion, Reply
from kafka2011.protocol.requests import (
    FetchRequest,
    MultiFetchRequest,
    encode_request,
    request_id_of,
)
from tests.support.logs import ManualClock, broker_config, manager, partitions_of
from tests.support.raw_requests import EMPTY, OUT_OF_RANGE, entry, short

E = entry(b"hello")
SIZES = [-(2**31), -100, -1, 0, 1, 15, 20, 29, 31, 10_000, 2**31 - 1]
OFFSETS = [-(2**63), -2, -1, 0, 3, 15, 30, 44, 45, 46, 2**62, 2**63 - 1]


@pytest.fixture
def handlers(tmp_path: Path) -> Iterator[RequestHandlers]:
    """Two partitions a topic; `t` 0 holds three entries in two segments, `t` 1 has no log."""
    clock = ManualClock()
    logs = manager(tmp_path / "logs", clock=clock, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    for _ in range(3):
        log.append(E, 1, clock())
        log.flush()
    assert log.segment_count == 2
    config = broker_config(tmp_path, num_partitions=2, fetch_bytes_max=25)
    yield RequestHandlers(config, partitions_of(config, logs), BrokerMetrics())
    logs.close()


def body(request: FetchRequest | MultiFetchRequest) -> memoryview:
    return memoryview(encode_request(request)[4:])


def fetched(handlers: RequestHandlers, request: memoryview) -> Reply:
    return handlers.fetch(request, request_id_of(request))


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
    request = FetchRequest("t", 0, offset, size)
    for _ in range(2):
        reply = fetched(handlers, body(request))
        whole = expected(offset, size)
        assert pieces(reply) == whole
        assert reply.close_after == (size < 0 and 0 <= offset < 45)


def test_a_partition_that_was_never_appended_to_is_empty_and_not_created(
    handlers: RequestHandlers,
) -> None:
    assert pieces(fetched(handlers, body(FetchRequest("t", 1, 7, 100)))) == [EMPTY]
    assert pieces(fetched(handlers, body(FetchRequest("unseen", 0, 0, 100)))) == [EMPTY]


def test_parts_behind_a_negative_size_are_let_go(handlers: RequestHandlers) -> None:
    parts = [FetchRequest("t", 0, 0, size) for size in (100, -5, 100)]
    reply = fetched(handlers, body(MultiFetchRequest(parts)))
    assert reply.close_after
    assert [shown for shown in pieces(reply) if isinstance(shown, tuple)] == [(0, 0, 25)]


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
    with pytest.raises(RequestRefused) as caught:
        fetched(handlers, memoryview(malformed))
    assert caught.value.reason == "malformed-request"
