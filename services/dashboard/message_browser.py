"""Reads messages of one partition for the browser: a bounded scan from an offset or a time.

Bytes read and held, messages returned and seconds taken are bounded, whatever the payloads are. A
payload that cannot be decoded, and an entry that cannot be read, is returned as hex and readable
characters, with the reason. The browser shows payloads as text only.
"""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from kafka2011.consumer.ranges.boundaries import RESYNC_BYTES, Boundaries
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.events.errors import EventError
from kafka2011.events.origin import Origin, origin_of
from kafka2011.events.registry_client import RegistryError
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage, MessageLargerThanFetchSize
from kafka2011.runtime import strict_json

FETCH_BYTES = 256 * 1024
NEWEST_BYTES = 128 * 1024  # read for the newest messages
SCAN_BYTES_MAX = 8 * 1024 * 1024
FOUND_BYTES_MAX = 16 * 1024 * 1024  # of the payloads that are kept
SEARCH_S_MAX = 2.0  # for the place where to begin
SCAN_S_MAX = 2.0
COUNT_MAX = 200
TEXT_CHARACTERS_MAX = 2000
INTEGER_MAX = 2**53  # a page's numbers are doubles: larger ones would lose digits
TIMEOUT_MS = 3000


@dataclass(frozen=True)
class MessageQuery:
    """What to read. `offset` None: from `time_ms`, or the newest messages when that is None too.

    `skip`: of the entry at `offset`, a compressed set, so many messages are passed over. `search`
    keeps messages whose decoded text contains it, ignoring case.
    """

    topic: str
    partition: int
    offset: int | None = None
    time_ms: int | None = None
    count: int = 50
    search: str = ""
    skip: int = 0


class Found(NamedTuple):
    """A message; with an `error`, an entry that cannot be read. `number`: from 0, in its entry."""

    offset: int
    next_offset: int
    payload: bytes
    error: str = ""
    number: int = 0


def browse(address: tuple[str, int], query: MessageQuery, codec: TopicCodec) -> dict[str, Any]:
    """The messages found, where the scan began and ended, and why it ended there.

    Raises KafkaError (the broker does not answer, the offset is not in the log, no place to begin
    at was found in time).
    """
    with SimpleConsumer(*address, socket_timeout_ms=TIMEOUT_MS) as client:
        earliest = client.earliest(query.topic, query.partition)
        latest = client.latest(query.topic, query.partition)
        newest = query.offset is None and query.time_ms is None
        origin = origin_of(codec.forms, query.topic)
        start = _start(client, query, earliest, latest, origin=origin)
        scan = _Scan(query, codec, origin, keeps_last=newest)
        ended = scan.run(client, start, latest)
    return {
        "earliest": earliest,
        "latest": max(latest, scan.offset),  # it may have grown meanwhile
        "start": start,
        "next": scan.offset,
        "next_skip": scan.inside,
        "scanned": scan.scanned,
        "scanned_bytes": scan.offset - start,
        "ended": ended,
        "messages": [describe(codec, query.topic, found) for found in scan.found],
    }


def _start(
    client: SimpleConsumer, query: MessageQuery, earliest: int, latest: int, *, origin: Origin
) -> int:
    """Where to begin. Raises KafkaError."""
    if query.offset is not None:
        return max(earliest, min(query.offset, latest))
    boundaries = Boundaries(
        client,
        query.topic,
        query.partition,
        earliest=earliest,
        latest=latest,
        deadline=time.monotonic() + SEARCH_S_MAX,
    )
    if query.time_ms is None:
        start = boundaries.behind(latest - NEWEST_BYTES)
        # The newest message may be larger than that; none is larger than RESYNC_BYTES.
        return start if start < latest else boundaries.behind(latest - RESYNC_BYTES)
    return boundaries.before(query.time_ms, origin.time_ms)


