"""Validates a group's counts against the monitoring events, as the paper's consumers do.

Each look reads topic `audit` to its end, then the ends of the group's topics, then the group's
counts, in this order: every message of a report that was read lies below those ends. Works whether
the group's members run or not: the counts are in the registry.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from kafka2011.consumer.broker_addresses import BrokerAddresses
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.counting.partition_counts import PartitionCounts
from kafka2011.consumer.counting.reported import Reported, Window
from kafka2011.consumer.counting.verdicts import (
    LATENESS_MS_MAX,
    NOT_REPORTED,
    Look,
    Validated,
    WindowVerdict,
    judge,
)
from kafka2011.consumer.ranges.reading import read_range
from kafka2011.consumer.silent_brokers import SilentBrokers
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.coordination.registry import Registry
from kafka2011.events.topics import AUDIT
from kafka2011.protocol.errors import InvalidMessage, KafkaError, OffsetOutOfRange
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of

log = get_logger(__name__)


class Validation:
    """The validation of one group, look by look. One thread at a time."""

    def __init__(
        self, registry: Registry, group: str, brokers: BrokerAddresses, clock: Clock = now_ms
    ) -> None:
        self._registry = registry
        self._group = group
        self._brokers = brokers
        self._clock = clock
        self._reported: Reported | None = None
        self._positions: dict[TopicPartition, int] = {}  # in topic audit
        self._unsized: set[Window] = set()  # reported, and their ends not known yet
        self._ends: dict[Window, Mapping[TopicPartition, int]] = {}
        self._read_to_ms = 0
        # Messages of a window and server that the group has counted, and since when so many, ms.
        self._counted: dict[tuple[str, int, str], tuple[int, int]] = {}

    def look(self, *, is_final: bool = False) -> Validated:
        """The verdicts now. `is_final`: the producers have stopped, so that open windows are
        judged too. Raises CoordinationError."""
        started_ms = self._clock()
        names = self._names()
        if self._reported is None:
            widths = [counts.window_ms for counts in self._counts(names).values() if counts]
            if not widths:
                return Validated({}, 0, "the group has not counted anything yet")
            self._reported = Reported(widths[0])
        reported = self._reported
        unread = self._read_reports(reported, {name.broker_id for name in names})
        if not unread:
            self._read_to_ms = started_ms
        self._unsized |= reported.touched
        reported.end_look(started_ms, is_whole=not unread)
        self._ask_ends(reported, names)
        counts = self._counts(names)
        if any(found and found.window_ms != reported.window_ms for found in counts.values()):
            self._reported, self._read_to_ms = None, 0
            self._positions, self._unsized, self._ends = {}, set(), {}
            self._counted = {}
            return Validated({}, 0, "the group counts in other windows now")
        self._counted = self._counted_now(reported, counts)
        look = Look(
            reported,
            counts,
            self._ends,
            self._read_to_ms,
            started_ms,
            is_final and not unread,
            {key: since_ms for key, (_, since_ms) in self._counted.items()},
        )
        return Validated(judge(look), self._read_to_ms, unread)

    def settled(self, wait: Callable[[], bool], *, is_final: bool = False) -> Validated:
        """The verdicts once the group has read what was in the logs at the beginning, and the
        producers have reported what it had counted, or when `wait`, which is called between looks,
        returns False.

        A group that reads is always a little behind. What it has not counted once it is past those
        ends is missing. Raises CoordinationError.
        """
        self.look(is_final=is_final)
        found = self.look(is_final=is_final)  # a gap seen twice is a loss
        behind, unreported = _behind(found), _unreported(found)
        while (behind & _behind(found) or unreported & _unreported(found)) and wait():
            found = self.look(is_final=is_final)
        if unreported & _unreported(found):  # nothing that would be waited for
            self._counted = {
                key: (number, 0 if key[:2] in unreported else since_ms)
                for key, (number, since_ms) in self._counted.items()
            }
            found = self.look(is_final=is_final)
        return found

    def _counted_now(
        self, reported: Reported, counts: Mapping[TopicPartition, PartitionCounts | None]
    ) -> dict[tuple[str, int, str], tuple[int, int]]:
        """The numbers of messages counted, and since when; at the first look that is not known.

        Of a producer that is silent by then, windows are taken as counted when they were settled:
        else all would wait for it, whatever it had reported before.
        """
        numbers: Counter[tuple[str, int, str]] = Counter()
        for name, found in counts.items():
            for (start_ms, server), count in found.cells.items() if found else ():
                numbers[name.topic, start_ms, server] += count
        now_ms, is_first = self._clock(), not self._counted

        def since(start_ms: int, server: str) -> int:
            if is_first and reported.is_silent(server, now_ms):
                return min(now_ms, start_ms + reported.window_ms + LATENESS_MS_MAX)
            return now_ms

        return {
            key: before
            if (before := self._counted.get(key)) and before[0] == number
            else (number, since(*key[1:]))
            for key, number in numbers.items()
        }

    def _names(self) -> set[TopicPartition]:
        """The partitions that the group has counted."""
        found = set()
        root = paths.counts_root(self._group)
        topics = self._registry.children(root)
        texts = self._registry.children_many([f"{root}/{topic}" for topic in topics])
        for topic, of_topic in zip(topics, texts, strict=True):
            for text in of_topic:
                with contextlib.suppress(BadZnode):
                    found.add(TopicPartition(topic, *paths.decode_broker_partition(text)))
        return found

    def _counts(self, names: set[TopicPartition]) -> dict[TopicPartition, PartitionCounts | None]:
        found: dict[TopicPartition, PartitionCounts | None] = {}
        wanted = sorted(names)
        nodes = self._registry.get_many(
            [
                paths.counts_path(self._group, name.topic, BrokerPartition(*name[1:]))
                for name in wanted
            ]
        )
        for name, stored in zip(wanted, nodes, strict=True):
            if stored is not None:
                found[name] = PartitionCounts.decode(stored.value)
        return found

    def _read_reports(self, reported: Reported, brokers: set[int]) -> str:
        """Read topic `audit` to its end; return why some of it could not be read, or ""."""
        partitions = {
            TopicPartition(AUDIT, *at) for at in cluster.partitions_of(self._registry, AUDIT)
        }
        live = set(cluster.live_brokers(self._registry))
        unread = [f"broker {broker_id} is away" for broker_id in sorted(brokers - live)]
        silent = SilentBrokers()
        for name in sorted(partitions | self._positions.keys()):
            if name.broker_id not in live:
                unread.append(f"broker {name.broker_id} is away")
                continue
            try:
                with silent.asking(name.broker_id):
                    self._read_partition(reported, name)
            except (KafkaError, OSError) as error:
                unread.append(_named(f"broker {name.broker_id}", reason_of(error)))
        return "; ".join(dict.fromkeys(unread))

    def _read_partition(self, reported: Reported, name: TopicPartition) -> None:
        with self._brokers.client(name.broker_id) as client:
            first = client.earliest(name.topic, name.partition)
            end = client.latest(name.topic, name.partition)
        at = self._positions.get(name, first)
        if not first <= at <= end:  # reports read before are recognised by their sequence
            log.warning("reports_moved", partition=str(name), from_offset=at, to_offset=first)
            at = first
        address = self._brokers.dialled(name.broker_id)
        if address is None:
            return
        is_cut = first > 0 and name not in self._positions
        self._positions[name] = at
        try:
            for chunk in read_range(address, *name, at, end):
                for piece in chunk.pieces():
                    payloads = [message.payload for message in piece]
                    if is_cut:
                        reported.begins(payloads, self._clock())
                        is_cut = False
                    reported.add(payloads)
                self._positions[name] = chunk.next_offset
        except InvalidMessage as error:
            log.error("reports_damaged", partition=str(name), detail=str(error))
            self._positions[name] = end  # the sequences show what was lost
        except OffsetOutOfRange:
            self._positions.pop(name)  # deleted meanwhile
            raise
        if is_cut:
            reported.begins((), self._clock())

    def _ask_ends(self, reported: Reported, counted: set[TopicPartition]) -> None:
        """Look up the ends of the topics with new reports; if not all brokers of a topic answer,
        the next look does."""
        self._unsized &= reported.expected.keys()
        with contextlib.ExitStack() as opened:
            clients: dict[int, SimpleConsumer] = {}
            silent = SilentBrokers()
            for topic in {topic for topic, _ in self._unsized} & {name.topic for name in counted}:
                there = cluster.partitions_of(self._registry, topic)
                names = {TopicPartition(topic, *at) for at in there}
                if {name for name in counted if name.topic == topic} - names:
                    continue  # its broker is away
                ends = {}
                try:
                    for name in names:
                        if name.broker_id not in clients:
                            client = self._brokers.client(name.broker_id)
                            clients[name.broker_id] = opened.enter_context(client)
                        with silent.asking(name.broker_id):
                            ends[name] = clients[name.broker_id].latest(topic, name.partition)
                except (KafkaError, OSError):
                    continue
                found = {window for window in self._unsized if window[0] == topic}
                self._ends.update(dict.fromkeys(found, ends))
                self._unsized -= found
        self._ends = {at: ends for at, ends in self._ends.items() if at in reported.expected}


def _named(broker: str, reason: str) -> str:
    """The reason behind the broker's name, which it may have itself, or its address."""
    if reason.startswith(f"{broker} "):
        return reason
    is_address = reason.startswith("broker at ")
    return f"{broker}{reason.removeprefix('broker')}" if is_address else f"{broker}: {reason}"


def _behind(found: Validated) -> set[Window]:
    return {window for window, verdict in _open_windows(found) if verdict.state == "behind"}


def _unreported(found: Validated) -> set[Window]:
    return {window for window, verdict in _open_windows(found) if verdict.reason == NOT_REPORTED}


def _open_windows(found: Validated) -> Iterator[tuple[Window, WindowVerdict]]:
    for topic, each in found.topics.items():
        for verdict in each.open_windows:
            yield (topic, verdict.start_ms), verdict
