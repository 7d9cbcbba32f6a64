"""Events, pieces of a log, and rows for the warehouse's tests."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka2011.consumer.chunk import Chunk
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.events import codec
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import MessageLargerThanFetchSize
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.tasks import TaskSettings

WINDOW_MS = 10_000
# 2015-05-17 10:05:03 UTC
EVENT_TIME_MS = 1_431_857_103_000
HEADER_TIME_MS = 1_700_000_000_000
ADDRESS = BrokerAddress("127.0.0.1", 9092)
FIRST = BrokerPartition(11, 0)


def access_log_event(number: int, **changed: Any) -> dict[str, Any]:
    header = {
        "guid": hashlib.md5(str(number).encode(), usedforsecurity=False).digest(),
        "time": changed.pop("header_time", HEADER_TIME_MS + number),
        "server": changed.pop("server", "frontend-1"),
        "service": "log",
    }
    return {
        "header": header,
        "event_time": EVENT_TIME_MS + number * 1000,
        "host": f"10.0.0.{number % 7}",
        "ident": None,
        "user": None,
        "time": "17/May/2015:10:05:03 +0000",
        "method": "GET",
        "path": f"/page/{number % 5}?q={number % 3}",
        "protocol": "HTTP/1.1",
        "status": 404 if number % 10 == 9 else 200,
        "bytes": None if number % 10 == 8 else 100 + number,
        "referer": None,
        "agent": "a \N{SNOWMAN} browser",
        **changed,
    }


def access_log_payload(number: int, **changed: Any) -> bytes:
    return codec.encode(ACCESS_LOG, access_log_event(number, **changed))


class FakeLog:
    """A partition's log held in memory: what `read` sees is what was appended."""

    def __init__(self) -> None:
        self.data = b""

    def append(self, payloads: Sequence[bytes]) -> int:
        """Returns the log's end."""
        self.data += message_set.encode(payloads)
        return len(self.data)


def chunks_of(
    data: bytes, place: tuple[str, int, int], start: int, end: int, fetch_size: int
) -> Iterator[Chunk]:
    """The range of a log in chunks of whole entries, as `read_range` reads it: an entry larger than
    a fetch comes whole, one that crosses the end only at the start."""
    offset = start
    while offset < end:
        fetched = data[offset : min(offset + fetch_size, end)]
        try:
            valid = message_set.split(fetched)
        except MessageLargerThanFetchSize:
            if offset > start and offset + fetch_size >= end:
                return
            valid = next(message_set.entries(data[offset:])).next_offset
            fetched = data[offset : offset + valid]
        yield Chunk(*place, offset, fetched[:valid], offset + valid)
        offset += valid


class ScriptedBroker:
    """Reads ranges out of FakeLogs in chunks of whole entries."""

    def __init__(self, fetch_size: int = 2000) -> None:
        self.logs: dict[tuple[str, BrokerPartition], FakeLog] = {}
        self.fetch_size = fetch_size

    def log(self, topic: str, source: BrokerPartition = FIRST) -> FakeLog:
        return self.logs.setdefault((topic, source), FakeLog())

    def read(self, planned: PlannedRange) -> Iterator[Chunk]:
        data = self.logs[planned.topic, planned.source].data
        place = (planned.topic, *planned.source)
        return chunks_of(data, place, planned.start, planned.end, self.fetch_size)

    def plan(
        self,
        topic: str,
        committed: int | None = None,
        source: BrokerPartition = FIRST,
        end: int | None = None,
    ) -> PlannedRange:
        latest = len(self.logs[topic, source].data)
        start = committed or 0
        return PlannedRange(
            topic, source, ADDRESS, committed, start, latest if end is None else end, latest
        )


def task_settings(directory: Path, **changed: Any) -> TaskSettings:
    return TaskSettings(
        warehouse_dir=directory,
        window_ms=WINDOW_MS,
        quarantined_up_to=changed.get("quarantined_up_to", {}),
    )


def small_schema() -> pa.Schema:
    return pa.schema([("n", pa.int64()), ("server", pa.string()), ("hour", pa.string())])