class _Scan:
    def __init__(
        self, query: MessageQuery, codec: TopicCodec, origin: Origin, *, keeps_last: bool
    ) -> None:
        self._query = query
        self._codec = codec
        self._origin = origin
        self._keeps_last = keeps_last
        self._count = max(1, min(query.count, COUNT_MAX))
        self.found: deque[Found] = deque()
        self.offset = 0
        self.inside = 0  # how many messages of the entry at `offset` were taken
        self.scanned = 0
        self._left = 0  # to pass over
        self._found_bytes = 0
        self._deadline = 0.0

    def run(self, client: SimpleConsumer, start: int, latest: int) -> str:
        """Reads from `start`; returns why it ended: end, count, bytes or time."""
        self.offset = start
        self._left = self._query.skip if start == self._query.offset else 0
        self._deadline = time.monotonic() + SCAN_S_MAX
        ended = ""
        while self.offset < latest and not ended:
            if self.offset - start >= SCAN_BYTES_MAX:
                return "bytes"
            rest = self._read(client)
            if not rest:
                return "end"
            while rest and not ended:
                base = self.offset
                ended = self._take_piece(rest)
                rest = rest[self.offset - base :]
        return ended or "end"

    def _read(self, client: SimpleConsumer) -> memoryview:
        """Complete entries at the present offset; empty at the end of the log."""
        topic, partition = self._query.topic, self._query.partition
        fetched = client.fetch(topic, partition, self.offset, FETCH_BYTES)
        try:
            valid_bytes = fetched.valid_bytes()
        except MessageLargerThanFetchSize:
            fetched = client.fetch(topic, partition, self.offset, RESYNC_BYTES)
            valid_bytes = fetched.valid_bytes()
        return fetched.data[:valid_bytes]

    def _take_piece(self, data: memoryview) -> str:
        """Take the messages of the first entries and move past them; returns why it ends, or ""."""
        base = self.offset
        try:
            messages, end = message_set.take_messages(data, base)
        except InvalidMessage as error:
            if error.position <= 0:
                self._take_damaged(data, str(error))
                return self._limit()
            data = data[: error.position]
            messages, end = message_set.take_messages(data, base)
        for payload, next_offset in messages:
            at, number, self.offset = self.offset, self.inside, next_offset
            self.inside = self.inside + 1 if next_offset == at else 0
            if self._left:
                self._left = self._left - 1 if self.inside else 0
                continue
            self._take(payload, at, number)
            if limit := self._limit():
                return limit
        self.offset, self.inside = base + end, 0
        return ""

    def _limit(self) -> str:
        """Which limit the scan has reached, or ""."""
        if not self._keeps_last and len(self.found) >= self._count:
            return "count"
        if not self._keeps_last and self._found_bytes >= FOUND_BYTES_MAX:
            return "bytes"
        return "time" if time.monotonic() > self._deadline else ""

    def _take_damaged(self, data: memoryview, reason: str) -> None:
        """Keep the entry at the start of `data` as it is. Raises InvalidMessage when its end is not
        known."""
        entry = next(message_set.entries(data, self.offset), None)
        if entry is None:
            raise InvalidMessage(f"unreadable from offset {self.offset} on: {reason}", 0)
        self.offset, self.inside, self._left = entry.next_offset, 0, 0
        self._keep(Found(entry.offset, entry.next_offset, entry.payload, reason))

    def _take(self, payload: bytes, at: int, number: int) -> None:
        self.scanned += 1
        if self._query.time_ms is not None and not self._is_since(self._query.time_ms, payload):
            return
        if self._query.search and not self._contains(self._query.search, payload):
            return
        self._keep(Found(at, self.offset, payload, number=number))

    def _keep(self, found: Found) -> None:
        self.found.append(found)
        self._found_bytes += len(found.payload)
        while self._keeps_last and (
            len(self.found) > self._count
            or (self._found_bytes > FOUND_BYTES_MAX and len(self.found) > 1)
        ):
            self._found_bytes -= len(self.found.popleft().payload)

    def _is_since(self, time_ms: int, payload: bytes) -> bool:
        """Whether the event is of that time or later; true for messages without a time."""
        own_ms = self._origin.time_ms(payload)
        return own_ms is None or own_ms >= time_ms

    def _contains(self, search: str, payload: bytes) -> bool:
        wanted = search.casefold()
        if search.encode() in payload:
            return True
        try:
            record = self._codec.decode_to_show(self._query.topic, payload)[1]
        except (EventError, RegistryError):
            return wanted in payload.decode("utf-8", "replace").casefold()
        return wanted in text_of(record).casefold()


def describe(codec: TopicCodec, topic: str, found: Found) -> dict[str, Any]:
    """One message as JSON."""
    payload = found.payload
    row: dict[str, Any] = {
        "offset": found.offset,
        "next": found.next_offset,
        "number": found.number,
        "size": len(payload),
    }
    try:
        if found.error:
            raise EventError(f"the entry at offset {found.offset} is damaged: {found.error}")
        schema, record = codec.decode_to_show(topic, payload)
    except (EventError, RegistryError) as error:
        shown = payload[:TEXT_CHARACTERS_MAX]
        row["error"] = str(error)
        row["text"] = shown.decode("utf-8", "replace")
        row["hex"] = shown[:256].hex(" ")
        return row
    row["schema"] = str(schema.get("name", ""))
    row["time_ms"], row["server"] = origin_of(codec.forms, topic).moment(record)
    row["record"] = _plain(record)
    return row


def text_of(record: Mapping[str, Any]) -> str:
    return str(_plain(record))


def _plain(value: Any, depth: int = 0) -> Any:
    """JSON of a decoded event: bytes as hex, long texts cut, depth bounded, decimals and numbers
    that the page would change as texts."""
    if isinstance(value, bytes):
        return value[:256].hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, str):
        return value[:TEXT_CHARACTERS_MAX]
    if depth > 8:
        return "…"
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth + 1) for inner in value[:100]]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > INTEGER_MAX:
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return strict_json.spelt(value)
    return str(value)


def query_from(query: Mapping[str, str]) -> MessageQuery:
    """The query of a request. Raises ValueError with one line."""
    return MessageQuery(
        topic=query.get("topic", ""),
        partition=_number(query, "number", 0) or 0,
        offset=_number(query, "offset", None),
        time_ms=_number(query, "time", None),
        count=_number(query, "count", 50) or 50,
        search=query.get("search", "")[:200],
        skip=_number(query, "skip", 0) or 0,
    )


def _number(query: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ValueError(f"{name} must be a whole number")
    return int(text)
