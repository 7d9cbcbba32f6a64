"""A load's work on an executor: read ranges, decode, count, write files.

A task is a list of ranges of one or more topics. It runs in a Spark Python worker, and in tests
without Spark. Payloads stay here: the driver gets file names, counts and end offsets. A failure
is part of the result, so that one broken partition does not keep the others from being loaded.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.log_tail import Tail, tail_of
from kafka2011.consumer.silent_brokers import SilentBrokers
from kafka2011.consumer.spark.rows import entry_next_offsets
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.events.codec_source import CodecSource
from kafka2011.events.errors import HeaderUnreadable
from kafka2011.events.header import UNREADABLE
from kafka2011.events.origin import Origin, origin_of
from kafka2011.events.schema_cache import RegisteredSchema
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage, KafkaError
from kafka2011.runtime import object_store
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse.load.arrow_types import TIMESTAMP
from kafka2011.services.warehouse.load.columns import event_columns, with_source
from kafka2011.services.warehouse.load.parquet_files import HourFiles
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.schema_columns import HOUR_FIELD, says_origin
from kafka2011.services.warehouse.load_commits import Counts, NewFile

# The hour of a row is that of the event's own time where it has one, else of its header's time,
# else of the load.
EVENT_TIME = "event_time"
HEADER_TIME = "header_time"

QUARANTINE_FIELDS = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("quarantined_at", TIMESTAMP),
        pa.field("source_broker", pa.int32()),
        pa.field("source_partition", pa.int32()),
        pa.field("source_offset", pa.int64()),
    ]
)
QUARANTINE_SCHEMA = pa.schema([*QUARANTINE_FIELDS, HOUR_FIELD])
# The beginning of the reason where a payload is no message but a damaged entry as it stands in the
# log. It is the same in quarantines of all versions: `replay` goes by it.
DAMAGED = "damaged entry"


# Messages decoded at a time; a compressed set can hold a million of a few bytes.
DECODED_MAX = 65_536

# Reads a range in chunks of whole entries; raises KafkaError or OSError when it cannot.
Read = Callable[[PlannedRange], Iterator[Chunk]]


class TopicPaths(NamedTuple):
    """Where a topic's tables are."""

    rows: StoragePath
    quarantine: StoragePath


