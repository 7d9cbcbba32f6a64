"""Messages as Spark's rows: a fetched chunk to Arrow batches of the requested columns.

A set of plain, good entries, as nearly all are, becomes buffers in one compiled pass
(`_rows_compiled`). Compressed and damaged sets, and all sets in a build without a compiler, are
read message by message in Python. Both ways are under the same tests. Imports neither Spark nor
ZooKeeper.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka2011.consumer.chunk import Chunk
from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.events.header import FORM_BYTE, PREFIX_BYTES_ID
from kafka2011.events.origin import Origin, origin_of
from kafka2011.protocol import hot, message_set
from kafka2011.protocol.errors import InvalidMessage
from kafka2011.runtime.clock import TIME_MS_MAX

try:
    from kafka2011.consumer.spark import _rows_compiled as compiled
except ImportError:  # no compiler where it was installed
    compiled = None  # type: ignore[assignment]

# Rows of a batch made message by message; a compressed set can hold a million of a few bytes.
ROWS_MAX = 65_536

# Compiled only if the hot loops of the protocol are.
COMPILED = hot.COMPILED and compiled is not None

# Spark requires exactly this type; a batch that differs fails far from its cause.
TIMESTAMP = pa.timestamp("us", tz="UTC")
MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("broker", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("next_offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("schema_id", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("error", pa.string()),
    ]
)


class Unreadable(NamedTuple):
    """A message that could not be read; its entry is at `offset` up to `next_offset`."""

    topic: str
    broker_id: int
    partition: int
    offset: int
    next_offset: int
    error: str
    payload: bytes


Quarantine = Callable[[Unreadable], None]


class MessageRows:
    """Makes batches of some columns of MESSAGE_SCHEMA.

    A damaged entry is a row with the raw entry as payload and the reason in `error`, which is null
    in all other rows. With a `quarantine` such an entry goes there and is not a row.
    """

    def __init__(
        self,
        columns: Sequence[str] = (),
        quarantine: Quarantine | None = None,
        forms: Forms = FORMS_2011,
    ) -> None:
        names = columns or MESSAGE_SCHEMA.names
        self.schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in names])
        self._quarantine = quarantine
        self._forms = forms
        self._with_headers = not {"timestamp", "schema_id"}.isdisjoint(names)
        self._with_payloads = "payload" in names

    def batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The chunk's messages. Raises InvalidMessage when an entry's length is damaged: no entry
        behind it can be found."""
        is_plain = self._with_headers and not self._forms.of(chunk.topic).is_avro
        found = self._compiled(chunk) if COMPILED and not is_plain else None
        if found is None:
            yield from self._in_python(chunk)
        elif found.rows:
            yield self._batch(found)

    def _compiled(self, chunk: Chunk) -> "_Rows | None":
        prefix_bytes = self._forms.prefix_bytes(chunk.topic)
        made = compiled.rows_of(
            chunk.data, chunk.offset, prefix_bytes, self._with_headers, self._with_payloads
        )
        if made is None:
            return None
        rows, starts, ends, headers, payloads = made
        found = _Rows(chunk, rows)
        found.starts = _numbers(pa.int64(), rows, starts)
        found.ends = _numbers(pa.int64(), rows, ends)
        if headers is not None:
            times, validity, nulls, numbers, prefixes = headers
            buffers = [pa.py_buffer(validity), pa.py_buffer(times)]
            found.times = pa.Array.from_buffers(TIMESTAMP, rows, buffers, nulls)
            names = pa.array([_schema_id(prefix) for prefix in prefixes], pa.string())
            found.schema_ids = names.take(_numbers(pa.int32(), rows, numbers))
        if payloads is not None:
            buffers = [None, *map(pa.py_buffer, payloads)]
            found.payloads = pa.Array.from_buffers(pa.binary(), rows, buffers, 0)
        return found

    # --- message by message -----------------------------------------------------------------------

    def _in_python(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        while chunk.data:
            try:
                pairs, end = message_set.take_messages(chunk.data, chunk.offset)
            except InvalidMessage:
                yield from self._by_entry(chunk)
                return
            yield from self._by_message(chunk, pairs)
            pairs = []  # so that two pieces are never held at once
            chunk = chunk.behind(end)

    def _by_message(
        self, chunk: Chunk, pairs: Sequence[tuple[bytes, int]]
    ) -> Iterator[pa.RecordBatch]:
        ends = entry_next_offsets([after for _, after in pairs], chunk.offset)
        starts = entry_offsets(ends, chunk.offset)
        for first in range(0, len(pairs), ROWS_MAX):
            part = slice(first, first + ROWS_MAX)
            payloads = [payload for payload, _ in pairs[part]]
            yield self._slow_batch(chunk, payloads, starts[part], ends[part])

    def _by_entry(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        for entry in message_set.entries(chunk.data, chunk.offset):
            raw = bytes(chunk.data[entry.offset - chunk.offset : entry.next_offset - chunk.offset])
            try:
                payloads, error = message_set.payloads(raw), None
            except InvalidMessage as damage:
                payloads, error = [raw], f"damaged entry: {damage}"
                if self._quarantine is not None:
                    where = (*chunk.topic_partition, entry.offset, entry.next_offset)
                    self._quarantine(Unreadable(*where, error, raw))
                    continue
            if payloads:
                starts, ends = [entry.offset] * len(payloads), [entry.next_offset] * len(payloads)
                yield self._slow_batch(chunk, payloads, starts, ends, error)

    def _slow_batch(
        self,
        chunk: Chunk,
        payloads: Sequence[bytes],
        starts: Sequence[int],
        ends: Sequence[int],
        error: str | None = None,
    ) -> pa.RecordBatch:
        found = _Rows(chunk, len(payloads), error)
        found.starts, found.ends = pa.array(starts, pa.int64()), pa.array(ends, pa.int64())
        if self._with_headers:
            none = [None] * len(payloads)
            size = self._forms.prefix_bytes(chunk.topic)
            origin = origin_of(self._forms, chunk.topic)
            times = none if error else [_time_ms(payload, origin) for payload in payloads]
            found.times = pa.array(times, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
            ids = none if error else [_schema_id(_prefix(payload, size)) for payload in payloads]
            found.schema_ids = pa.array(ids, pa.string())
        if self._with_payloads:
            found.payloads = pa.array(payloads, pa.binary())
        return self._batch(found)

    def _batch(self, found: "_Rows") -> pa.RecordBatch:
        arrays = [getattr(found, _ATTRIBUTES[name]) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Rows:
    """The columns of one batch; those with one value in every row are made on first use."""

    starts: pa.Array
    ends: pa.Array
    times: pa.Array
    schema_ids: pa.Array
    payloads: pa.Array

    def __init__(self, chunk: Chunk, rows: int, error: str | None = None) -> None:
        self.rows = rows
        self._chunk = chunk
        self._error = error

    @cached_property
    def topic(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._chunk.topic, pa.string()), self.rows)

    @cached_property
    def broker(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._chunk.broker_id, pa.int32()), self.rows)

    @cached_property
    def partition(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._chunk.partition, pa.int32()), self.rows)

    @cached_property
    def error(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._error, pa.string()), self.rows)


