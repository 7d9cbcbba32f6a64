"""The short way of a fetch answers as the long one does, or leaves it to the long one."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.handlers import Reply, RequestHandlers
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.metrics import BrokerMetrics
from kafka2011.protocol.requests import FetchRequest, encode_request
from kafka2011.runtime import config
from tests.support.logs import ManualClock, manager
from tests.support.raw_requests import entry, short

E = entry(b"hello")
SIZES = [-(2**31), -100, -1, 0, 1, 15, 20, 29, 31, 10_000, 2**31 - 1]
OFFSETS = [-(2**63), -2, -1, 0, 3, 15, 30, 44, 45, 46, 2**62, 2**63 - 1]


class Session:
    unflushed: dict[object, int] = {}  # noqa: RUF012
    refused = False
    last_log = None

    def append_failed(self, error: object) -> None: ...


@pytest.fixture
def handlers(tmp_path: Path) -> Iterator[RequestHandlers]:
    """Two partitions a topic; `t` 0 holds three entries in two segments, `t` 1 has no log."""
    loaded, _ = config.load(
        BrokerConfig,
        overrides=[
            "brokerid=0",
            f"log.dir={tmp_path}",
            "enable.zookeeper=false",
            "num.partitions=2",
            "fetch.bytes.max=25",
        ],
        environment={},
    )
    clock = ManualClock()
    logs = manager(tmp_path / "logs", clock=clock, segment_bytes_max=20)
    log = logs.get_or_create("t", 0)
    for _ in range(3):
        log.append(E, 1, clock())
        log.flush()
    assert log.segment_count == 2
    yield RequestHandlers(
        loaded,
        logs,
        BrokerMetrics(),
        rng=random.Random(0),
        appended=lambda _: None,
        topic_seen=lambda _: None,
    )
    logs.close()


def pieces(reply: Reply) -> list[object]:
    """What would leave, with regions as where they point."""
    shown: list[object] = []
    for piece in reply.pieces:
        if isinstance(piece, FileRegion):
            shown.append((piece.segment.start, piece.position, piece.count))
        else:
            shown.append(piece)
    reply.release()
    return shown


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", OFFSETS)
def test_every_fetch_of_a_known_partition_has_one_answer(
    handlers: RequestHandlers, offset: int, size: int
) -> None:
    body = memoryview(encode_request(FetchRequest("t", 0, offset, size))[4:])
    first = handlers.fetch(body)
    assert first is None, "nothing is known before the first fetch or produce"
    long = handlers.handle(body, Session())  # type: ignore[arg-type]
    assert isinstance(long, Reply)
    expected = pieces(long)
    short_reply = handlers.fetch(body)
    if short_reply is not None:
        assert pieces(short_reply) == expected
        assert not short_reply.close_after
    else:
        assert size < 0 or not 0 <= offset <= 45


@pytest.mark.parametrize(
    "body",
    [
        b"\0\1",
        b"\0\1\xff\xff" + struct.pack(">iqi", 0, 0, 100),
        b"\0\1\x7f\xff" + struct.pack(">iqi", 0, 0, 100),
        b"\0\1" + short(b"t") + struct.pack(">iqi", 0, 0, 100)[:-1],
        b"\0\1" + short(b"t") + struct.pack(">iqi", 1, 0, 100),
        b"\0\1" + short(b"t") + struct.pack(">iqi", -1, 0, 100),
        b"\0\1" + short(b"") + struct.pack(">iqi", 0, 0, 100),
    ],
)
def test_anything_else_is_left_to_the_long_way(handlers: RequestHandlers, body: bytes) -> None:
    known = handlers.handle(
        memoryview(encode_request(FetchRequest("t", 0, 0, 1))[4:]),
        Session(),  # type: ignore[arg-type]
    )
    assert isinstance(known, Reply)
    known.release()
    assert handlers.fetch(memoryview(body)) is None
