"""A topic's two tables as a load opens, creates and fills them."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka2011.consumer.log_tail import TailAt
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.events.forms import FORMS_2011, Forms
from kafka2011.protocol.lineage import Lineage
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse.delta_table import (
    AnotherLoadWon,
    CommitUncertain,
    WarehouseError,
    WarehouseTable,
    owner_of,
    quarantine_description,
    rows_description,
)
from kafka2011.services.warehouse.load.column_types import TypesDiffer, joined
from kafka2011.services.warehouse.load.columns import event_columns
from kafka2011.services.warehouse.load.parquet_files import remove_files
from kafka2011.services.warehouse.load.plain_columns import PlainColumns
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.quarantine_rows import quarantined_between
from kafka2011.services.warehouse.load.tasks import (
    QUARANTINE_SCHEMA,
    Aside,
    TopicPaths,
    TopicResult,
)
from kafka2011.services.warehouse.load_commits import Load, LoadedRange, NewFile

log = get_logger(__name__)


@dataclass(slots=True)
class Topic:
    """One topic's tables, the next offset of each partition, and the epochs that it was read from
    where it is a replica set's, and what was read last of it."""

    name: str
    paths: TopicPaths
    table: WarehouseTable | None
    quarantine: WarehouseTable | None
    known: dict[BrokerPartition, int] = field(default_factory=dict)
    lineages: dict[BrokerPartition, Lineage] = field(default_factory=dict)
    tails: dict[BrokerPartition, TailAt] = field(default_factory=dict)

    def look(self) -> None:
        """Read offsets, epochs and tails from the table."""
        if self.table is not None:
            self.known.update(self.table.known_partitions(self.name))
            self.lineages = self.table.known_lineages(self.name)  # a reset forgets some
            self.tails.update(self.table.known_tails(self.name))

    def left_in_quarantine(
        self, planned: Sequence[PlannedRange]
    ) -> dict[tuple[str, BrokerPartition], frozenset[Aside]]:
        """The messages of the ranges that the quarantine has already, by topic and partition.

        Raises WarehouseError, DeltaError, OSError, ArrowException.
        """
        if self.quarantine is None:  # another loader may have made it, and have died then
            made = WarehouseTable.open(self.paths.quarantine)
            if made is None or owner_of(made.path) != self.name:
                return {}
            self.quarantine = made
        self.quarantine.refresh()
        found = {}
        for part in planned:
            offset = self.quarantine.next_offset(self.name, part.source)
            if offset is not None and offset > part.start:
                files = self.quarantine.file_paths()
                known = quarantined_between(files, part.source, part.start, offset)
                found[self.name, part.source] = known
        return found

    def fitting(
        self, results: Sequence[TopicResult], forms: Forms
    ) -> tuple[pa.Schema, list[TopicResult], list[str]]:
        """The columns that the table needs for these results, the results that fit them, and a line
        on each of the others.

        Two tasks may meet new schemas that do not fit each other. Then one result is left out: the
        next load decodes its ranges with the other's columns in the table.
        """
        columns = self.table.schema() if self.table is not None else table_schema(self.name, forms)
        fitting, misfits = [], []
        for result in results:
            if not result.is_usable:
                continue
            try:
                if result.columns is not None:
                    columns = joined(columns, result.columns)
            except TypesDiffer as error:
                misfits.append(f"{error}; loaded with the next load")
                remove_files(self.paths.rows, result.files)
                remove_files(self.paths.quarantine, result.quarantine_files)
            else:
                fitting.append(result)
        return columns, fitting, misfits

    def commit_quarantine(self, load: Load, results: Sequence[TopicResult]) -> None:
        """Commit messages that are no rows, before the rows: a crash in between repeats neither.

        The quarantine table holds its own offsets: where they are ahead of the rows', tasks pass
        over what it has in between. Raises WarehouseError, DeltaError, OSError.
        """
        files = [file for result in results for file in result.quarantine_files]
        if not files:
            return
        ranges, looked_at = [], None
        for loaded in load.ranges:
            start, known = loaded.start, None
            if self.quarantine is not None:
                known = self.quarantine.next_offset(self.name, loaded.source)
            if known is not None and self.quarantine is not None:
                start = known
                if known >= loaded.end:  # it stays, and does not show what another load has added
                    looked_at = self.quarantine.version
            ranges.append(LoadedRange(loaded.source, known, start, max(start, loaded.end)))
        path = self.paths.quarantine
        with removed_on_failure(path, files):
            if self.quarantine is None:
                described = quarantine_description(self.name)
                self.quarantine = created(self.name, path, QUARANTINE_SCHEMA, described)
            aside = Load(self.name, ranges, files, load.quarantined, load.window_ms)
            self.quarantine.commit(aside, looked_at)
        failpoint("after_quarantine")

    def commit_rows(self, load: Load, columns: pa.Schema, forms: Forms) -> int:
        """Commit the rows, in a table with at least these columns; returns the table's version.

        Raises WarehouseError, DeltaError, OSError.
        """
        if self.table is None:
            schema, described = table_schema(self.name, forms), rows_description(self.name)
            self.table = created(self.name, self.paths.rows, schema, described)
        added = self.table.add_columns(columns)
        if added:
            log.info("columns_added", table=self.table.path.name, columns=",".join(added))
        return self.table.commit(load)


