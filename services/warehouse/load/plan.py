"""Plans a load: the range of each partition, its problems, and the ranges of each task.

Pure: offsets in, plans out. `job` gets the offsets of brokers and tables, `tasks` reads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka2011.consumer.log_tail import TailAt
from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.protocol.lineage import Lineage

# Below this size a further task costs more time than the second core saves.
TASK_BYTES_MIN = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition's offsets when a load is planned.

    `committed` is the table's next offset (None: never loaded). `address` is None while its broker
    is away; `earliest` and `latest` are the log's ends, None when the broker gave none.
    `beyond_end` is the problem of that kind that an earlier plan found with the same `committed`:
    a replaced log is still another one when it has grown beyond the end of the old one.
    `lineage` is the log's, where it is a replica set's. `tail` is what was read last before
    `committed`, where the log is to be compared with it.
    """

    topic: str
    source: BrokerPartition
    committed: int | None
    address: BrokerAddress | None = None
    earliest: int | None = None
    latest: int | None = None
    beyond_end: "Problem | None" = None
    lineage: Lineage = ()
    tail: TailAt | None = None


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """A range to read: the partition's whole entries from `start` up to `end`.

    `end` is the log's end, or a smaller offset where one load would grow too large: then it is no
    entry boundary, and the next load continues at the end of this one's last whole entry.
    """

    topic: str
    source: BrokerPartition
    address: BrokerAddress
    committed: int | None
    start: int
    end: int
    latest: int
    lineage: Lineage = ()
    tail: TailAt | None = None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem for the operator; the other partitions are loaded all the same."""

    topic: str
    source: BrokerPartition
    kind: str
    detail: str

    @property
    def text(self) -> str:
        return f"{self.topic} {self.source.text}: {self.detail}"


BROKER_AWAY = "broker_away"
GAP = "gap"
BEYOND_END = "beyond_end"
CUT = "cut"
OLDER_LEADER = "older_leader"
# With these a partition is not loaded, and it is not known how much of it is unread.
STOPS = (BROKER_AWAY, BEYOND_END)


def lost_log(topic: str, source: BrokerPartition, committed: int, why: str) -> Problem:
    """The problem of a log that is not the one that was loaded; `why`: what shows it."""
    detail = (
        f"loaded up to {committed}, but the log {why}: "
        "the broker lost or replaced it; not loaded until it is reset "
        f"(kafka2011 load --reset {topic}/{source.text})"
    )
    return Problem(topic, source, BEYOND_END, detail)


def plan_partition(
    state: PartitionState, bytes_max: int
) -> tuple[PlannedRange | None, Problem | None]:
    """The range to read of a partition, and its problem. Both None: nothing new."""
    if state.beyond_end is not None:
        return None, state.beyond_end
    if state.address is None or state.latest is None:
        detail = f"its broker {state.source.broker_id} is away; loaded up to {state.committed}"
        return None, Problem(state.topic, state.source, BROKER_AWAY, detail)
    if state.committed is not None and state.committed > state.latest:
        return None, lost_log(state.topic, state.source, state.committed, f"ends at {state.latest}")
    earliest = state.earliest or 0
    start = earliest if state.committed is None else max(state.committed, earliest)
    problem = None
    if state.committed is not None and state.committed < earliest:
        detail = f"offsets {state.committed} to {earliest} were retired before they were loaded"
        problem = Problem(state.topic, state.source, GAP, detail)
    if start >= state.latest:
        return None, problem
    planned = PlannedRange(
        topic=state.topic,
        source=state.source,
        address=state.address,
        committed=state.committed,
        start=start,
        end=min(state.latest, start + bytes_max),
        latest=state.latest,
        lineage=state.lineage,
        tail=state.tail,
    )
    return planned, problem


def pack(ranges: Iterable[PlannedRange], tasks_max: int) -> list[list[PlannedRange]]:
    """Distribute the ranges over at most `tasks_max` tasks.

    A topic with few bytes to read stays in one task, as each task writes its own file per hour.
    Larger ones are spread by partition, the largest range first to the least loaded task.
    """
    by_topic: dict[str, list[PlannedRange]] = {}
    for planned in ranges:
        by_topic.setdefault(planned.topic, []).append(planned)
    items: list[list[PlannedRange]] = []
    for topic_ranges in by_topic.values():
        if _size(topic_ranges) <= TASK_BYTES_MIN:
            items.append(topic_ranges)
        else:
            items.extend([planned] for planned in topic_ranges)
    total_bytes = sum(map(_size, items))
    task_count = max(1, min(tasks_max, total_bytes // TASK_BYTES_MIN, len(items)))
    tasks: list[list[PlannedRange]] = [[] for _ in range(task_count)]
    for item in sorted(items, key=_size, reverse=True):
        min(tasks, key=_size).extend(item)
    return [task for task in tasks if task]


def _size(ranges: Sequence[PlannedRange]) -> int:
    return sum(planned.size_bytes for planned in ranges)
