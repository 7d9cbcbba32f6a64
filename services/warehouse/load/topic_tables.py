"""A topic's two tables as a load opens, creates and fills them."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse.delta_table import (
    AnotherLoadWon,
    CommitUncertain,
    Load,
    LoadedRange,
    NewFile,
    WarehouseError,
    WarehouseTable,
    owner_of,
)
from kafka2011.services.warehouse.load.columns import event_columns
from kafka2011.services.warehouse.load.parquet_files import remove_files
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.tasks import TopicPaths, TopicResult


@dataclass(slots=True)
class Topic:
    """One topic's tables, and the next offset of each partition."""

    name: str
    paths: TopicPaths
    table: WarehouseTable | None
    quarantine: WarehouseTable | None
    known: dict[BrokerPartition, int]


def created(topic: str, path: Path, schema: pa.Schema, description: str) -> WarehouseTable:
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
def removed_on_failure(path: Path, files: Sequence[NewFile]) -> Iterator[None]:
    """Remove files that the next load writes again, unless a commit may name them."""
    try:
        yield
    except (AnotherLoadWon, CommitUncertain):
        raise
    except (WarehouseError, DeltaError, OSError):
        remove_files(path, files)
        raise


def table_schema(topic: str) -> pa.Schema:
    """The columns of a new topic's table: those of its shipped schema; else of the header only."""
    return event_columns(topic).table_schema


def merged_load(
    topic: str, planned: Sequence[PlannedRange], results: Sequence[TopicResult], window_ms: int
) -> Load:
    """The results of a topic's tasks as one load."""
    ends = {source: end for result in results for source, end in result.ends.items()}
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
            LoadedRange(part.source, part.committed, part.start, ends[part.source])
            for part in planned
            if part.source in ends
        ],
        files=[file for result in results for file in result.files],
        counts=counts,
        window_ms=window_ms,
        quarantined=quarantined,
    )
