"""Replays a topic's quarantine: what can be read now becomes rows, the rest stays with its reason.

For messages that were set aside by mistake: the schema was not registered yet, or the software has
been fixed. Each piece of the quarantine takes two commits: the rows, then the quarantine without
them. After a kill in between, the next replay finds the rows by partition, offset and guid, and
only takes them out of the quarantine. Of two replays at once one fails, by an app transaction of
the rows' commit (`WarehouseTable.append`), since it looked before the other's rows were there. The
messages were counted as arrived when they were set aside, so the rows' commit has no counts.

Damaged entries stay: what they have as a payload is no message. Only messages below the offset up
to which the topic is loaded are replayed: those above may belong to a load that died, and are read
again (`tasks.TaskSettings.quarantined`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.events.registry_client import RegistryError
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import first_line
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseError, WarehouseTable
from kafka2011.services.warehouse.load.columns import EventColumns, columns_of_topic
from kafka2011.services.warehouse.load.parquet_files import HourFiles
from kafka2011.services.warehouse.load.plain_columns import PlainColumns
from kafka2011.services.warehouse.load.quarantine_rows import (
    QuarantinedMessage,
    places_by_partition,
    rows_between,
)
from kafka2011.services.warehouse.load.schema_columns import HOUR_FIELD, SOURCE_FIELDS
from kafka2011.services.warehouse.load.tasks import (
    DAMAGED,
    EVENT_TIME,
    HEADER_TIME,
    QUARANTINE_FIELDS,
)
from kafka2011.services.warehouse.table_paths import TablePlaces

log = get_logger(__name__)

PIECE_BYTES_MAX = 32 * 1024 * 1024
PIECE_ROWS_MAX = 50_000
IDENTITY = ["source_broker", "source_partition", "source_offset", "guid"]


@dataclass(frozen=True)
class Replayed:
    """How many messages became rows, how many are still in quarantine, and the reason of the first
    of these."""

    rows: int = 0
    left: int = 0
    reason: str = ""


class _Piece(NamedTuple):
    """Quarantined messages of one partition whose entries end in (`start`, `end`]."""

    source: BrokerPartition
    start: int
    end: int
    messages: pa.Table


def run_replay(config: WarehouseConfig, topic: str) -> int:
    """Run `kafka2011 load --replay-quarantine`; returns the exit status."""
    try:
        replayed = replay(config, topic)
    except (WarehouseError, DeltaError, RegistryError, OSError) as error:
        log.error("replay_failed", topic=topic, reason=first_line(error))
        return 1
    why = {"reason": replayed.reason} if replayed.left else {}
    log.info("replayed", topic=topic, rows=replayed.rows, left_in_quarantine=replayed.left, **why)
    return 0


def replay(config: WarehouseConfig, topic: str) -> Replayed:
    """Turn the topic's quarantined messages into rows where they can be read now.

    Raises WarehouseError (the topic has no tables, or a load or another replay commits at the same
    moment: run it again), DeltaError, OSError, RegistryError. Whatever it raises, nothing is lost
    or repeated by running it again.
    """
    places = TablePlaces(config.warehouse_dir.resolve())
    table = WarehouseTable.open(places.rows(topic))
    quarantine = WarehouseTable.open(places.quarantine(topic))
    if table is None:
        raise WarehouseError(f"topic {topic} was never loaded into {config.warehouse_dir}")
    found = Replayed()
    if quarantine is None:
        return found
    columns = columns_of_topic(topic, config.topic_codec(), table.schema())
    loaded = table.known_partitions(topic)
    files = quarantine.file_paths()
    every = places_by_partition(files)
    behind = {
        source: [place for place in places if place.next_offset <= loaded.get(source, -1)]
        for source, places in every.items()
    }
    for piece in _pieces(files, behind):
        one = _replay_piece(piece, columns, table, quarantine)
        reason = found.reason or one.reason
        found = Replayed(found.rows + one.rows, found.left + one.left, reason)
    ahead = sum(map(len, every.values())) - sum(map(len, behind.values()))
    reason = found.reason
    if ahead and not reason:
        reason = "its offset is not loaded yet, or of a log before --reset"
    return Replayed(found.rows, found.left + ahead, reason)


def _pieces(
    files: Sequence[str], places: Mapping[BrokerPartition, list[QuarantinedMessage]]
) -> Iterator[_Piece]:
    """These messages in pieces of bounded size, each of whole entries."""
    for source, of_one in places.items():
        start = -1
        for end in _ends(of_one):
            batches = rows_between(files, source, start, end, QUARANTINE_FIELDS.names)
            yield _Piece(source, start, end, pa.Table.from_batches(batches, QUARANTINE_FIELDS))
            start = end


def _ends(places: list[QuarantinedMessage]) -> Iterator[int]:
    """Where each piece ends: behind the last message of an entry."""
    size = rows = 0
    following = [*(place.next_offset for place in places[1:]), None]
    for place, after in zip(places, following, strict=False):
        size, rows = size + place.payload_bytes, rows + 1
        is_full = size >= PIECE_BYTES_MAX or rows >= PIECE_ROWS_MAX
        if after is None or (is_full and after != place.next_offset):
            yield place.next_offset
            size = rows = 0


def _replay_piece(
    piece: _Piece,
    columns: EventColumns | PlainColumns,
    table: WarehouseTable,
    quarantine: WarehouseTable,
) -> Replayed:
    reasons = piece.messages.column("reason").to_pylist()
    whole = [n for n, reason in enumerate(reasons) if not reason.startswith(DAMAGED)]
    decoded = columns.decode(_taken(piece.messages, whole).column("payload").to_pylist())
    for index, reason in decoded.rejected:
        reasons[whole[index]] = reason  # that of today: settings and schemas may be others
    if not decoded.batch.num_rows:
        return Replayed(0, len(reasons), next(iter(reasons), ""))
    rejected = {reject.message_index for reject in decoded.rejected}
    read = [n for index, n in enumerate(whole) if index not in rejected]
    left = sorted({*range(len(reasons))} - {*read})
    sources = _taken(piece.messages.select([field.name for field in SOURCE_FIELDS]), read)
    rows = pa.Table.from_batches([decoded.batch])
    for name in sources.column_names:
        rows = rows.append_column(name, sources.column(name))
    table.refresh()
    replays = table.replays(columns.topic, piece.source)
    fresh = _not_yet_there(rows, piece, table)
    if fresh.num_rows:
        files = HourFiles(table.path, (EVENT_TIME, HEADER_TIME))
        try:
            for batch in fresh.combine_chunks().to_batches():
                files.add(batch)
            written = files.finish()
            table.add_columns(columns.table_schema)
        except BaseException:
            files.discard()
            raise
        table.append(written, columns.topic, piece.source, replays)
    failpoint("replay_after_rows")
    kept = _taken(piece.messages, left)
    times = kept.column("quarantined_at").to_pylist()
    hours = pa.array([f"{time:%Y-%m-%d-%H}" for time in times], pa.string())
    kept = kept.append_column(HOUR_FIELD, hours)
    quarantine.replace_range(piece.source, piece.start, piece.end, kept)
    return Replayed(rows.num_rows, len(left), next((reasons[n] for n in left), ""))


def _not_yet_there(rows: pa.Table, piece: _Piece, table: WarehouseTable) -> pa.Table:
    """The rows without those that an earlier replay committed before it died."""
    there: Counter[tuple[Any, ...]] = Counter()
    for batch in rows_between(table.file_paths(), piece.source, piece.start, piece.end, IDENTITY):
        there.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    kept = []
    keys = zip(*(rows.column(name).to_pylist() for name in IDENTITY), strict=True)
    for index, key in enumerate(keys):
        if there[key]:
            there[key] -= 1
        else:
            kept.append(index)
    return _taken(rows, kept)


def _taken(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    """These rows of the table."""
    return table.take(pa.array(rows, pa.int64()))
