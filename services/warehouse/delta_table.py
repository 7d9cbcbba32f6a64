"""One table of the warehouse, and the one Delta commit of a load: files, end offsets and counts.

A load is published whole or not at all. Its offsets are one app transaction per partition,
`load/<topic>/<broker>-<partition>` with version = next offset, which survives compaction,
checkpoints and log clean-up. The counts are in the commit's custom metadata under the key
`kafka2011`, where the audit reads them with `read_commits`. Files are invisible until the commit
names them. docs/warehouse.md says what follows when a load dies on the way.

delta-rs accepts the same app transaction twice, so a commit checks and then commits on the same
DeltaTable object: of two commits from one snapshot that name the same app transaction, the second
fails with AnotherLoadWon. Its files are left to `vacuum`, and the load is planned again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.runtime.failpoints import failpoint
from kafka2011.services.warehouse import delta_log
from kafka2011.services.warehouse.load.column_types import TypesDiffer, merged

METADATA_KEY = "kafka2011"
APP_PREFIX = "load/"
_DESCRIPTION = re.compile(
    r"events of topic (.*)|messages of topic (.*) that could not become rows", re.DOTALL
)
HOUR_COLUMN = "hour"

Counts = dict[tuple[int, str], int]  # (window start in ms, server) -> messages


class WarehouseError(Exception):
    """The warehouse cannot take this load."""


class AnotherLoadWon(WarehouseError):
    """Another instance committed these offsets first. Log it in one line and plan again."""


class CommitUncertain(WarehouseError):
    """The commit failed, and may have taken effect all the same. Its files must stay."""


class SchemaConflict(WarehouseError):
    """A column of the events has another type than the table's. The topic cannot be loaded."""


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


@dataclass(frozen=True, slots=True)
class LoadedRange:
    """What was read of one partition: from `start` up to `end`, both offsets of entries.

    `committed` is the app transaction at the time of planning (None: never loaded); it differs
    from `start` where the broker had retired the bytes in between, which are then a gap.
    """

    source: BrokerPartition
    committed: int | None
    start: int
    end: int


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
    return f"{APP_PREFIX}{topic}/{source.text}"


def rows_description(topic: str) -> str:
    """The description of a topic's table, by which it is known before anything is loaded."""
    return f"events of topic {topic}"


def quarantine_description(topic: str) -> str:
    return f"messages of topic {topic} that could not become rows"


def loaded_topics(table_path: Path) -> set[str]:
    """The topics that were loaded into the table: one, or several by versions before."""
    return {
        name.removeprefix(APP_PREFIX).rpartition("/")[0]
        for name in delta_log.app_transactions(table_path)
        if name.startswith(APP_PREFIX)
    }


def owner_of(table_path: Path) -> str | None:
    """The topic whose table this is; None where there is no table, or it names no topic.

    Several topics may have been loaded into one by versions before: it is the one's then for which
    it was created.
    """
    loaded = loaded_topics(table_path)
    if len(loaded) == 1:
        return loaded.pop()
    try:
        text = DeltaTable(str(table_path)).metadata().description or ""
    except TableNotFoundError:
        return None
    found = _DESCRIPTION.fullmatch(text)
    described = (found[1] if found[1] is not None else found[2]) if found else None
    if not loaded or described in loaded:
        return described
    return min(loaded)


def _broker_partition(text: str) -> BrokerPartition:
    broker_id, _, partition = text.partition("-")
    return BrokerPartition(int(broker_id), int(partition))


