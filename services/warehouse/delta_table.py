"""One table of the warehouse, and the one Delta commit of a load: files, end offsets and counts.

A load is published whole or not at all. Its offsets are one app transaction per partition,
`load/<topic>/<broker>-<partition>` with version = next offset, which survives compaction,
checkpoints and log clean-up. So are the newest epochs of a replica set that was read from, which
stand beside the offset (`lineage_transactions`). The counts are in the commit's custom metadata
(`load_commits`). Files are invisible until the commit names them. docs/warehouse.md says what
follows when a load dies on the way.

delta-rs accepts the same app transaction twice, so a commit checks and then commits on the same
DeltaTable object: of two commits from one snapshot that name the same app transaction, the second
fails with AnotherLoadWon. Its files are left to `vacuum`, and the load is planned again.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from kafka2011.consumer.log_tail import TailAt
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.protocol.lineage import Lineage
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse import delta_log, errors, storage
from kafka2011.services.warehouse.load.column_types import TypesDiffer, merged
from kafka2011.services.warehouse.load_commits import (
    APP_PREFIX,
    EPOCH_PREFIX,
    EPOCH_START_PREFIX,
    METADATA_KEY,
    Load,
    NewFile,
    app_id,
    broker_partition_of,
    lineage_transactions,
    metadata_of,
    stored_tails,
    tail_transactions,
)

COMMIT_KEY = "kafka2011.commit"  # a unique name of each commit: see `publish`
# Of app transactions whose version counts the replays of a quarantine that have added rows.
REPLAY_PREFIX = "replay/"
_DESCRIPTION = re.compile(
    r"events of topic (.*)|messages of topic (.*) that could not become rows", re.DOTALL
)
HOUR_COLUMN = "hour"


WarehouseError = errors.WarehouseError  # apart, as what reads the log raises it, too


class AnotherLoadWon(WarehouseError):
    """Another instance committed these offsets first. Log it in one line and plan again."""


class CommitUncertain(WarehouseError):
    """The commit failed, but may have taken effect all the same. Its files must stay."""


class SchemaConflict(WarehouseError):
    """A column of the events has another type than the table's. The topic cannot be loaded."""


def rows_description(topic: str) -> str:
    """The description of a topic's table, which identifies it before anything is loaded."""
    return f"events of topic {topic}"


def quarantine_description(topic: str) -> str:
    return f"messages of topic {topic} that could not become rows"


def loaded_topics(table_path: StoragePath) -> set[str]:
    """The topics that were loaded into the table: one, or several by earlier versions."""
    return {
        name.removeprefix(APP_PREFIX).rpartition("/")[0]
        for name in delta_log.app_transactions(table_path)
        if name.startswith(APP_PREFIX)
    }


def owner_of(table_path: StoragePath) -> str | None:
    """The topic whose table this is; None where there is no table, or it names no topic.

    Earlier versions may have loaded several topics into it. Then it belongs to the one for which it
    was created, if that was loaded, else to the first by name.
    """
    loaded = loaded_topics(table_path)
    if len(loaded) == 1:
        return loaded.pop()
    try:
        text = storage.open_table(table_path).metadata().description or ""
    except TableNotFoundError:
        return None
    found = _DESCRIPTION.fullmatch(text)
    described = (found[1] if found[1] is not None else found[2]) if found else None
    if not loaded or described in loaded:
        return described
    return min(loaded)