_ATTRIBUTES = {
    "topic": "topic",
    "broker": "broker",
    "partition": "partition",
    "offset": "starts",
    "next_offset": "ends",
    "timestamp": "times",
    "schema_id": "schema_ids",
    "payload": "payloads",
    "error": "error",
}


def _numbers(kind: pa.DataType, rows: int, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)], 0)


def entry_next_offsets(next_offsets: Sequence[int], offset: int) -> list[int]:
    """The next offset of each message's entry, given what a consumer would store.

    A consumer stores a wrapper's own start for all but its last message, since a fetch cannot start
    inside a compressed set. A row has the end of its entry, so that it can be compared with "read
    up to". `offset` is where the set was fetched.
    """
    ends = np.array(next_offsets, np.int64)
    if not len(ends) or (ends[0] > offset and bool((ends[1:] > ends[:-1]).all())):
        return list(next_offsets)  # no wrappers, the usual case
    found: list[int] = []
    position = offset
    inside = 0
    for next_offset in next_offsets:
        inside += 1
        if next_offset > position:
            found.extend([next_offset] * inside)
            position, inside = next_offset, 0
    return found


def entry_offsets(ends: Sequence[int], offset: int) -> list[int]:
    """The offset of each message's entry, given `entry_next_offsets`."""
    found: list[int] = []
    start = end = offset
    for entry_end in ends:
        if entry_end != end:
            start, end = end, entry_end
        found.append(start)
    return found


def _time_ms(payload: bytes, origin: Origin) -> int | None:
    """The time of an event; None for anything else."""
    time_ms = origin.time_ms(payload)
    return time_ms if time_ms is not None and time_ms <= TIME_MS_MAX else None


def _prefix(payload: bytes, prefix_bytes: int) -> bytes | None:
    """The bytes in front of an event's header; None for a message that is not an Avro event."""
    if not prefix_bytes or len(payload) < prefix_bytes or payload[0] != FORM_BYTE:
        return None
    return payload[:prefix_bytes]


def _schema_id(prefix: bytes | None) -> str | None:
    """The schema's id in the registry, or its fingerprint in hexadecimal (2011 form). None for a
    message that is no event."""
    if prefix is None:
        return None
    if len(prefix) == PREFIX_BYTES_ID:
        return str(int.from_bytes(prefix[1:], "big"))
    return prefix[1:].hex()
