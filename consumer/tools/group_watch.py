"""Samples one group's offsets and their times, and judges them by Burrow's rules.

One sample decides the cases that need no history: nothing left to read, no owner, an offset past
the log's end or of another log, or no commit for longer than a reader would take (ZooKeeper has the
time of each write). Cases that compare commits are UNKNOWN until enough samples have seen some.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.groups.log_tails import decode_tail
from kafka2011.consumer.log_tail import is_another_log
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.tools.cluster_state import (
    QUERY_TIMEOUT_MS,
    Dialled,
    GroupPartition,
    GroupState,
    group_state,
)
from kafka2011.consumer.tools.lag_rules import (
    WATCH,
    Judged,
    PartitionHistory,
    Verdict,
    judge,
    worst,
)
from kafka2011.consumer.tools.lag_time import LagTime, lag_time
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import Registry
from kafka2011.events.origin import Origin
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import Clock, now_ms

COMMITS_MIN = 2


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The verdict on a partition; `committed_ms`: when its offset was stored (ms since the epoch,
    ZooKeeper's clock)."""

    partition: GroupPartition
    committed_ms: int | None
    lag_time: LagTime
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group and its partitions; `verdict`: what `lag_rules.worst` says of them."""

    state: GroupState
    partitions: list[PartitionReport]
    verdict: Verdict


class GroupWatch:
    """The samples of one group. `origin(topic)` reads the time of the topic's events; None: it has
    no events."""

    def __init__(
        self,
        registry: Registry,
        group: str,
        dialled: Dialled = lambda address: address,
        *,
        origin: Callable[[str], Origin | None] = lambda _topic: None,
        clock: Clock = now_ms,
    ) -> None:
        self._registry = registry
        self._group = group
        self._dialled = dialled
        self._origin = origin
        self._clock = clock
        self._histories: dict[TopicPartition, PartitionHistory] = {}
        self._committed_ms: dict[TopicPartition, int | None] = {}
        self._state = GroupState(group, {}, [])
        self._replaced: set[TopicPartition] = set()  # whose log is not the one that was read

    def sample(self) -> None:
        """Read the group's state once. Raises CoordinationError."""
        self._state = group_state(self._registry, self._group, self._dialled)
        now = self._clock()
        for found in self._state.partitions:
            history = self._histories.setdefault(found.name, PartitionHistory())
            path = paths.offset_path(
                self._group, found.name.topic, BrokerPartition(*found.name[1:])
            )
            stat = self._registry.stat(path)
            self._committed_ms[found.name] = stat.modified_ms if stat is not None else None
            history.note(
                now, found.offset, found.version, found.end, self._committed_ms[found.name]
            )

    def report(self) -> GroupReport:
        """The verdicts on the samples so far; queries the brokers for the age of unread
        messages."""
        now = self._clock()
        times = self._lag_times(now)
        reports = []
        for found in self._state.partitions:
            age = times[found.name]
            verdict = judge(
                self._histories[found.name].commits,
                found.lag_bytes,
                now,
                is_owned=bool(found.owner),
                reading_since_ms=now - (age.at_least_ms or 0),
                maybe_since_ms=0 if age.at_most_ms is None else now - age.at_most_ms,
                commits_min=COMMITS_MIN,
                past_end_bytes=found.past_end_bytes,
                is_another_log=found.name in self._replaced,
            )
            # A broker is away, or the offset is no longer in the log.
            is_vague = found.end is None or WATCH in verdict.reason
            if is_vague and age.reason and not age.source:
                verdict = replace(verdict, reason=age.reason)
            committed_ms = self._committed_ms[found.name]
            reports.append(PartitionReport(found, committed_ms, age, verdict))
        # A partition without owner and offset does not count for the group.
        touched = [
            Judged("{} {}-{}".format(*one.partition.name), one.partition.lag_bytes, one.verdict)
            for one in reports
            if one.partition.owner or one.partition.offset is not None
        ]
        return GroupReport(self._state, reports, worst(touched))

    def _lag_times(self, now: int) -> dict[TopicPartition, LagTime]:
        brokers = cluster.live_brokers(self._registry)
        clients: dict[int, SimpleConsumer] = {}
        times = {}
        self._replaced.clear()
        try:
            for found in self._state.partitions:
                name = found.name
                address = brokers.get(name.broker_id)
                if address is None:
                    times[name] = LagTime(None, None, "", "broker not registered")
                    continue
                if name.broker_id not in clients:
                    made = SimpleConsumer(*self._dialled(address), QUERY_TIMEOUT_MS)
                    clients[name.broker_id] = made
                times[name] = lag_time(
                    clients[name.broker_id],
                    name,
                    found.offset,
                    found.end,
                    now,
                    origin=self._origin(name.topic),
                )
                if self._is_another_log(clients[name.broker_id], found):
                    self._replaced.add(name)
                if times[name].source == "segment":
                    times[name] = self._watched(found, now) or times[name]
        finally:
            for client in clients.values():
                client.close()
        return times

    def _is_another_log(self, client: SimpleConsumer, found: GroupPartition) -> bool:
        """Whether the broker's log is another than the offset is of; False where that is not known.
        Raises CoordinationError."""
        name = found.name
        stored = self._registry.get(
            paths.tail_path(self._group, name.topic, BrokerPartition(*name[1:]))
        )
        if stored is None or found.offset is None:
            return False
        try:
            known = decode_tail(stored.value)
            return known.offset <= found.offset and is_another_log(
                client, name.topic, name.partition, known
            )
        except (BadZnode, KafkaError):
            return False

    def _watched(self, found: GroupPartition, now: int) -> LagTime | None:
        """The age by the samples between which the log's end passed the offset; None if before."""
        ends = self._histories[found.name].ends
        if not found.lag_bytes or found.offset is None or len(ends) < 2:
            return None
        for (before_ms, before, _), (after_ms, after, _) in pairwise(ends):
            if before <= found.offset < after:
                return LagTime(max(0, now - after_ms), max(0, now - before_ms), "watched")
        return None
