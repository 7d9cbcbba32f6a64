"""What brokers have on disk, read from their segment files without any client or broker of ours.

For tests that compare what was sent, what was reported and what is there. Stop the brokers first,
or accept that the last bytes may be missing.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafka2011.events.header import Header
from kafka2011.events.monitoring import MonitoringEvent, decode_report
from kafka2011.events.peek import peek
from kafka2011.events.topics import AUDIT
from kafka2011.events.windows import window_start
from kafka2011.protocol.message_set import payloads, split


class Entry(NamedTuple):
    """An entry of a segment file; `start` and `end` are offsets of the log."""

    topic: str
    partition: int
    start: int
    end: int
    attributes: int
    payload: bytes


def entries(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(start, end, attributes, payload) of each whole entry, read by the format alone: four bytes
    of length, magic, attributes where magic is 1, CRC, payload."""
    start = 0
    while start + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, start)
        end = start + 4 + length
        if length <= 0 or end > len(data):
            return
        magic = data[start + 4]
        head = 10 if magic == 1 else 9
        yield start, end, data[start + 5] if magic == 1 else 0, data[start + head : end]
        start = end


def stored_entries(log_dir: Path, topic: str = "*") -> Iterator[Entry]:
    """Every whole entry of the topic in a broker's logs, by the format alone."""
    for directory in sorted(log_dir.glob(f"{topic}-[0-9]*")):
        name, _, partition = directory.name.rpartition("-")
        for segment in sorted(directory.glob("*.kafka")):
            base = int(segment.stem)
            for start, end, attributes, payload in entries(segment.read_bytes()):
                yield Entry(name, int(partition), base + start, base + end, attributes, payload)


def stored_payloads(log_dirs: Iterable[Path]) -> dict[str, list[bytes]]:
    """Topic -> every payload in the logs of all these brokers."""
    found: dict[str, list[bytes]] = {}
    for log_dir in log_dirs:
        for directory in sorted(log_dir.iterdir()):
            if not directory.is_dir():
                continue
            topic = directory.name.rpartition("-")[0]
            for segment in sorted(directory.glob("*.kafka")):
                data = segment.read_bytes()
                if data:
                    found.setdefault(topic, []).extend(payloads(data[: split(data)]))
    return found


def reported_counts(stored: dict[str, list[bytes]]) -> Counter[tuple[str, int, str]]:
    """(topic, window start, server) -> messages, from the distinct monitoring events."""
    events = {}
    for payload in stored.get(AUDIT, []):
        event = decode_report(payload)
        if not isinstance(event, MonitoringEvent):
            continue  # a heartbeat
        assert events.setdefault(event.identity, event) == event, "a repeat with other content"
    totals: Counter[tuple[str, int, str]] = Counter()
    for event in events.values():
        for cell in event.counts:
            totals[cell.topic, cell.window_start, event.header.server] += cell.count
    return totals


def stored_counts(stored: dict[str, list[bytes]], window_ms: int) -> Counter[tuple[str, int, str]]:
    """The same, counted from the messages themselves; topic `audit` left out."""
    totals: Counter[tuple[str, int, str]] = Counter()
    for topic, found in stored.items():
        if topic != AUDIT:
            for header in map(peek, found):
                totals[topic, window_start(header.time_ms, window_ms), header.server] += 1
    return totals


def headers(stored: dict[str, list[bytes]]) -> list[Header]:
    """The headers of all events but the monitoring events."""
    return [peek(p) for topic, found in stored.items() if topic != AUDIT for p in found]
