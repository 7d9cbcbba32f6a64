"""The partitions of this broker: what any protocol appends to, reads from and asks about.

A `Log` is a protocol's handle of one partition: it comes from `find` or `find_or_create` and goes
back into the other methods; a protocol may read only its `topic` and `name`. Everything belongs to
the loop's thread. No method blocks: what takes time calls back from the loop.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core.appends import Appends, Moved
from kafka2011.broker.core.copies import CopyWait, CopyWaits
from kafka2011.broker.core.data_waits import DataWait, DataWaits, Waited
from kafka2011.broker.core.errors import (
    CannotCreateLog,
    CannotRead,
    IllegalTopic,
    NoSuchPartition,
    PartitionError,
    TooMuchUnconfirmed,
)
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.file_layer import Buffer
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.log import Log, LogState
from kafka2011.protocol import names
from kafka2011.protocol.errors import IllegalTopicName
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

__all__ = ["Disk", "Ends", "Log", "Logs", "Partitions"]

# Logs in all waits for data together; a wait holds a few hundred bytes for each.
WAITED_LOGS_MAX = 100_000


class Logs(Protocol):
    """What is needed of the log manager."""

    topics: set[str]

    def get(self, topic: str, partition: int) -> Log | None: ...
    def get_or_create(self, topic: str, partition: int) -> Log: ...
    def when_gone(self, forget: Callable[[], None]) -> None: ...


class Disk(Protocol):
    """What is needed of the disk scheduler."""

    def appended(self, log: Log) -> None: ...
    def write(self) -> None: ...
    def request_flush(self, log: Log) -> None: ...


@dataclass(frozen=True, slots=True)
class Ends:
    """Offsets of one log: the first byte that can be read, and the end of what can be."""

    start: int
    watermark: int


class Partitions:
    """One for all protocols. `topic_seen` is called for every topic that gets its first log."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: Logs,
        disk: Disk,
        data_waits: DataWaits,
        *,
        rng: random.Random,
        topic_seen: Callable[[str], None],
    ) -> None:
        self._config = config
        self._logs = logs
        self._disk = disk
        self._data_waits = data_waits
        self._rng = rng
        self.copies = CopyWaits()
        self.logs_made = 0  # each takes half a millisecond of the loop
        self._topic_seen = topic_seen
        self._unreadable: set[str] = set()  # files that could not be opened at the last attempt
        self._refusal = ""  # why a replica refuses appends
        self._rule: names.TopicRule = "0.7" if config.topic_name_rule == "0.7" else "strict"
        self._segment_bytes_min = min(
            config.segment_bytes_max, *config.topic_segment_bytes_max.values(), 2**31
        )

    # --- metadata ------------------------------------------------------------------------------

    @property
    def topics(self) -> list[str]:
        """The topics that have a log here, sorted, less those whose names the settings refuse:
        every request for them is refused, so clients need not know of them."""
        return [topic for topic in sorted(self._logs.topics) if self._is_legal(topic)]

    def _is_legal(self, topic: str) -> bool:
        try:
            self.partition_count(topic)
        except IllegalTopic:
            return False
        return True

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has here, stored or not. Raises IllegalTopic."""
        try:
            names.check_topic(topic, self._rule)
        except IllegalTopicName as error:
            raise IllegalTopic(str(error)) from None
        if len(topic) > self._config.max_topic_name_length:
            raise IllegalTopic(
                f"a topic of {len(topic)} characters is above the limit of "
                f"{self._config.max_topic_name_length}"
            )
        return self._config.partition_count(topic)

    def find(self, topic: str, partition: int) -> Log | None:
        """The partition's log; None when nothing was ever appended to it here.

        Raises IllegalTopic, NoSuchPartition.
        """
        count = self.partition_count(topic)
        if not 0 <= partition < count:
            raise NoSuchPartition(f"{topic!a} has no partition {partition}")
        return self._logs.get(topic, partition)

    def find_or_create(self, topic: str, partition: int | None) -> Log:
        """The partition's log, made when there is none; None stands for any partition.

        Raises IllegalTopic, NoSuchPartition, LimitReached, CannotCreateLog.
        """
        count = self.partition_count(topic)
        if partition is None:
            partition = self._any_partition(topic, count)
        if not 0 <= partition < count:
            raise NoSuchPartition(f"{topic!a} has no partition {partition}")
        log = self._logs.get(topic, partition)
        if log is None:
            try:
                log = self._logs.get_or_create(topic, partition)
            except OSError as error:
                raise CannotCreateLog(f"{topic!a}-{partition}: {error.strerror}") from None
            self.logs_made += 1
            self._topic_seen(topic)
            self._data_waits.log_created()
        return log

    def when_gone(self, forget: Callable[[], None]) -> None:
        """Call `forget` when a handle loses its partition: what keeps handles must look them up
        again. A replica's partition goes when its leader does not have it."""
        self._logs.when_gone(forget)

    def _any_partition(self, topic: str, count: int) -> int:
        """A random one. Unlike 0.7: not one whose disk failed, while there is another."""
        partition = self._rng.randrange(count)
        if self._is_writable(topic, partition):
            return partition
        writable = [number for number in range(count) if self._is_writable(topic, number)]
        return self._rng.choice(writable) if writable else partition

    def _is_writable(self, topic: str, partition: int) -> bool:
        log = self._logs.get(topic, partition)
        return log is None or log.state is LogState.ONLINE

    def refuse(self, reason: str) -> None:
        """Append nothing from here on, for `reason`; with "" take appends again."""
        self._refusal = reason

    # --- append --------------------------------------------------------------------------------

    def append(
        self,
        log: Log,
        message_set: Buffer,
        message_count: int,
        now_ms: int,
        appends: Appends,
        *,
        set_count: int = 1,
    ) -> int:
        """Append whole, valid entries, of `set_count` sets; returns the offset after them.

        The buffer must not change before the write that ends this turn of the loop. The set is
        durable, and can be read, once `when_durable` says so. If it cannot be written after all,
        `appends.append_failed` is called.

        Raises StorageFailed, StorageFull, PartitionOffline, TooMuchUnconfirmed: nothing was taken
        over.
        """
        try:
            if self._refusal:
                raise TooMuchUnconfirmed(f"{log.name}: {self._refusal}")
            appender = appends if set_count == 1 else Moved(appends, set_count)
            end = log.append(message_set, message_count, now_ms, appender)
        except PartitionError:
            appends.was_refused = True
            raise
        self._disk.appended(log)
        appends.ends[log] = end
        appends.last = log
        # 0.7's flush by count holds the client up until the flush. A set that is held back for a
        # new segment holds it up until it is written, so that memory stays bounded.
        if log.messages_since_flush_began >= log.flush_interval_messages:
            appends.flush_first[log] = end
            appends.must_wait = True
        elif log.is_held:
            is_flush_due = message_count >= log.flush_interval_messages
            (appends.flush_first if is_flush_due else appends.write_first)[log] = end
            appends.must_wait = True
        return end

    def has_room(self, appends: Appends, size_bytes: int) -> bool:
        """Whether `size_bytes` can be appended where this client appended last before that log may
        roll; False for a client without appends, of which nothing is known."""
        log = appends.last
        return (
            log is not None
            and log.room_bytes >= size_bytes
            and self._segment_bytes_min >= size_bytes  # it may turn to another log
        )

    def write_now(self) -> None:
        """Write what was appended in this turn, before its end. `append_failed` is called from here
        for sets that cannot be written."""
        self._disk.write()

    def when_ready(self, appends: Appends, done: Callable[[bool], None]) -> Barrier:
        """Call `done(True)` when the client may append again, `done(False)` when it never may.

        `done` may be called before this returns. Cancel the result when the client is gone.
        """
        flushed, appends.flush_first = appends.flush_first, {}
        written, appends.write_first = appends.write_first, {}
        appends.must_wait = False
        barrier = Barrier(done)
        for log, end in written.items():
            log.when_written(end, barrier)
        for log, end in flushed.items():
            log.when_flushed(end, barrier)
        return self._begin(barrier, flushed)

    def when_durable(self, ends: Mapping[Log, int], done: Callable[[bool], None]) -> Barrier:
        """Flush, and call `done(True)` when each log's watermark has reached its end, `done(False)`
        when one of them never will. As `when_ready` otherwise."""
        barrier = Barrier(done)
        for log, end in ends.items():
            log.when_confirmed(end, barrier)
        return self._begin(barrier, ends)

    def when_flushed(self, ends: Mapping[Log, int], done: Callable[[bool], None]) -> Barrier:
        """As `when_durable`, but waits for this broker's own disk alone."""
        barrier = Barrier(done)
        for log, end in ends.items():
            log.when_flushed(end, barrier)
        return self._begin(barrier, ends)

    def when_copied(
        self, ends: Mapping[Log, int], count: int, done: Callable[[bool], None]
    ) -> Barrier | CopyWait:
        """As `when_flushed`, on the disks of `count` replicas, at most `copies.members_max`."""
        if self.copies.leader is None:
            return self.when_flushed(ends, done)
        wait = self.copies.wait(ends, count, done)
        for log in ends:
            self._disk.request_flush(log)
        return wait

    def _begin(self, barrier: Barrier, to_flush: Iterable[Log]) -> Barrier:
        for log in to_flush:
            self._disk.request_flush(log)
        barrier.seal()
        return barrier

    # --- read ----------------------------------------------------------------------------------

    def ends(self, log: Log) -> Ends:
        return Ends(log.start_offset, log.high_watermark)

    def latest_from(self, log: Log) -> int:
        """The offset that the watermark must reach before a latest offset is answered: the previous
        leader may have answered as much. Only in a replica is it above the watermark."""
        return log.ends.floor

    def read(self, log: Log, offset: int, size_max: int) -> FileRegion | None:
        """At most `size_max` bytes from `offset` on, of one segment, all of them durable; None when
        there are none. Send or release the region.

        Raises OffsetNotInLog, PartitionOffline, CannotRead.
        """
        try:
            region = log.read(offset, size_max)
        except OSError as error:
            self._note_unreadable(log, error)
            raise CannotRead(f"{log.name}: {error.strerror}") from None
        if region is not None:
            log.count_out(region.count)
            if self._unreadable:
                self._unreadable.discard(str(region.segment.path))
        return region

    def _note_unreadable(self, log: Log, error: OSError) -> None:
        """Log that a file cannot be opened, once until it can be: readers ask again and again."""
        path = str(error.filename)
        if path not in self._unreadable:
            self._unreadable.add(path)
            _log.error("cannot_read", partition=log.name, path=path, reason=error.strerror)

    def wait_for_data(
        self,
        behind: Mapping[Log, int],
        deadline_s: float,
        done: Callable[[Waited], None],
        *,
        or_new_log: bool = False,
    ) -> DataWait:
        """Call `done` once: when `read` has bytes from one of the offsets on, when a log
        fails, or at `deadline_s` by the loop's clock; with `or_new_log` also when a partition gets
        its first log. Cancel the result when the reader is gone.

        Raises TooManyWaits.
        """
        return self._data_waits.start(behind, deadline_s, done, or_new_log=or_new_log)

    def offsets_before(self, log: Log, time_ms: int, count_max: int) -> list[int]:
        """At most `count_max` offsets in descending order by segment times; `time_ms` may be LATEST
        or EARLIEST. Raises PartitionOffline."""
        return log.offsets_before(time_ms, count_max)
