"""Events, logs and monitoring events as the tests of the audit need them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events import codec
from kafka2011.events.monitoring import encode_heartbeat, encode_monitoring
from kafka2011.events.topics import PAGE_VIEW
from kafka2011.events.windows import WindowCount
from kafka2011.protocol import message_set
from kafka2011.services.audit.books.ledger import Ledger
from kafka2011.services.audit.recount.segment_files import LogDirectory
from kafka2011.services.audit.recount.sources import Confirmed
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
    time_ms: int = T0,
) -> bytes:
    """A monitoring event; `counts` are (topic, window start, messages)."""
    return encode_monitoring(
        server=server,
        service="web",
        instance=instance,
        sequence=sequence,
        time_ms=time_ms,
        window_ms=window_ms,
        counts=[WindowCount(topic, start, count, count * 100) for topic, start, count in counts],
    )


def heartbeat(
    time_ms: int,
    *,
    server: str = SERVER,
    instance: str = "run-1",
    is_last: bool = False,
    last_sequence: int = -1,
) -> bytes:
    """A heartbeat of a server that beats every second."""
    return encode_heartbeat(
        server=server,
        service="web",
        instance=instance,
        time_ms=time_ms,
        interval_ms=1000,
        is_last=is_last,
        last_sequence=last_sequence,
    )


def write_log(root: Path, topic: str, partition: int, *segments: bytes, start: int = 0) -> Path:
    """Segment files of one partition, one after the other from `start`; their directory."""
    directory = root / f"{topic}-{partition}"
    directory.mkdir(parents=True)
    for data in segments:
        (directory / f"{start:020d}.kafka").write_bytes(data)
        start += len(data)
    return directory


def end_of(log: LogDirectory) -> Confirmed:
    """The offsets of a next tier that has passed all that is in the directory now."""

    def confirmed(topic: str, partition: BrokerPartition) -> int:
        files = (log.path / f"{topic}-{partition.partition}").iterdir()
        return max(int(file.stem) + file.stat().st_size for file in files)

    return confirmed


def entries_of(data: bytes) -> list[bytes]:
    """The raw entries of a set."""
    return [data[e.offset : e.next_offset] for e in message_set.entries(data)]


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