class Aside(NamedTuple):
    """A quarantined message: the next offset of its entry, the MD5 of its payload."""

    next_offset: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The settings of every task of a load."""

    paths: dict[str, TopicPaths]
    window_ms: int
    # What a load that died between its two commits has left in the quarantine tables, by partition:
    # such a message is neither quarantined again nor made a row now. Usually empty.
    quarantined: dict[tuple[str, BrokerPartition], frozenset[Aside]] = field(default_factory=dict)
    codec: CodecSource = field(default_factory=CodecSource)
    # The columns of the topics' tables, where there are any.
    columns: dict[str, pa.Schema] = field(default_factory=dict)


@dataclass(slots=True)
class TopicResult:
    """The result of one task for one topic.

    `ends` has the next offset of each range that was read, `tails` what was read last before it:
    after a read error, those of the last good chunk. After a write error `is_usable` is False, and
    nothing of the result counts. `columns` are those that the events' schemas have given the topic.
    """

    topic: str
    columns: pa.Schema | None = None
    ends: dict[BrokerPartition, int] = field(default_factory=dict)
    tails: dict[BrokerPartition, Tail] = field(default_factory=dict)
    files: list[NewFile] = field(default_factory=list)
    counts: Counts = field(default_factory=dict)
    quarantine_files: list[NewFile] = field(default_factory=list)
    quarantined: Counts = field(default_factory=dict)
    ages: dict[int, int] = field(default_factory=dict)
    ages_at_ms: int = 0
    rows: int = 0
    read_bytes: int = 0
    errors: list[str] = field(default_factory=list)
    is_usable: bool = True
    # Requests to an object store that were sent again, by reason (runtime/object_store).
    store_retries: dict[str, int] = field(default_factory=dict)
    # Fetched from the registry by this task, by id.
    schemas: dict[int, RegisteredSchema] = field(default_factory=dict)


def run_task(
    ranges: Sequence[PlannedRange], settings: TaskSettings, read: Read
) -> list[TopicResult]:
    """Load the ranges into files that no commit names yet; returns one result a topic."""
    by_topic: dict[str, list[PlannedRange]] = {}
    for planned in ranges:
        by_topic.setdefault(planned.topic, []).append(planned)
    silent = SilentBrokers()

    def read_if_answered(planned: PlannedRange) -> Iterator[Chunk]:
        with silent.asking(planned.source.broker_id):
            yield from read(planned)

    results = [
        _TopicTask(topic, settings).run(part, read_if_answered) for topic, part in by_topic.items()
    ]
    if results:
        results[0].store_retries = object_store.RETRIES.take()
    failpoint("in_task_after_files_written")
    return results


class _TopicTask:
    """Loads one topic's ranges inside one task."""

    def __init__(self, topic: str, settings: TaskSettings) -> None:
        self._settings = settings
        self._result = TopicResult(topic, ages_at_ms=now_ms())
        self._codec = settings.codec.codec()
        self._origin = origin_of(settings.codec.forms, topic)
        self._columns = event_columns(topic, self._codec, settings.columns.get(topic))
        self._files = HourFiles(settings.paths[topic].rows, (EVENT_TIME, HEADER_TIME))
        quarantine = settings.paths[topic].quarantine
        self._quarantine = HourFiles(quarantine, ("quarantined_at",))

    def run(self, ranges: Sequence[PlannedRange], read: Read) -> TopicResult:
        result = self._result
        try:
            for planned in ranges:
                self._read_range(planned, read)
            result.files = self._files.finish()
            result.quarantine_files = self._quarantine.finish()
            result.columns = self._columns.event_schema
            known = self._settings.codec.known
            result.schemas = {n: s for n, s in self._codec.known().items() if known.get(n) != s}
        except Exception as error:  # the driver reports it and leaves these ranges uncommitted
            result.errors.append(f"{type(error).__name__}: {first_line(error)}")
            result.is_usable = False
            result.files = []
            for written in (self._files, self._quarantine):
                written.discard()  # a full disk must not fill further with every attempt
        return result

    def _read_range(self, planned: PlannedRange, read: Read) -> None:
        chunks = read(planned)
        while True:
            try:
                chunk = next(chunks, None)
            except (KafkaError, OSError) as error:
                self._result.errors.append(f"{planned.source.text}: {first_line(error)}")
                return
            if chunk is None:
                return
            self._load_chunk(planned, chunk)
            self._result.ends[planned.source] = chunk.next_offset
            self._result.tails[planned.source] = tail_of(chunk.data)

    def _load_chunk(self, planned: PlannedRange, chunk: Chunk) -> None:
        self._result.read_bytes += len(chunk.data)
        while chunk.data:
            try:
                pairs, end = message_set.take_messages(chunk.data, chunk.offset)
            except InvalidMessage:
                self._load_damaged(planned, chunk)
                return
            next_offsets = entry_next_offsets([after for _, after in pairs], chunk.offset)
            self._load_payloads(planned, [payload for payload, _ in pairs], next_offsets)
            pairs, next_offsets = [], []  # do not hold two pieces at once
            chunk = chunk.behind(end)

    def _load_damaged(self, planned: PlannedRange, chunk: Chunk) -> None:
        """Load a chunk that has a damaged entry: entry by entry, damaged ones to quarantine.

        Raises InvalidMessage when an entry's length is damaged: no entry behind it can be found.
        """
        for entry in message_set.entries(chunk.data, chunk.offset):
            start, end = entry.offset - chunk.offset, entry.next_offset - chunk.offset
            raw = bytes(chunk.data[start:end])
            try:
                payloads = message_set.payloads(raw)
            except InvalidMessage as error:
                fault = str(error).removesuffix(" of entry at 0")  # which is where `raw` begins
                reason = f"{DAMAGED} at {entry.offset}: {fault}"
                self._set_aside(planned, [raw], [entry.next_offset], [reason])
            else:
                self._load_payloads(planned, payloads, [entry.next_offset] * len(payloads))

    def _load_payloads(
        self, planned: PlannedRange, payloads: Sequence[bytes], next_offsets: Sequence[int]
    ) -> None:
        for start in range(0, len(payloads), DECODED_MAX):
            part = slice(start, start + DECODED_MAX)
            self._load_decoded(planned, payloads[part], next_offsets[part])

    def _load_decoded(
        self, planned: PlannedRange, payloads: Sequence[bytes], next_offsets: Sequence[int]
    ) -> None:
        aside = self._settings.quarantined.get((planned.topic, planned.source))
        if aside:
            payloads, next_offsets = self._leave_out(payloads, next_offsets, aside)
        decoded = self._columns.decode(payloads)
        if decoded.rejected:
            rejected = [reject.message_index for reject in decoded.rejected]
            self._set_aside(
                planned,
                [payloads[index] for index in rejected],
                [next_offsets[index] for index in rejected],
                [reject.reason for reject in decoded.rejected],
            )
            gone = set(rejected)
            next_offsets = [n for i, n in enumerate(next_offsets) if i not in gone]
        if decoded.batch.num_rows:
            self._count(decoded.batch)
            broker_id, partition = planned.source
            self._files.add(with_source(decoded.batch, broker_id, partition, next_offsets))

    def _count(self, batch: pa.RecordBatch) -> None:
        result = self._result
        result.rows += batch.num_rows
        said = says_origin(batch)
        if said.false_count:
            unsaid = result.counts.get(UNREADABLE, 0) + said.false_count
            result.counts[UNREADABLE] = unsaid
            batch = batch.filter(said)
        times_ms = batch.column(HEADER_TIME).cast(pa.int64()).to_numpy() // 1000
        for key, count in count_windows(
            times_ms, batch.column("server"), self._settings.window_ms
        ).items():
            result.counts[key] = result.counts.get(key, 0) + count
        for age, count in rounded_ages(times_ms, result.ages_at_ms).items():
            result.ages[age] = result.ages.get(age, 0) + count

    def _leave_out(
        self, payloads: Sequence[bytes], next_offsets: Sequence[int], aside: frozenset[Aside]
    ) -> tuple[list[bytes], list[int]]:
        """The messages that are not in the quarantine; counts the others as quarantined."""
        pairs = [*zip(payloads, next_offsets, strict=True)]
        kept = [pair for pair in pairs if aside_of(pair[1], pair[0]) not in aside]
        self._count_aside([payload for payload, n in pairs if aside_of(n, payload) in aside])
        return [payload for payload, _ in kept], [next_offset for _, next_offset in kept]

    def _count_aside(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            key = _window_key(payload, self._settings.window_ms, self._origin)
            self._result.quarantined[key] = self._result.quarantined.get(key, 0) + 1

    def _set_aside(
        self,
        planned: PlannedRange,
        payloads: Sequence[bytes],
        next_offsets: Sequence[int],
        reasons: Sequence[str],
    ) -> None:
        """Quarantine messages; counts them even where an earlier attempt has written them."""
        self._count_aside(payloads)
        already = self._settings.quarantined.get((planned.topic, planned.source), frozenset())
        places = enumerate(zip(next_offsets, payloads, strict=True))
        fresh = [i for i, (n, raw) in places if not already or aside_of(n, raw) not in already]
        if not fresh:
            return
        rows = len(fresh)
        now_us = pa.scalar(time.time_ns() // 1000, pa.int64()).cast(TIMESTAMP)
        self._quarantine.add(
            pa.RecordBatch.from_arrays(
                [
                    pa.array([reasons[i] for i in fresh], pa.string()),
                    pa.array([payloads[i] for i in fresh], pa.binary()),
                    pa.repeat(now_us, rows),
                    pa.repeat(pa.scalar(planned.source.broker_id, pa.int32()), rows),
                    pa.repeat(pa.scalar(planned.source.partition, pa.int32()), rows),
                    pa.array([next_offsets[i] for i in fresh], pa.int64()),
                ],
                schema=QUARANTINE_FIELDS,
            )
        )


def aside_of(next_offset: int, payload: bytes) -> Aside:
    return Aside(next_offset, hashlib.md5(payload, usedforsecurity=False).digest())


def _window_key(payload: bytes, window_ms: int, origin: Origin) -> tuple[int, str]:
    try:
        header = origin.header(payload)
    except HeaderUnreadable:
        return UNREADABLE
    return header.time_ms - header.time_ms % window_ms, header.server


def count_windows(times_ms: np.ndarray, servers: pa.Array, window_ms: int) -> Counts:
    """The number of rows by (window start in ms, server)."""
    encoded = servers.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    keys = (times_ms // window_ms) * len(names) + encoded.indices.to_numpy()
    distinct, counts = np.unique(keys, return_counts=True)
    return {
        (key // len(names) * window_ms, names[key % len(names)]): count
        for key, count in zip(distinct.tolist(), counts.tolist(), strict=True)
    }


def rounded_ages(times_ms: np.ndarray, at_ms: int) -> dict[int, int]:
    """The number of messages by age in ms at `at_ms`, rounded to two digits: at most 90 values per
    power of ten."""
    ages = np.maximum(at_ms - times_ms, 0)
    digits = np.floor(np.log10(np.maximum(ages, 1))).astype(np.int64)
    step = 10 ** np.maximum(digits - 1, 0)
    distinct, counts = np.unique(ages // step * step, return_counts=True)
    return dict(zip(distinct.tolist(), counts.tolist(), strict=True))