class WarehouseTable:
    """One Delta table in a directory or an object store. Not thread-safe.

    Another process may commit at any time; `refresh` reads its commits.
    """

    def __init__(self, path: StoragePath, table: DeltaTable) -> None:
        self.path = path
        self._table = table

    @classmethod
    def open(cls, path: StoragePath) -> "WarehouseTable | None":
        """The table at its newest version; None when there is none yet."""
        try:
            return cls(path, storage.open_table(path))
        except TableNotFoundError:
            return None

    @classmethod
    def open_to_read(cls, path: StoragePath) -> "WarehouseTable | None":
        """As `open`. Raises WarehouseError, in one line, for a table that cannot be opened."""
        try:
            return cls.open(path)
        except (DeltaError, OSError) as error:
            reason = first_line(error)
            raise WarehouseError(f"table {path.name} cannot be opened: {reason}") from error

    @classmethod
    def open_or_create(
        cls, path: StoragePath, schema: pa.Schema, description: str
    ) -> "WarehouseTable":
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
                storage_options=storage.options(path),
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
        """The files of this version: absolute paths, or URLs of a store."""
        return storage.files_of(self._table)

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
            broker_partition_of(name.removeprefix(prefix)): version
            for name, version in delta_log.app_transactions(self.path).items()
            if name.startswith(prefix)
        }

    def known_lineages(self, topic: str) -> dict[BrokerPartition, Lineage]:
        """The newest epochs of every partition that was loaded from a replica set. Reads the whole
        log, too."""
        prefix = f"{EPOCH_PREFIX}{topic}/"
        found = delta_log.app_transactions(self.path)
        entries: dict[BrokerPartition, list[tuple[int, int]]] = {}
        for name, epoch in found.items():
            if epoch and name.startswith(prefix):
                place = name.removeprefix(EPOCH_PREFIX)
                source = broker_partition_of(place.removeprefix(f"{topic}/").partition("/")[0])
                start = found.get(f"{EPOCH_START_PREFIX}{place}", 0)
                entries.setdefault(source, []).append((epoch, start))
        return {source: tuple(sorted(lineage)) for source, lineage in entries.items()}

    def known_tails(self, topic: str) -> dict[BrokerPartition, TailAt]:
        """What was read last of every partition, at the offset where that was. Reads the whole log,
        too."""
        return stored_tails(delta_log.app_transactions(self.path), topic)

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
                raise AnotherLoadWon(f"{self.path.name}: {first_line(error)}") from error
            self.refresh()
        return [column.name for column in lacking]

    def commit(self, load: Load, looked_at: int | None = None) -> int:
        """Publish the load and return the table's version.

        Raises AnotherLoadWon when another instance has loaded a partition since the plan, or the
        version is not `looked_at` any more, where it is given; nothing of this load is visible
        then, now or later. The same holds after any other error, except CommitUncertain.
        """
        self.refresh()
        if looked_at is not None and self.version != looked_at:
            raise AnotherLoadWon(f"{load.topic}: its table has changed since version {looked_at}")
        for loaded in load.ranges:
            found = self.next_offset(load.topic, loaded.source)
            if found != loaded.committed:
                raise AnotherLoadWon(
                    f"{load.topic} {loaded.source.text}: planned from {loaded.committed}, "
                    f"the table is at {found}"
                )
        failpoint("before_commit")
        reason = publish(
            self.path,
            self._table,
            [_add_action(file) for file in load.files],
            partition_by=[HOUR_COLUMN],
            metadata={METADATA_KEY: metadata_of(load)},
            transactions=[
                Transaction(*one)
                for loaded in load.ranges
                for one in (
                    (app_id(load.topic, loaded.source), loaded.end),
                    *lineage_transactions(load.topic, loaded).items(),
                    *tail_transactions(load.topic, loaded).items(),
                )
            ],
        )
        if reason:
            raise AnotherLoadWon(f"{load.topic}: {reason}")
        return self.version

    def replays(self, topic: str, source: BrokerPartition) -> int:
        """How many commits of replays have added rows of the partition; see `append`."""
        return int(self._table.transaction_version(_replay_id(topic, source)) or 0)

    def append(
        self, files: Sequence[NewFile], topic: str, source: BrokerPartition, replays: int
    ) -> None:
        """Publish the rows of a replay, without offsets and counts, as it is no load.

        `replays`: how many there were when the missing rows were determined. Raises AnotherLoadWon
        when there has been another since, and CommitUncertain.
        """
        self.refresh()
        if self.replays(topic, source) != replays:
            raise AnotherLoadWon(f"{topic} {source.text}: another replay has added its rows first")
        failpoint("before_commit")
        reason = publish(
            self.path,
            self._table,
            [_add_action(file) for file in files],
            partition_by=[HOUR_COLUMN],
            metadata={},
            transactions=[Transaction(_replay_id(topic, source), replays + 1)],
        )
        if reason:
            raise AnotherLoadWon(f"{topic} {source.text}: {reason}")

    def replace_range(self, source: BrokerPartition, start: int, end: int, rows: pa.Table) -> None:
        """Replace the partition's messages whose entries end in (`start`, `end`] by `rows`.

        Raises DeltaError, also when another process has changed these rows meanwhile.
        """
        condition = _range_of(source, start, end)
        with storage.no_panic():
            if rows.num_rows:
                write_deltalake(self._table, rows, mode="overwrite", predicate=condition)
            else:
                self._table.delete(condition)
        self.refresh()


def publish(
    path: StoragePath,
    table: DeltaTable,
    adds: list[AddAction],
    *,
    partition_by: list[str],
    metadata: Mapping[str, str],
    transactions: list[Transaction],
) -> str:
    """Make one commit on the table as it was last read. Returns "" when it stands, else the reason:
    another commit with one of these app transactions is in its place.

    When a store's answer is lost, delta-rs sends the commit again, meets its own one and takes it
    for another's. So each has a name, by which the log tells whose it is. Raises CommitUncertain
    when that cannot be known.
    """
    planned_at, name = int(table.version()), uuid.uuid4().hex
    try:
        table.create_write_transaction(
            adds,
            "append",
            table.schema(),
            partition_by,
            commit_properties=CommitProperties(
                custom_metadata={**metadata, COMMIT_KEY: name}, app_transactions=transactions
            ),
        )
        failpoint("after_commit")
        table.update_incremental()
    except CommitFailedError as error:
        return "" if _has_commit(path, table, name, planned_at) else first_line(error)
    except (DeltaError, OSError) as error:
        if not _has_commit(path, table, name, planned_at):
            raise CommitUncertain(first_line(error)) from error
    return ""


def _has_commit(path: StoragePath, table: DeltaTable, name: str, since_version: int) -> bool:
    """Whether the log has the commit of this name, although its writer was answered otherwise.

    Raises CommitUncertain when the log cannot be read.
    """
    try:
        table.update_incremental()
        return any(
            action.get("commitInfo", {}).get(COMMIT_KEY) == name
            for _, actions in delta_log.commits_after(path, since_version)
            for action in actions
        )
    except (WarehouseError, DeltaError, OSError) as error:
        raise CommitUncertain(str(error)) from error


def _replay_id(topic: str, source: BrokerPartition) -> str:
    return f"{REPLAY_PREFIX}{topic}/{source.text}"


def _range_of(source: BrokerPartition, start: int, end: int) -> str:
    """The condition for messages of the partition whose entries end in (`start`, `end`]."""
    broker_id, partition = source
    return (
        f"source_broker = {broker_id} AND source_partition = {partition} "
        f"AND source_offset > {start} AND source_offset <= {end}"
    )


def _add_action(file: NewFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={HOUR_COLUMN: file.hour},
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.stats,
    )
