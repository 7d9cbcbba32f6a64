"""A deployment in memory for whole loads: ZooKeeper, brokers' logs and a warehouse directory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import CommitInfo, WarehouseTable, read_commits
from kafka2011.services.warehouse.load.job import Loader, LoadOutcome, RunTasks
from kafka2011.services.warehouse.load.plan import PlannedRange
from kafka2011.services.warehouse.load.tasks import TopicResult
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.unit.services.warehouse.samples import (
    FIRST,
    HEADER_TIME_MS,
    FakeLog,
    ScriptedBroker,
    access_log_payload,
)

SECOND = BrokerPartition(12, 1)


def run_here(
    function: Callable[[Sequence[PlannedRange]], list[TopicResult]],
    tasks: list[list[PlannedRange]],
) -> list[list[TopicResult]]:
    return [function(task) for task in tasks]


class Deployment:
    """Loaders come and go; the rest stays. One partition of `access-log` is there."""

    def __init__(self, directory: Path) -> None:
        self.warehouse = directory / "warehouse"
        self.registry: InMemoryRegistry = InMemoryZooKeeper().client()
        self.registry.start()
        self.broker = ScriptedBroker()
        self.log = self.add_partition(ACCESS_LOG)
        self.earliest: dict[tuple[str, BrokerPartition], int] = {}
        self.silent: set[int] = set()

    def add_partition(self, topic: str, source: BrokerPartition = FIRST) -> FakeLog:
        address = paths.encode_broker("127.0.0.1", 9000 + source.broker_id, 1_300_000_000_000)
        self.registry.put(paths.broker_id_path(source.broker_id), address)
        self.registry.put(paths.topic_broker_path(topic, source.broker_id), b"4")
        return self.broker.log(topic, source)

    def remove_broker(self, broker_id: int, topic: str) -> None:
        self.registry.delete(paths.broker_id_path(broker_id))
        self.registry.delete(paths.topic_broker_path(topic, broker_id))

    def append(self, numbers: range, source: BrokerPartition = FIRST) -> int:
        """Append events with these numbers in their paths; returns the log's end."""
        return self.broker.log(ACCESS_LOG, source).append(
            [access_log_payload(number, path=f"/{source.text}/{number}") for number in numbers]
        )

    def replace_log(self, numbers: range) -> int:
        """Replace the first partition's log by another one; returns its end."""
        self.log.data = b""
        return self.append(numbers)

    def loader(self, run_tasks: RunTasks = run_here, **settings: Any) -> Loader:
        given = {"warehouse_dir": self.warehouse, "window_ms": 10_000, "event_forms": FORMS_2011}
        return Loader(
            WarehouseConfig(**{**given, **settings}),
            self.registry,
            run_tasks,
            2,
            clock=lambda: HEADER_TIME_MS + 10_000,
            read=self.broker.read,
            connect=lambda address: _Offsets(self, address),
        )

    def load(self, **settings: Any) -> LoadOutcome:
        """One load of a new process."""
        return self.loader(**settings).load()

    def rows(self, table: str = "access_log") -> list[tuple[Any, ...]]:
        """(path, broker, partition, offset) of every row."""
        return self._query("path, source_broker, source_partition, source_offset", table)

    def quarantined(self, table: str = "access_log") -> list[bytes]:
        return [row[0] for row in self._query("payload", f"quarantine/{table}")]

    def commits(self, table: str = "access_log", since_version: int = -1) -> list[CommitInfo]:
        return read_commits(self.warehouse / table, since_version)

    def parquet_files(self) -> set[Path]:
        return set(self.warehouse.rglob("*.parquet"))

    def named_files(self, table: str) -> list[str]:
        """The files of the table's newest version."""
        opened = WarehouseTable.open(self.warehouse / table)
        return opened.file_paths() if opened is not None else []

    def _query(self, columns: str, table: str) -> list[tuple[Any, ...]]:
        files = self.named_files(table)
        if not files:
            return []
        source = f"read_parquet({files!r}, hive_partitioning=false)"
        return duckdb.sql(f"select {columns} from {source} order by all").fetchall()


class _Offsets(NamedTuple):
    """The offsets of one broker's logs."""

    deployment: Deployment
    address: BrokerAddress

    def latest(self, topic: str, partition: int) -> int:
        broker_id = self.address.port - 9000
        if broker_id in self.deployment.silent:
            raise BrokerUnavailable("silent")
        log = self.deployment.broker.logs.get((topic, BrokerPartition(broker_id, partition)))
        return len(log.data) if log else 0

    def earliest(self, topic: str, partition: int) -> int:
        source = BrokerPartition(self.address.port - 9000, partition)
        return self.deployment.earliest.get((topic, source), 0)

    def close(self) -> None:
        pass