class WarehouseTable:
    """One Delta table in a local or mounted directory. Not thread-safe.

    Another process may commit at any time; `refresh` reads its commits.
    """

    def __init__(self, path: Path, table: DeltaTable) -> None:
        self.path = path
        self._table = table

    @classmethod
    def open(cls, path: Path) -> "WarehouseTable | None":
        """The table at its newest version; None when there is none yet."""
        try:
            return cls(path, DeltaTable(str(path)))
        except TableNotFoundError:
            return None

    @classmethod
    def open_or_create(cls, path: Path, schema: pa.Schema, description: str) -> "WarehouseTable":
        """The table, created empty with `schema` (which has the column `hour`) if it was not there.

        An existing table keeps its columns; see `add_columns`.
        """
        found = cls.open(path)
        if found is not None:
            return found
        path.mkdir(parents=True, exist_ok=True)
        try:
            table = DeltaTable.create(
                str(path),
                schema=schema,
                partition_by=[HOUR_COLUMN],
                name=path.name,
                description=description,
            )
        except DeltaError:
            found = cls.open(path)  # another instance created it at the same moment
            if found is None:
                raise
            return found
        return cls(path, table)

    def refresh(self) -> bool:
        """Read the commits since the last refresh; returns whether there were any."""
        before = self._table.version()
        self._table.update_incremental()
        return bool(self._table.version() != before)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def schema(self) -> pa.Schema:
        """The table's columns as Arrow, in the table's order, with the partition column."""
        return pa.schema(self._table.schema().to_arrow())

    def schema_json(self) -> str:
        """The columns in Delta's JSON, which is Spark's own form of a schema."""
        return str(self._table.schema().to_json())

    def file_paths(self) -> list[str]:
        """Absolute paths of the files of this version."""
        return [unquote(str(uri).removeprefix("file://")) for uri in self._table.file_uris()]

    def files_with_offset(self, next_offset: int) -> list[str]:
        """Paths, relative to the table, of the files that may have a row with this
        `source_offset`."""
        files = self._table.get_add_actions(flatten=True)  # to pyarrow it would load pandas
        names = ("path", "min.source_offset", "max.source_offset")
        if not set(names) <= set(files.column_names):
            return [unquote(path) for path in files.column("path").to_pylist()]
        return [
            unquote(path)
            for path, least, most in zip(*(files.column(n).to_pylist() for n in names), strict=True)
            if least is None or most is None or least <= next_offset <= most
        ]

    def row_count(self) -> int:
        """The rows of this version, from its log."""
        return int(self._table.count())

    def next_offset(self, topic: str, source: BrokerPartition) -> int | None:
        """Where the next load of the partition starts; None when it was never loaded."""
        version = self._table.transaction_version(app_id(topic, source))
        return None if version is None else int(version)

    def known_partitions(self, topic: str) -> dict[BrokerPartition, int]:
        """Every partition that was ever loaded into this table, with its next offset.

        Reads the whole log: not for every load.
        """
        prefix = f"{APP_PREFIX}{topic}/"
        return {
            _broker_partition(name.removeprefix(prefix)): version
            for name, version in delta_log.app_transactions(self.path).items()
            if name.startswith(prefix)
        }

    def lacking_columns(self, schema: pa.Schema) -> list[pa.Field]:
        """The columns of `schema` that the table does not have, or not with all their fields.

        Raises SchemaConflict when a column is there with another type.
        """
        present = {column.name: column for column in self.schema()}
        lacking = []
        for column in schema:
            known = present.get(column.name)
            if known is None:
                lacking.append(column)
                continue
            try:
                if merged(known.type, column.type, widens=False) != known.type:
                    lacking.append(column)
            except TypesDiffer:
                raise SchemaConflict(
                    f"{self.path.name}.{column.name} is {known.type}, the events have {column.type}"
                ) from None
        return lacking

    def add_columns(self, schema: pa.Schema) -> list[str]:
        """Add the columns that the table lacks, as optional ones; returns their names.

        Raises SchemaConflict when a column is there with another type; nothing is changed then.
        """
        lacking = self.lacking_columns(schema)
        if lacking:
            fields = Schema.from_arrow(pa.schema(lacking)).fields
            try:
                self._table.alter.add_columns(
                    [Field(column.name, column.type, nullable=True) for column in fields]
                )
            except CommitFailedError as error:
                raise AnotherLoadWon(f"{self.path.name}: {error}") from error
            self.refresh()
        return [column.name for column in lacking]

    def commit(self, load: Load) -> int:
        """Publish the load and return the table's version.

        Raises AnotherLoadWon when another instance has loaded a partition since the plan; nothing
        of this load is visible then, now or later. The same holds after any other error, except
        CommitUncertain.
        """
        self.refresh()
        for loaded in load.ranges:
            found = self.next_offset(load.topic, loaded.source)
            if found != loaded.committed:
                raise AnotherLoadWon(
                    f"{load.topic} {loaded.source.text}: planned from {loaded.committed}, "
                    f"the table is at {found}"
                )
        failpoint("before_commit")
        try:
            self._table.create_write_transaction(
                [_add_action(file, self.path) for file in load.files],
                "append",
                self._table.schema(),
                [HOUR_COLUMN],
                commit_properties=CommitProperties(
                    custom_metadata={METADATA_KEY: _metadata(load)},
                    app_transactions=[
                        Transaction(app_id(load.topic, loaded.source), loaded.end)
                        for loaded in load.ranges
                    ],
                ),
            )
            failpoint("after_commit")
            self.refresh()
        except CommitFailedError as error:
            raise AnotherLoadWon(f"{load.topic}: {error}") from error
        except (DeltaError, OSError) as error:
            raise CommitUncertain(str(error)) from error
        return self.version

    def append(self, files: Sequence[NewFile]) -> None:
        """Publish files that are no load: neither offsets nor counts. Raises DeltaError."""
        self._table.create_write_transaction(
            [_add_action(file, self.path) for file in files],
            "append",
            self._table.schema(),
            [HOUR_COLUMN],
        )
        self.refresh()

    def replace_range(self, source: BrokerPartition, start: int, end: int, rows: pa.Table) -> None:
        """Have exactly `rows` of the partition's messages whose entries end in (`start`, `end`].

        Raises DeltaError, also when another process has changed these rows meanwhile.
        """
        condition = _range_of(source, start, end)
        if rows.num_rows:
            write_deltalake(self._table, rows, mode="overwrite", predicate=condition)
        else:
            self._table.delete(condition)
        self.refresh()


def _range_of(source: BrokerPartition, start: int, end: int) -> str:
    """The condition for messages of the partition whose entries end in (`start`, `end`]."""
    broker_id, partition = source
    return (
        f"source_broker = {broker_id} AND source_partition = {partition} "
        f"AND source_offset > {start} AND source_offset <= {end}"
    )


def _add_action(file: NewFile, table_path: Path) -> AddAction:
    modified_ms = (table_path / file.path).stat().st_mtime_ns // 1_000_000
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={HOUR_COLUMN: file.hour},
        modification_time=modified_ms,
        data_change=True,
        stats=file.stats,
    )


def _metadata(load: Load) -> str:
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


def read_commits(table_path: Path, since_version: int = -1) -> list[CommitInfo]:
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
        offsets={_broker_partition(k): end for k, (_, end) in load["offsets"].items()},
        gaps={_broker_partition(k): (a, b) for k, (a, b) in load["gaps"].items()},
        rows=load["rows"],
    )
