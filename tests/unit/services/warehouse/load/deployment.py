"""A deployment for whole loads: ZooKeeper and brokers in memory, and a warehouse directory."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.ranges.reading import read_range
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse import delta_table
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load import job, topic_tables
from kafka2011.services.warehouse.load.job import Loader, LoadOutcome, RunTasks
from kafka2011.services.warehouse.load.lineages import check_log
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load_commits import CommitInfo, read_commits
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.scripted_server import ScriptedBroker
from tests.unit.services.warehouse.samples import HEADER_TIME_MS, WINDOW_MS, access_log_payload

FIRST = BrokerPartition(11, 0)
SECOND = BrokerPartition(12, 1)
FETCH_BYTES = 2000


def run_here(function: Any, tasks: Any) -> Any:
    """Run the tasks in this process, as Spark would run them on its executors."""
    return [function(task) for task in tasks]


def patch_failpoints(patched: pytest.MonkeyPatch, failpoint: Callable[[str], None]) -> None:
    """Have a load call this in place of `failpoint`, in each module in which one stands."""
    for module in (delta_table, job, topic_tables):
        patched.setattr(module, "failpoint", failpoint)


def read_planned(planned: PlannedRange) -> Iterator[Chunk]:
    """The chunks of the range, without patience for a broker that is away."""
    place = planned.topic, *planned.source
    check = functools.partial(check_log, planned) if planned.lineage or planned.tail else None
    return read_range(planned.address, *place, planned.start, planned.end, FETCH_BYTES, check=check)


class Deployment:
    """Loaders come and go; the rest stays. One partition of `access-log` is there, whose log is
    `log`."""

    def __init__(self, directory: Path) -> None:
        self.warehouse = directory / "warehouse"
        self.registry: InMemoryRegistry = InMemoryZooKeeper().client()
        self.registry.start()
        self.brokers: dict[int, ScriptedBroker] = {}
        self._loaders: list[Loader] = []
        self.add_partition(ACCESS_LOG)
        self.log = self.brokers[FIRST.broker_id].logs[ACCESS_LOG, FIRST.partition]

    def close(self) -> None:
        for each in (*self._loaders, *self.brokers.values()):
            each.close()

    def add_partition(
        self, topic: str, *payloads: bytes, source: BrokerPartition = FIRST
    ) -> ScriptedBroker:
        """Register it and its broker, and append the payloads; returns the broker."""
        broker_id, partition = source
        if broker_id not in self.brokers:
            self.brokers[broker_id] = ScriptedBroker()
        broker = self.brokers[broker_id]
        address = paths.encode_broker(broker.host, broker.port, 1_300_000_000_000)
        self.registry.put(paths.broker_id_path(broker_id), address)
        self.registry.put(paths.topic_broker_path(topic, broker_id), b"4")
        broker.append(topic, partition, list(payloads))
        return broker

    def remove_broker(self, broker_id: int, topic: str) -> None:
        self.registry.delete(paths.broker_id_path(broker_id))
        self.registry.delete(paths.topic_broker_path(topic, broker_id))

    def append(
        self, numbers: range, *junk: bytes, source: BrokerPartition = FIRST, **changed: Any
    ) -> int:
        """Append events with these numbers in their paths, and junk; returns the log's end."""
        events = [access_log_payload(n, path=f"/{source.text}/{n}", **changed) for n in numbers]
        broker = self.brokers[source.broker_id]
        return broker.append(ACCESS_LOG, source.partition, [*events, *junk])

    def loader(self, run_tasks: RunTasks = run_here, **settings: Any) -> Loader:
        given = {"warehouse_dir": self.warehouse, "window_ms": WINDOW_MS, "event_forms": FORMS_2011}
        config = WarehouseConfig(**{**given, **settings})
        made = Loader(
            config,
            self.registry,
            run_tasks,
            2,
            clock=lambda: HEADER_TIME_MS + 10_000,
            read=read_planned,
        )
        self._loaders.append(made)
        return made

    def load(self, **settings: Any) -> LoadOutcome:
        """One load of a new process."""
        return self.loader(**settings).load()

    def rows(self, table: str = "access_log") -> list[tuple[Any, ...]]:
        """(path, broker, partition, offset) of every row."""
        return self.select("path, source_broker, source_partition, source_offset", table)

    def numbers(self) -> list[int]:
        """The numbers in the paths of all rows, ordered."""
        return sorted(int(row[0].rpartition("/")[2]) for row in self.rows())

    def quarantined(self, table: str = "access_log") -> list[bytes]:
        return [row[0] for row in self.select("payload", f"quarantine-tables/{table}")]

    def select(self, columns: str, table: str) -> list[tuple[Any, ...]]:
        """The rows of the table, ordered; [] where there is none."""
        files = self.named_files(table)
        source = f"read_parquet({files!r}, hive_partitioning=false)"
        query = f"select {columns} from {source} order by all"
        return duckdb.sql(query).fetchall() if files else []

    def commits(self, table: str = "access_log", since_version: int = -1) -> list[CommitInfo]:
        return read_commits(self.warehouse / table, since_version)

    def named_files(self, table: str) -> list[str]:
        """The files of the table's newest version."""
        opened = WarehouseTable.open(self.warehouse / table)
        return opened.file_paths() if opened is not None else []
