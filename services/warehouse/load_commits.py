"""A load as its commit records it: what is published with the files, and read back by the audit.

End offsets are app transactions, one per partition, and so are the newest epochs of a replica set
(`lineage_transactions`) and the last bytes that were read before an offset (`tail_transactions`).
The counts are in the commit's custom metadata under METADATA_KEY. `delta_table` commits them;
docs/warehouse.md says what follows when a load dies on the way.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka2011.consumer.log_tail import Tail, TailAt
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.protocol.lineage import HISTORY_MAX, Lineage, history
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse import delta_log

METADATA_KEY = "kafka2011"
APP_PREFIX = "load/"
# The app transaction whose version is the hour (since the epoch) before which upkeep dropped rows.
DROPPED_APP = "upkeep/dropped-before-hour"
MS_PER_HOUR = 3_600_000
EPOCH_PREFIX = "epoch/"
EPOCH_START_PREFIX = "epoch-start/"
TAIL_PREFIX = "tail/"
TAIL_BYTES_PREFIX = "tail-bytes/"
TAIL_END_PREFIX = "tail-end/"
# The lineage in a commit that makes a table forget from which epochs it was read.
FORGOTTEN: Lineage = ((0, 0),)

Counts = dict[tuple[int, str], int]  # (window start in ms, server) -> messages


@dataclass(frozen=True, slots=True)
class NewFile:
    """A Parquet file in the table's directory that no commit names yet.

    `path` is relative to the table; `stats` is Delta's JSON (numRecords and so on).
    """

    path: str
    hour: str
    size_bytes: int
    rows: int
    stats: str
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class LoadedRange:
    """What was read of one partition: from `start` up to `end`, both offsets of entries.

    `committed` is the app transaction at the time of planning (None: never loaded); it differs
    from `start` where the broker had retired the bytes in between, which are then a gap.
    `lineage`: of the log, where it is a replica set's. `tail`: of what was read.
    """

    source: BrokerPartition
    committed: int | None
    start: int
    end: int
    lineage: Lineage = ()
    tail: Tail | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The contents of one commit. `counts` are of the decoded messages."""

    topic: str
    ranges: Sequence[LoadedRange]
    files: Sequence[NewFile]
    counts: Mapping[tuple[int, str], int]
    window_ms: int
    quarantined: Mapping[tuple[int, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One load as recorded in the table's log, for the audit.

    `counts` are the rows added, by (window start in ms, server). `quarantined` are messages that
    were read and could not become rows: they are in the quarantine table and not in `counts`, and
    have the key (-1, "unreadable-header") where not even the header was readable. `offsets` are
    next offsets.
    """

    version: int
    timestamp_ms: int
    topic: str
    window_ms: int
    counts: Counts
    quarantined: Counts
    offsets: dict[BrokerPartition, int]
    gaps: dict[BrokerPartition, tuple[int, int]]
    rows: int


def app_id(topic: str, source: BrokerPartition) -> str:
    """The app transaction whose version is the partition's next offset."""
    return f"{APP_PREFIX}{topic}/{source.text}"


def lineage_transactions(topic: str, loaded: LoadedRange) -> dict[str, int]:
    """App ids and versions of the log's newest epochs, newest first; 0 where there are fewer."""
    if not loaded.lineage:
        return {}
    newest = [*reversed(history(loaded.lineage)), *[(0, 0)] * HISTORY_MAX][:HISTORY_MAX]
    place = f"{topic}/{loaded.source.text}"
    return {
        f"{prefix}{place}/{number}": value
        for number, entry in enumerate(newest)
        for prefix, value in zip((EPOCH_PREFIX, EPOCH_START_PREFIX), entry, strict=True)
    }


def tail_transactions(topic: str, loaded: LoadedRange) -> dict[str, int]:
    """App ids and versions of the tail; none where it is not known: one that stands there is of
    another offset then, which it has beside it."""
    if loaded.tail is None:
        return {}
    place = f"{topic}/{loaded.source.text}"
    return {
        f"{TAIL_PREFIX}{place}": int.from_bytes(loaded.tail.digest, signed=True),
        f"{TAIL_BYTES_PREFIX}{place}": loaded.tail.size,
        f"{TAIL_END_PREFIX}{place}": loaded.end,
    }


def stored_tails(transactions: Mapping[str, int], topic: str) -> dict[BrokerPartition, TailAt]:
    """The tails in a table's app transactions."""
    prefix = f"{TAIL_PREFIX}{topic}/"
    found = {}
    for name, number in transactions.items():
        place = name.removeprefix(TAIL_PREFIX)
        size = transactions.get(f"{TAIL_BYTES_PREFIX}{place}")
        end = transactions.get(f"{TAIL_END_PREFIX}{place}")
        if name.startswith(prefix) and size is not None and end is not None:
            tail = Tail(size, number.to_bytes(8, signed=True))
            found[broker_partition_of(name.removeprefix(prefix))] = TailAt(end, tail)
    return found


def broker_partition_of(text: str) -> BrokerPartition:
    """`11-0` as broker and partition."""
    broker_id, _, partition = text.partition("-")
    return BrokerPartition(int(broker_id), int(partition))


def metadata_of(load: Load) -> str:
    """The JSON of a commit, which `read_commits` reads."""
    return json.dumps(
        {
            "topic": load.topic,
            "window_ms": load.window_ms,
            "rows": sum(file.rows for file in load.files),
            "counts": _cells(load.counts),
            "quarantined": _cells(load.quarantined),
            "offsets": {part.source.text: [part.start, part.end] for part in load.ranges},
            "gaps": {
                part.source.text: [part.committed, part.start]
                for part in load.ranges
                if part.committed is not None and part.committed != part.start
            },
        },
        separators=(",", ":"),
    )


def _cells(counts: Mapping[tuple[int, str], int]) -> list[list[Any]]:
    return [[window, server, count] for (window, server), count in sorted(counts.items())]


def _counts(cells: Sequence[Sequence[Any]]) -> Counts:
    return {(window, server): count for window, server, count in cells}


def read_commits(table_path: StoragePath, since_version: int = -1) -> list[CommitInfo]:
    """The loads committed above `since_version`, in order; [] while there is no table.

    Pass the newest version read so far, and each load is returned exactly once, across restarts.
    Commits that are not loads (creation, compaction) are skipped. Reads only the new commit files.
    """
    found = []
    for version, actions in delta_log.commits_after(table_path, since_version):
        for action in actions:
            info = action.get("commitInfo")
            if info and METADATA_KEY in info:
                found.append(_commit_info(version, info))
    return found


def _commit_info(version: int, info: dict[str, Any]) -> CommitInfo:
    load = json.loads(info[METADATA_KEY])
    return CommitInfo(
        version=version,
        timestamp_ms=int(info["timestamp"]),
        topic=load["topic"],
        window_ms=load["window_ms"],
        counts=_counts(load["counts"]),
        quarantined=_counts(load["quarantined"]),
        offsets={broker_partition_of(k): end for k, (_, end) in load["offsets"].items()},
        gaps={broker_partition_of(k): (a, b) for k, (a, b) in load["gaps"].items()},
        rows=load["rows"],
    )
