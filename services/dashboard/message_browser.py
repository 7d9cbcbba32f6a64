"""Reads messages of one partition for the browser: a bounded scan from an offset or a time.

Bytes read, messages returned and seconds taken are bounded. A payload that cannot be decoded is
returned as hex and readable characters, with the reason. The browser shows payloads as text only.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.events.errors import EventError
from kafka2011.events.peek import peek
from kafka2011.events.registry_client import RegistryError
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import MessageLargerThanFetchSize
from kafka2011.protocol.message import LENGTH_BYTES, MAGIC1_OVERHEAD_BYTES

FETCH_BYTES = 256 * 1024
RESYNC_BYTES = 1_100_000  # more than the largest message that a broker takes
NEWEST_BYTES = 128 * 1024  # read for the newest messages
SCAN_BYTES_MAX = 8 * 1024 * 1024
SCAN_S_MAX = 2.0
COUNT_MAX = 200
TEXT_CHARACTERS_MAX = 2000
TIMEOUT_MS = 3000


@dataclass(frozen=True)
class MessageQuery:
    """`offset` None: from `time_ms`, or the newest messages when that is None too.

    `search` keeps messages whose decoded text contains it, ignoring case.
    """

    topic: str
    partition: int
    offset: int | None = None
    time_ms: int | None = None
    count: int = 50
    search: str = ""


def browse(address: tuple[str, int], query: MessageQuery, codec: TopicCodec) -> dict[str, Any]:
    """The messages found, where the scan began and ended, and why it ended there.

    Raises KafkaError (the broker does not answer, the offset is not in the log).
    """
    with SimpleConsumer(*address, socket_timeout_ms=TIMEOUT_MS) as client:
        earliest = client.earliest(query.topic, query.partition)
        latest = client.latest(query.topic, query.partition)
        newest = query.offset is None and query.time_ms is None
        prefix_bytes = codec.forms.prefix_bytes(query.topic)
        start = _start(client, query, earliest, latest, prefix_bytes=prefix_bytes)
        scan = _Scan(query, codec, keeps_last=newest)
        ended = scan.run(client, start, latest)
    return {
        "earliest": earliest,
        "latest": latest,
        "start": start,
        "next": scan.offset,
        "scanned": scan.scanned,
        "scanned_bytes": scan.offset - start,
        "ended": ended,
        "messages": [describe(codec, query.topic, *found) for found in scan.found],
    }


def _start(
    client: SimpleConsumer, query: MessageQuery, earliest: int, latest: int, *, prefix_bytes: int
) -> int:
    """Where to begin. Raises KafkaError."""
    if query.offset is not None:
        return max(earliest, min(query.offset, latest))
    if query.time_ms is None:
        return _boundary(client, query, max(earliest, latest - NEWEST_BYTES), earliest, latest)
    # Times of a partition rise nearly always, so the offset is found by halving; the scan begins
    # a little before it.
    low, high = earliest, latest
    while high - low > FETCH_BYTES:
        middle = (low + high) // 2
        at = _boundary(client, query, middle, earliest, latest)
        time_ms = _time_at(client, query, at, prefix_bytes) if at < latest else None
        if time_ms is None or time_ms >= query.time_ms:
            high = middle
        else:
            low = at
    return low if low == earliest else _boundary(client, query, low, earliest, latest)


def _boundary(
    client: SimpleConsumer, query: MessageQuery, near: int, earliest: int, latest: int
) -> int:
    """The first entry that begins at `near` or after it; `latest` when none is found.

    0.7 has no index and serves bytes from any offset, so the boundary is recognised: an entry whose
    CRC is right. Four bytes of CRC do not fit by chance.
    """
    if near <= earliest:
        return earliest
    data = client.fetch(query.topic, query.partition, near, RESYNC_BYTES).data
    for position in range(max(0, len(data) - LENGTH_BYTES - MAGIC1_OVERHEAD_BYTES)):
        if message_set.is_entry(data, position):
            return near + position
    return latest


def _time_at(
    client: SimpleConsumer, query: MessageQuery, offset: int, prefix_bytes: int
) -> int | None:
    """header.time of the first message at `offset` or after it that has one."""
    fetched = client.fetch(query.topic, query.partition, offset, RESYNC_BYTES)
    for payload, _ in fetched.messages()[:100]:
        try:
            return peek(payload, prefix_bytes).time_ms
        except EventError:
            continue
    return None


class _Scan:
    def __init__(self, query: MessageQuery, codec: TopicCodec, *, keeps_last: bool) -> None:
        self._query = query
        self._codec = codec
        self._keeps_last = keeps_last
        self._count = max(1, min(query.count, COUNT_MAX))
        self.found: list[tuple[int, int, bytes]] = []  # offset, next offset, payload
        self.offset = 0
        self.scanned = 0

    def run(self, client: SimpleConsumer, start: int, latest: int) -> str:
        """Reads from `start`; returns why it ended: end, count, bytes or time."""
        self.offset = start
        deadline = time.monotonic() + SCAN_S_MAX
        while self.offset < latest:
            if self.offset - start >= SCAN_BYTES_MAX:
                return "bytes"
            if time.monotonic() > deadline:
                return "time"
            messages = self._read(client)
            if not messages:
                return "end"
            for payload, next_offset in messages:
                self._take(payload, next_offset)
                if len(self.found) >= self._count and not self._keeps_last:
                    return "count"
        return "end"

    def _read(self, client: SimpleConsumer) -> list[tuple[bytes, int]]:
        topic, partition = self._query.topic, self._query.partition
        fetched = client.fetch(topic, partition, self.offset, FETCH_BYTES)
        try:
            return fetched.messages()
        except MessageLargerThanFetchSize:
            return client.fetch(topic, partition, self.offset, RESYNC_BYTES).messages()

    def _take(self, payload: bytes, next_offset: int) -> None:
        # Messages of a compressed set share their next offset; only the first has its own.
        at, self.offset = self.offset, next_offset
        self.scanned += 1
        if self._query.time_ms is not None and not self._is_since(self._query.time_ms, payload):
            return
        if self._query.search and not self._contains(self._query.search, payload):
            return
        self.found.append((at, next_offset, payload))
        if self._keeps_last and len(self.found) > self._count:
            del self.found[0]

    def _is_since(self, time_ms: int, payload: bytes) -> bool:
        """Whether the event is of that time or later; true of messages without a header."""
        prefix_bytes = self._codec.forms.prefix_bytes(self._query.topic)
        try:
            return peek(payload, prefix_bytes).time_ms >= time_ms
        except EventError:
            return True

    def _contains(self, search: str, payload: bytes) -> bool:
        wanted = search.casefold()
        if search.encode() in payload:
            return True
        try:
            record = self._codec.decode(self._query.topic, payload)[1]
        except (EventError, RegistryError):
            return wanted in payload.decode("utf-8", "replace").casefold()
        return wanted in text_of(record).casefold()


def describe(
    codec: TopicCodec, topic: str, offset: int, next_offset: int, payload: bytes
) -> dict[str, Any]:
    """One message as JSON."""
    row: dict[str, Any] = {"offset": offset, "next": next_offset, "size": len(payload)}
    try:
        schema, record = codec.decode(topic, payload)
    except (EventError, RegistryError) as error:
        shown = payload[:TEXT_CHARACTERS_MAX]
        row["error"] = str(error)
        row["text"] = shown.decode("utf-8", "replace")
        row["hex"] = shown[:256].hex(" ")
        return row
    header = record.get("header", {})
    row["schema"] = str(schema.get("name", ""))
    row["time_ms"] = header.get("time")
    row["server"] = header.get("server")
    row["record"] = _plain(record)
    return row


def text_of(record: Mapping[str, Any]) -> str:
    return str(_plain(record))


def _plain(value: Any, depth: int = 0) -> Any:
    """JSON of a decoded event: bytes as hex, long texts cut, depth bounded."""
    if isinstance(value, bytes):
        return value[:256].hex()
    if isinstance(value, str):
        return value[:TEXT_CHARACTERS_MAX]
    if depth > 8:
        return "…"
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value[:100]]
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def query_from(query: Mapping[str, str]) -> MessageQuery:
    """Raises ValueError with one line."""
    return MessageQuery(
        topic=query.get("topic", ""),
        partition=_number(query, "number", 0) or 0,
        offset=_number(query, "offset", None),
        time_ms=_number(query, "time", None),
        count=_number(query, "count", 50) or 50,
        search=query.get("search", "")[:200],
    )


def _number(query: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ValueError(f"{name} must be a whole number")
    return int(text)