def created(topic: str, path: StoragePath, schema: pa.Schema, description: str) -> WarehouseTable:
    """The topic's table, created where it was not there.

    Raises WarehouseError when another loader has given the name to another topic: the next load
    chooses another name.
    """
    table = WarehouseTable.open_or_create(path, schema, description)
    owner = owner_of(path)
    if owner is not None and owner != topic:
        raise WarehouseError(f"{path} has become the table of topic {owner}; trying another name")
    return table


@contextlib.contextmanager
def removed_on_failure(path: StoragePath, files: Sequence[NewFile]) -> Iterator[None]:
    """Remove files that the next load writes again, unless a commit may name them."""
    try:
        yield
    except (AnotherLoadWon, CommitUncertain):
        raise
    except (WarehouseError, DeltaError, OSError):
        remove_files(path, files)
        raise


def table_schema(topic: str, forms: Forms = FORMS_2011) -> pa.Schema:
    """The columns of a new topic's table: those of its shipped schema; else those that every table
    of the topic's form has."""
    if forms.of(topic).is_avro:
        return event_columns(topic).table_schema
    return PlainColumns(topic, forms).table_schema


def leave_shared_tables(
    name: str,
    paths: TopicPaths,
    shared: tuple[StoragePath | None, StoragePath | None],
    forms: Forms,
    window_ms: int,
) -> None:
    """Move a topic that earlier versions loaded into another's tables to its own: `shared` are the
    other's quarantine and table.

    Only its offsets move. Its rows stay where they are: nothing in them names the topic.
    """
    # The quarantine first: it takes no messages below its own offset.
    for place, path, schema, description in (
        (shared[0], paths.quarantine, QUARANTINE_SCHEMA, quarantine_description(name)),
        (shared[1], paths.rows, table_schema(name, forms), rows_description(name)),
    ):
        before = WarehouseTable.open(place) if place is not None else None
        if before is None:
            continue
        own = created(name, path, schema, description)
        known = own.known_partitions(name)
        moved = [
            LoadedRange(source, None, offset, offset)
            for source, offset in before.known_partitions(name).items()
            if source not in known
        ]
        if moved:
            own.commit(Load(name, moved, [], {}, window_ms))
            log.warning("shared_table_left", topic=name, shared=str(place), table=str(path))


def merged_load(
    topic: str, planned: Sequence[PlannedRange], results: Sequence[TopicResult], window_ms: int
) -> Load:
    """The results of a topic's tasks as one load."""
    ends = {source: end for result in results for source, end in result.ends.items()}
    tails = {source: tail for result in results for source, tail in result.tails.items()}
    counts: dict[tuple[int, str], int] = {}
    quarantined: dict[tuple[int, str], int] = {}
    for result in results:
        for key, count in result.counts.items():
            counts[key] = counts.get(key, 0) + count
        for key, count in result.quarantined.items():
            quarantined[key] = quarantined.get(key, 0) + count
    return Load(
        topic=topic,
        ranges=[
            LoadedRange(
                part.source,
                part.committed,
                part.start,
                ends[part.source],
                part.lineage,
                tails.get(part.source),
            )
            for part in planned
            if part.source in ends
        ],
        files=[file for result in results for file in result.files],
        counts=counts,
        window_ms=window_ms,
        quarantined=quarantined,
    )
