"""One load: get the offsets of logs and tables, plan, read on Spark, commit a table at a time.

`Loader` keeps connections to brokers and open tables between loads. Every load starts from the
offsets in the tables, so nothing here needs saving. Payloads do not pass through the driver: the
tasks return file names, counts and end offsets.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.log_tail import TailAt, is_another_log
from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.silent_brokers import SilentBrokers
from kafka2011.consumer.spark.reading import read_patiently
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.coordination.cluster_view import ClusterState, ClusterView
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import set_ids
from kafka2011.events.codec_source import CodecSource
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.lineage import Lineage
from kafka2011.runtime import object_store
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import first_line
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import (
    AnotherLoadWon,
    SchemaConflict,
    WarehouseError,
    WarehouseTable,
)
from kafka2011.services.warehouse.load.lag import Lag, unread
from kafka2011.services.warehouse.load.lineages import check_log, compared, go_back
from kafka2011.services.warehouse.load.plan import (
    BEYOND_END,
    STOPS,
    PartitionState,
    PlannedRange,
    Problem,
    lost_log,
    pack,
    plan_partition,
)
from kafka2011.services.warehouse.load.source_offsets import Connect, SourceOffsets, consumers
from kafka2011.services.warehouse.load.tasks import (
    Aside,
    Read,
    TaskSettings,
    TopicPaths,
    TopicResult,
    run_task,
)
from kafka2011.services.warehouse.load.topic_tables import (
    Topic,
    leave_shared_tables,
    merged_load,
    removed_on_failure,
    table_schema,
)
from kafka2011.services.warehouse.table_paths import TablePlaces

log = get_logger(__name__)

SCHEMAS_FILE = "schemas.json"  # in the warehouse: schemas by id, for when the registry is away

# Runs the function on each item, in parallel, and returns the results (Spark, or a test).
RunTasks = Callable[
    [Callable[[Sequence[PlannedRange]], list[TopicResult]], list[list[PlannedRange]]],
    list[list[TopicResult]],
]


def spark_runner(session: object) -> RunTasks:
    """Runs tasks on a SparkSession's executors.

    Not as a query over the data source: a load's first query takes 8 s to start and each later
    one 0.3 s, a job of plain tasks 2 s and 0.1 s, and no row goes through the JVM (2 cores).
    """
    context = session.sparkContext  # type: ignore[attr-defined]

    def run(
        function: Callable[[Sequence[PlannedRange]], list[TopicResult]],
        tasks: list[list[PlannedRange]],
    ) -> list[list[TopicResult]]:
        found: list[list[TopicResult]] = (
            context.parallelize(tasks, len(tasks)).map(function).collect()
        )
        return found

    return run


def read_planned(
    planned: PlannedRange, *, fetch_size: int, socket_timeout_ms: int
) -> Iterator[Chunk]:
    """The chunks of a planned range, on an executor; see `read_patiently`."""
    offsets = OffsetRange(
        planned.topic,
        planned.source.broker_id,
        planned.source.partition,
        planned.start,
        planned.end,
    )
    return read_patiently(
        planned.address,
        offsets,
        fetch_size=fetch_size,
        socket_timeout_ms=socket_timeout_ms,
        check=functools.partial(check_log, planned) if planned.lineage or planned.tail else None,
    )


@dataclass(slots=True)
class LoadOutcome:
    """The result of one load. `lag` is by a look at the logs when it ended, `unread_bytes` by the
    ends that the load had planned with: topic -> bytes that it saw and did not load."""

    rows: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    lag: Lag = field(default_factory=Lag)
    unread_bytes: dict[str, int] = field(default_factory=dict)
    # Unread bytes of the partitions that this load committed: the next load should start at once.
    left_bytes: int = 0
    read_bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    lost_to_another: list[str] = field(default_factory=list)
    # Requests to an object store that executors and driver have sent again, by reason.
    store_retries: dict[str, int] = field(default_factory=dict)
    # Age in ms at the commit -> rows; from the frontend's header.time.
    ages: dict[int, int] = field(default_factory=dict)

    @property
    def is_caught_up(self) -> bool:
        """True when the load left no bytes unread that it had seen and could read."""
        return not any(self.unread_bytes.values())

    def add_retries(self, counts: Mapping[str, int]) -> None:
        for reason, count in counts.items():
            self.store_retries[reason] = self.store_retries.get(reason, 0) + count


class Loader:
    """Loads repeatedly. Not thread-safe.

    `load` raises CoordinationUnavailable when ZooKeeper is away, and the runner's errors; call it
    again then. Problems of a single topic or partition are in the outcome instead.
    """

    def __init__(
        self,
        config: WarehouseConfig,
        registry: Registry,
        run_tasks: RunTasks,
        task_count: int,
        *,
        clock: Clock = now_ms,
        read: Read | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._config = config
        self._warehouse_dir = config.warehouse_dir.resolve()
        self._registry = registry
        self._cluster = ClusterView(registry)
        self._run_tasks = run_tasks
        self._task_count = task_count
        self._clock = clock
        self._read: Read = read or functools.partial(
            read_planned,
            fetch_size=config.fetch_size_bytes,
            socket_timeout_ms=config.socket_timeout_ms,
        )
        self._codec = config.topic_codec(self._warehouse_dir / SCHEMAS_FILE)
        self._places = TablePlaces(self._warehouse_dir)
        self._topics: dict[str, Topic] = {}
        # (topic, partition) -> the offset committed when its log was found to end before that.
        self._beyond_end: dict[tuple[str, BrokerPartition], tuple[int | None, Problem]] = {}
        self._offsets = SourceOffsets(connect or consumers(config.socket_timeout_ms))
        self._sets: frozenset[int] = frozenset()  # brokers that are replica sets
        # Of the last plan: topics of which it is not known how much is unread; and how far the
        # partitions of each are loaded, later commits included.
        self._unclear: set[str] = set()
        self._loaded: dict[str, dict[BrokerPartition, int]] = {}

    def close(self) -> None:
        self._cluster.close()
        self._offsets.close()

    # --- one load ---------------------------------------------------------------------------------

    def load(self, planned: Callable[[Lag], None] = lambda _: None) -> LoadOutcome:
        """Load new messages up to the present ends of the logs; cheap when there are none.

        `planned` is called with what there is to load, before any of it is read.
        """
        outcome = LoadOutcome()
        ranges = self._plan(outcome)
        planned(outcome.lag)
        if ranges:
            self._load(ranges, outcome)
            outcome.lag = self._lag_after(outcome)
        outcome.add_retries(object_store.RETRIES.take())
        return outcome

    def look(self) -> Lag:
        """What is not loaded at present: ends of logs, less what the last load and its plan know.
        A topic is unknown until the next load if that plan found it so, or did not find it.

        Raises CoordinationError.
        """
        cluster = self._cluster.look()
        sources = {
            name: sorted({*registered, *self._loaded.get(name, ())})
            for name, registered in cluster.partitions.items()
            if self._is_wanted(name) and name not in self._unclear
        }
        looked_ms = self._clock()
        ends = self._offsets.ends(sources, self._addresses(cluster))
        lag = unread(sources, ends, self._loaded, looked_ms)
        lag.unknown |= self._unclear & cluster.partitions.keys()
        return lag

    def _lag_after(self, outcome: LoadOutcome) -> Lag:
        """The lag when a load has ended, which counts whether or not ZooKeeper answers now."""
        try:
            return self.look()
        except CoordinationError as error:
            log.debug("lag_unknown", reason=str(error))
            return Lag(unknown={*outcome.lag.bytes, *outcome.lag.unknown})

    def _load(self, ranges: list[PlannedRange], outcome: LoadOutcome) -> None:
        failpoint("after_plan")
        ranges, quarantined = self._left_in_quarantine(ranges, outcome)
        if not ranges:
            return
        settings = TaskSettings(
            paths={part.topic: self._topics[part.topic].paths for part in ranges},
            window_ms=self._config.window_ms,
            quarantined=quarantined,
            codec=CodecSource(
                self._config.forms,
                self._config.schema_registry_url,
                self._config.schema_registry_timeout_ms / 1000,
                self._codec.known(),
            ),
            columns=self._columns(ranges),
        )
        task = functools.partial(run_task, settings=settings, read=self._read)
        found = self._run_tasks(task, pack(ranges, self._task_count))
        failpoint("after_files_written")
        by_topic: dict[str, list[TopicResult]] = {}
        for result in (result for results in found for result in results):
            by_topic.setdefault(result.topic, []).append(result)
            outcome.add_retries(result.store_retries)
            self._codec.learn(result.schemas)
        for topic, results in sorted(by_topic.items()):
            planned = [part for part in ranges if part.topic == topic]
            self._commit_topic(topic, planned, results, outcome)

    def _plan(self, outcome: LoadOutcome) -> list[PlannedRange]:
        cluster = self._cluster.look()
        brokers = self._addresses(cluster)
        lag = outcome.lag
        positions: dict[str, dict[BrokerPartition, int]] = {}
        ranges: list[PlannedRange] = []
        self._sets = frozenset(set_ids(self._registry))
        self._places.look_again()
        sources: dict[str, list[BrokerPartition]] = {}
        for name, registered in cluster.partitions.items():
            if not self._is_wanted(name):
                continue
            try:
                sources[name] = sorted({*registered, *self._open(name).known})
            except (WarehouseError, DeltaError, OSError) as error:
                outcome.failures.append(f"{name}: {first_line(error)}")
                lag.unknown.add(name)
        lag.looked_ms = self._clock()
        ends = self._offsets.ends(sources, brokers)
        silent = SilentBrokers()
        for name, partitions in sources.items():
            topic = self._topics[name]
            lag.bytes[name] = 0
            loaded_to = positions[name] = {}
            new: list[PlannedRange] = []
            for source in partitions:
                address = brokers.get(source.broker_id)
                found = self._state(topic, source, address, ends.get((name, source)), silent)
                state = self._after_elections(topic, found, outcome)
                if state is None:
                    lag.unknown.add(name)
                    continue
                planned, problem = plan_partition(state, self._config.partition_bytes_max)
                if problem is not None:
                    outcome.problems.append(problem)
                    if problem.kind in STOPS:
                        lag.unknown.add(name)
                    if problem.kind == BEYOND_END:
                        self._beyond_end[name, source] = state.committed, problem
                if planned is not None:
                    new.append(planned)
                    lag.bytes[name] += planned.latest - planned.start
                    loaded_to[source] = planned.start
                elif state.latest is not None:
                    loaded_to[source] = state.latest
            outcome.unread_bytes[name] = lag.bytes[name]
            if new and self._takes_types(topic, outcome):
                ranges += new
        self._loaded, self._unclear = positions, set(lag.unknown)
        return ranges

    def _addresses(self, cluster: ClusterState) -> dict[int, BrokerAddress]:
        return {
            broker_id: BrokerAddress(*self._config.address_map.get(address, address))
            for broker_id, address in cluster.brokers.items()
        }

    def _after_elections(
        self, topic: Topic, state: PartitionState, outcome: LoadOutcome
    ) -> PartitionState | None:
        """The state, set back to where the log parts from what was loaded; None while the partition
        cannot be loaded."""
        found, problem = compared(topic, state.source, state.lineage)
        if problem is not None:
            outcome.problems.append(problem)
        if found is None:
            return state if problem is None else None
        place = f"{topic.name}/{state.source.text}"
        try:
            go_back(topic, state.source, found.first, state.lineage, self._config.window_ms)
        except (WarehouseError, DeltaError, OSError) as error:
            outcome.failures.append(f"{place}: {first_line(error)}")
            return None
        log.error(
            "source_cut", partition=place, first=found.first, last=found.last, epoch=found.epoch
        )
        return replace(state, committed=found.first, beyond_end=None)

    def _takes_types(self, topic: Topic, outcome: LoadOutcome) -> bool:
        """Whether the topic's events fit the types of its table; if not, the topic is not read."""
        try:
            if topic.table is not None:
                topic.table.lacking_columns(table_schema(topic.name, self._codec.forms))
        except SchemaConflict as conflict:
            outcome.failures.append(f"{topic.name}: {conflict}")
            return False
        return True

    def _is_wanted(self, topic: str) -> bool:
        if topic in self._config.topics_excluded:
            return False
        return not self._config.topics or topic in self._config.topics

    def _state(
        self,
        topic: Topic,
        source: BrokerPartition,
        address: BrokerAddress | None,
        latest: int | None,
        silent: SilentBrokers,
    ) -> PartitionState:
        """What the plan goes by. `silent`: the brokers that have stopped to answer since they said
        where their logs end."""
        committed = topic.known.get(source)
        earliest = None
        lineage: Lineage = ()
        tail: TailAt | None = None
        is_lost = False
        if address is not None and latest is not None and latest != (committed or 0):
            client = self._offsets.client(address)
            try:
                with silent.asking(source.broker_id):
                    earliest = client.earliest(topic.name, source.partition)
                    if source.broker_id in self._sets:
                        lineage = client.lineage(topic.name, source.partition)
                    elif (known := topic.tails.get(source)) and known.offset == committed:
                        tail = known
                        is_lost = is_another_log(client, topic.name, source.partition, tail)
            except (KafkaError, OSError) as error:
                log.debug("offsets_unknown", topic=topic.name, source=source.text, error=str(error))
                latest = None
        found_at, beyond_end = self._beyond_end.get((topic.name, source), (None, None))
        if found_at != committed:
            beyond_end = None  # the partition was reset in the meantime
        if is_lost and beyond_end is None and committed is not None and latest is not None:
            beyond_end = lost_log(topic.name, source, committed, "has other bytes before that")
        return PartitionState(
            topic.name, source, committed, address, earliest, latest, beyond_end, lineage, tail
        )

    # --- tables -----------------------------------------------------------------------------------

    def _open(self, name: str) -> Topic:
        """The topic with its tables at their newest versions."""
        topic = self._topics.pop(name, None)  # if refreshing fails, it is opened again next time
        if topic is None:
            paths = TopicPaths(self._places.rows(name), self._places.quarantine(name))
            shared = self._places.shared_quarantine(name), self._places.shared_rows(name)
            leave_shared_tables(name, paths, shared, self._codec.forms, self._config.window_ms)
            table = WarehouseTable.open(paths.rows)
            quarantine = WarehouseTable.open(paths.quarantine)
            topic = Topic(name, paths, table, quarantine)
            topic.look()
        elif topic.table is not None and topic.table.refresh():
            topic.look()
        self._topics[name] = topic
        return topic

    def _columns(self, ranges: Sequence[PlannedRange]) -> dict[str, pa.Schema]:
        tables = {part.topic: self._topics[part.topic].table for part in ranges}
        return {name: table.schema() for name, table in tables.items() if table is not None}

    def _left_in_quarantine(
        self, ranges: Sequence[PlannedRange], outcome: LoadOutcome
    ) -> tuple[list[PlannedRange], dict[tuple[str, BrokerPartition], frozenset[Aside]]]:
        """The ranges of the topics whose quarantine can be read, and what it has of them."""
        kept: list[PlannedRange] = []
        found = {}
        for name in dict.fromkeys(part.topic for part in ranges):
            planned = [part for part in ranges if part.topic == name]
            try:
                found.update(self._topics[name].left_in_quarantine(planned))
            except (WarehouseError, DeltaError, OSError, pa.ArrowException) as error:
                outcome.failures.append(f"{name}: {first_line(error)}")
                self._topics.pop(name)
            else:
                kept += planned
        return kept, found

    def _commit_topic(
        self,
        name: str,
        planned: Sequence[PlannedRange],
        results: Sequence[TopicResult],
        outcome: LoadOutcome,
    ) -> None:
        for result in results:
            outcome.failures.extend(f"{name}: {error}" for error in result.errors)
        topic = self._topics[name]
        columns, results, misfits = topic.fitting(results, self._codec.forms)
        outcome.failures.extend(f"{name}: {misfit}" for misfit in misfits)
        load = merged_load(name, planned, results, self._config.window_ms)
        if not load.ranges:
            return
        try:
            with removed_on_failure(topic.paths.rows, load.files):
                topic.commit_quarantine(load, results)
                version = topic.commit_rows(load, columns, self._codec.forms)
        except AnotherLoadWon as won:
            outcome.lost_to_another.append(str(won))
            self._unclear.add(name)  # how far the other one came
            self._topics.pop(name)  # opened again, with the other loader's commit
            return
        except (WarehouseError, DeltaError, OSError) as error:
            outcome.failures.append(f"{name}: {first_line(error)}")
            self._topics.pop(name)
            return
        committed_ms = self._clock()
        latest = {part.source: part.latest for part in planned}
        for loaded in load.ranges:
            topic.known[loaded.source] = loaded.end
            topic.lineages[loaded.source] = loaded.lineage
            if loaded.tail is not None:
                topic.tails[loaded.source] = TailAt(loaded.end, loaded.tail)
            outcome.unread_bytes[name] -= loaded.end - loaded.start
            self._loaded[name][loaded.source] = loaded.end
            outcome.left_bytes += latest[loaded.source] - loaded.end
        outcome.versions[name] = version
        outcome.rows[name] = sum(result.rows for result in results)
        outcome.quarantined[name] = sum(load.quarantined.values())
        for result in results:
            outcome.read_bytes += result.read_bytes
            later_ms = max(0, committed_ms - result.ages_at_ms)
            for age_ms, count in result.ages.items():
                total_ms = age_ms + later_ms
                outcome.ages[total_ms] = outcome.ages.get(total_ms, 0) + count
