"""Events, logs and monitoring events as the tests of the audit need them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafka2011.consumer.simple import FetchedSet
from kafka2011.events import codec
from kafka2011.events.monitoring import encode_heartbeat, encode_monitoring
from kafka2011.events.topics import PAGE_VIEW
from kafka2011.events.windows import WindowCount
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import OffsetOutOfRange, WrongPartition
from kafka2011.protocol.requests import FetchRequest
from kafka2011.services.audit.books.ledger import Ledger
from kafka2011.services.audit.verdicts import expected_of

WINDOW_MS = 10_000
SERVER = "frontend-1"
T0 = 1_300_000_000_000  # a multiple of WINDOW_MS


def event(number: int, time_ms: int = T0, server: str = SERVER) -> bytes:
    """Page view `number`; equal numbers have equal guids."""
    guid = hashlib.md5(f"{server} {number}".encode(), usedforsecurity=False).digest()
    return codec.encode(
        PAGE_VIEW,
        {
            "header": {"guid": guid, "time": time_ms, "server": server, "service": "web"},
            "event_time": time_ms,
            "member_id": number,
            "path": f"/page/{number % 7}",
            "referer": None,
            "status": 200,
            "bytes": 1000,
            "host": f"10.0.0.{number % 250}",
            "agent": None,
        },
    )


def report(
    sequence: int,
    counts: Sequence[tuple[str, int, int]],
    *,
    server: str = SERVER,
    instance: str = "run-1",
    window_ms: int = WINDOW_MS,
) -> bytes:
    """A monitoring event; `counts` are (topic, window start, messages)."""
    return encode_monitoring(
        server=server,
        service="web",
        instance=instance,
        sequence=sequence,
        time_ms=T0,
        window_ms=window_ms,
        counts=[WindowCount(topic, start, count, count * 100) for topic, start, count in counts],
    )


def heartbeat(time_ms: int, *, server: str = SERVER, is_last: bool = False) -> bytes:
    """A heartbeat of a server that beats every second."""
    return encode_heartbeat(
        server=server,
        service="web",
        instance="run-1",
        time_ms=time_ms,
        interval_ms=1000,
        is_last=is_last,
    )


def write_log(root: Path, topic: str, partition: int, *segments: bytes, start: int = 0) -> Path:
    """Segment files of one partition, one after the other from `start`; their directory."""
    directory = root / f"{topic}-{partition}"
    directory.mkdir(parents=True)
    for data in segments:
        (directory / f"{start:020d}.kafka").write_bytes(data)
        start += len(data)
    return directory


def entries_of(data: bytes) -> list[bytes]:
    """The raw entries of a set."""
    return [data[e.offset : e.next_offset] for e in message_set.entries(data)]


class ScriptedBroker:
    """A broker that lives in a dictionary; see `readers.broker_reader.BrokerClient`."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], bytes] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.segment_ends: dict[tuple[str, int], list[int]] = {}
        self.latest_asked = 0
        self.failure: Exception | None = None
        self.closed = 0

    def append(self, topic: str, partition: int, *payloads: bytes) -> None:
        self.append_set(topic, partition, message_set.encode(payloads))

    def append_set(self, topic: str, partition: int, data: bytes) -> None:
        key = (topic, partition)
        self.logs[key] = self.logs.get(key, b"") + data

    def roll(self, topic: str, partition: int) -> None:
        """Begin a new segment: no fetch reads across its start."""
        key = (topic, partition)
        self.segment_ends.setdefault(key, []).append(len(self.logs[key]))

    def retire(self, topic: str, partition: int, count: int) -> None:
        """Delete the first `count` bytes."""
        self.starts[topic, partition] = self.starts.get((topic, partition), 0) + count

    def multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]:
        if self.failure is not None:
            raise self.failure
        return [self._fetch(part) for part in parts]

    def _fetch(self, part: FetchRequest) -> FetchedSet:
        key = (part.topic, part.partition)
        log = self.logs.get(key)
        error = None
        data = b""
        if log is None:
            error = WrongPartition("no such partition")
        elif not self.starts.get(key, 0) <= part.offset <= len(log):
            error = OffsetOutOfRange("out of range")
        else:
            ends = [end for end in self.segment_ends.get(key, ()) if end > part.offset]
            data = log[part.offset : min([part.offset + part.size_max, *ends])]
        return FetchedSet(part.topic, part.partition, part.offset, memoryview(data), error)

    def earliest(self, topic: str, partition: int) -> int:
        return self.starts.get((topic, partition), 0)

    def latest(self, topic: str, partition: int) -> int:
        self.latest_asked += 1
        return len(self.logs[topic, partition])

    def close(self) -> None:
        self.closed += 1


class Totals(NamedTuple):
    """Messages by index of the tier, folded windows included."""

    produced: list[int]
    expected: list[int]
    counted: list[int]


def totals_of(ledger: Ledger) -> Totals:
    produced, counted = [0] * len(ledger.tiers), [0] * len(ledger.tiers)
    for cell in ledger.cells.values():
        for index in range(len(ledger.tiers)):
            produced[index] += cell.produced[index]
            counted[index] += cell.counted[index]
    for (tier, _), folded in ledger.folded.items():
        produced[ledger.tiers.index(tier)] += folded.produced
        counted[ledger.tiers.index(tier)] += folded.counted
    return Totals(produced, expected_of(produced), counted)
