"""Files of the messages that a query with `quarantine.dir` could not read.

One Parquet file for each task with such messages: topic, broker, partition, offset, next_offset,
error, payload, quarantined_at. Its name is the range of the task, so that a task that Spark runs
again replaces its file and no message is there twice. A topic name that is long, or could be
confused with another or with a hidden file, is shortened and gets a hash.
"""

import hashlib
import os
import re
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.spark.rows import TIMESTAMP, Unreadable

# Written when it has buffered this much; a range may be damaged from end to end.
BUFFER_BYTES_MAX = 32 * 1024 * 1024

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("broker", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("next_offset", pa.int64()),
        pa.field("error", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("quarantined_at", TIMESTAMP),
    ]
)


TOPIC_CHARACTERS_MAX = 100
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]*")


def file_topic(topic: str) -> str:
    """The topic in a file's name: distinct for each topic, whatever names clients choose."""
    if _PLAIN.fullmatch(topic) and len(topic) <= TOPIC_CHARACTERS_MAX:
        return topic
    stem = re.sub(r"[^a-z0-9]", "_", topic.lower()).lstrip("_")[:TOPIC_CHARACTERS_MAX]
    digest = hashlib.sha256(topic.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{stem or 'topic'}~{digest}"  # no plain name has this character


class QuarantineFile:
    """Collects the unreadable messages of one range. `close` renames the file into place, `discard`
    removes it. The methods raise OSError when the file cannot be written. Not thread-safe."""

    def __init__(self, directory: Path, planned: OffsetRange) -> None:
        topic, broker_id, partition, start, end = planned
        place = f"{file_topic(topic)}-{broker_id}-{partition}"
        self._final = directory / f"{place}-{start:020}-{end:020}.parquet"
        self._unfinished = self._final.with_name(f".{self._final.name}.{uuid.uuid4().hex}")
        self._writer: pq.ParquetWriter | None = None
        self._held: list[Unreadable] = []
        self._held_bytes = 0

    def put(self, message: Unreadable) -> None:
        self._held.append(message)
        self._held_bytes += len(message.payload)
        if self._held_bytes >= BUFFER_BYTES_MAX:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._final.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._unfinished, QUARANTINE_SCHEMA, compression="zstd")
        now_us = pa.scalar(time.time_ns() // 1000, pa.int64()).cast(TIMESTAMP)
        columns = zip(*self._held, strict=True)
        arrays = [pa.array(v, f.type) for v, f in zip(columns, QUARANTINE_SCHEMA, strict=False)]
        arrays.append(pa.repeat(now_us, len(self._held)))
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=QUARANTINE_SCHEMA))
        self._held, self._held_bytes = [], 0

    def close(self) -> None:
        if self._held:
            self._write()
        if self._writer is None:
            return
        self._writer.close()
        with self._unfinished.open("rb") as file:
            os.fsync(file.fileno())
        self._unfinished.replace(self._final)

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._unfinished.unlink(missing_ok=True)
