"""What a Spark task does with a range: read it through a broker's restart, make Arrow batches.

Used by the data source (`spark_source`) and by the warehouse's load tasks, which skip the way
through the JVM. Imports neither Spark nor ZooKeeper.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from consumer.chunk import Chunk
from consumer.errors import BrokerUnavailable
from consumer.planning import OffsetRange
from consumer.reading import FETCH_SIZE, read_range
from events.errors import HeaderUnreadable
from events.header import FORM_BYTE
from events.peek import peek
from events.schemas import FINGERPRINT_BYTES
from protocol import message_set
from protocol.errors import InvalidMessage

PATIENCE_S = 15.0  # a broker that is started again serves well within this
PAUSE_S = 0.25

# Spark wants exactly this type, and a later batch that differs fails far from its cause.
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
_PREFIX_BYTES = 1 + FINGERPRINT_BYTES
# Spark and Python know the years up to 9999.
_TIME_MS_MAX = 253_402_300_799_999


def read_patiently(
    address: tuple[str, int],
    planned: OffsetRange,
    *,
    fetch_size: int = FETCH_SIZE,
    socket_timeout_ms: int = 30_000,
    patience_s: float = PATIENCE_S,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Chunk]:
    """`read_range`, going on where it stopped when the broker is away for less than `patience_s`.

    Raises what `read_range` raises; BrokerUnavailable only after the patience without progress.
    """
    offset = planned.start
    deadline = monotonic() + patience_s
    while True:
        try:
            for chunk in read_range(
                address,
                planned.topic,
                planned.broker_id,
                planned.partition,
                offset,
                planned.end,
                fetch_size,
                socket_timeout_ms=socket_timeout_ms,
            ):
                yield chunk
                offset = chunk.next_offset
                deadline = monotonic() + patience_s
            return
        except BrokerUnavailable:
            if monotonic() >= deadline:
                raise
            pause(PAUSE_S)


def entry_next_offsets(next_offsets: Sequence[int], offset: int) -> list[int]:
    """For each message the next offset of its entry, given what a consumer would store.

    A consumer stores a wrapper's own start for all but its last message (reference 3.8), since a
    fetch cannot start inside. A row says where its entry ends, so that "read up to" compares.
    `offset` is where the set was fetched.
    """
    ends = np.array(next_offsets, np.int64)
    if not len(ends) or (ends[0] > offset and bool((ends[1:] > ends[:-1]).all())):
        return list(next_offsets)  # no wrappers, as mostly
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
    """Where each message's entry starts, given `entry_next_offsets`."""
    found: list[int] = []
    start = end = offset
    for entry_end in ends:
        if entry_end != end:
            start, end = end, entry_end
        found.append(start)
    return found


def message_batches(chunk: Chunk) -> Iterator[pa.RecordBatch]:
    """The chunk's messages as batches of MESSAGE_SCHEMA.

    A damaged entry is a row whose payload is the raw entry and whose `error` says what is wrong,
    so that a query can keep it apart; in all other rows `error` is null.

    Raises InvalidMessage when an entry's length is damaged, for nothing after it can be found.
    """
    try:
        pairs = message_set.messages(chunk.data, chunk.offset)
    except InvalidMessage:
        yield from _batches_by_entry(chunk)
        return
    if pairs:
        ends = entry_next_offsets([after for _, after in pairs], chunk.offset)
        payloads = [payload for payload, _ in pairs]
        yield _batch(chunk, payloads, entry_offsets(ends, chunk.offset), ends)


def _batches_by_entry(chunk: Chunk) -> Iterator[pa.RecordBatch]:
    for entry in message_set.entries(chunk.data, chunk.offset):
        raw = bytes(chunk.data[entry.offset - chunk.offset : entry.next_offset - chunk.offset])
        try:
            payloads, error = message_set.payloads(raw), None
        except InvalidMessage as damage:
            payloads, error = [raw], f"damaged entry: {damage}"
        count = len(payloads)
        if count:
            yield _batch(
                chunk, payloads, [entry.offset] * count, [entry.next_offset] * count, error
            )


def _batch(
    chunk: Chunk,
    payloads: Sequence[bytes],
    starts: Sequence[int],
    ends: Sequence[int],
    error: str | None = None,
) -> pa.RecordBatch:
    rows = len(payloads)
    times = [None] * rows if error else [_time_ms(payload) for payload in payloads]
    arrays = [
        pa.repeat(pa.scalar(chunk.topic, pa.string()), rows),
        pa.repeat(pa.scalar(chunk.broker_id, pa.int32()), rows),
        pa.repeat(pa.scalar(chunk.partition, pa.int32()), rows),
        pa.array(starts, pa.int64()),
        pa.array(ends, pa.int64()),
        pa.array(times, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP),
        pa.nulls(rows, pa.string()) if error else _schema_ids(payloads),
        pa.array(payloads, pa.binary()),
        pa.repeat(pa.scalar(error, pa.string()), rows),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_SCHEMA)


def _time_ms(payload: bytes) -> int | None:
    """header.time of an event; None for anything else."""
    try:
        time_ms = peek(payload).time_ms
    except HeaderUnreadable:
        return None
    return time_ms if time_ms <= _TIME_MS_MAX else None


def _schema_ids(payloads: Sequence[bytes]) -> pa.Array:
    """The hexadecimal fingerprint of each event in the 2011 form, null for anything else."""
    names: dict[bytes, str | None] = {}
    found: list[str | None] = []
    for payload in payloads:
        prefix = payload[:_PREFIX_BYTES]
        try:
            found.append(names[prefix])
        except KeyError:
            is_event = len(prefix) == _PREFIX_BYTES and prefix[0] == FORM_BYTE
            names[prefix] = prefix[1:].hex() if is_event else None
            found.append(names[prefix])
    return pa.array(found, pa.string())
